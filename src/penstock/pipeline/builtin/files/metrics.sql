-- The history of a cluster into the lake: what `penstock monitor` writes, a row for each sample, for `penstock forecast`.
-- Check it with `penstock pipeline validate`, start it with `… run`; then: penstock forecast lake/metrics
-- For the roll-ups instead (an hour or a day a row): TOPIC=penstock.metrics.rollups with `init --from archive`.

SET bootstrap.servers = '${BOOTSTRAP:-127.0.0.1:9092}';
SET checkpoint = 'checkpoints/metrics';     -- how far it came; this pipeline's alone
SET trigger = 'every 1 minute';             -- or 'once', to archive what is there and end
SET lake = 'lake';
SET delivery = 'at-least-once';             -- leave it out where the brokers have transactions: exactly once

CREATE STREAM samples (
    time_ms     BIGINT NOT NULL,
    cluster     STRING NOT NULL,
    kind        STRING NOT NULL,
    name        STRING NOT NULL,
    metric      STRING NOT NULL,
    value       DOUBLE NOT NULL,
    unit        STRING,
    interval_ms BIGINT
) WITH (topic = '${TOPIC:-penstock.metrics}', format = 'json', starting = 'earliest',
        dead_letters = '${TOPIC:-penstock.metrics}.dead');

-- A directory for each day; small files are put together in the background.
CREATE TABLE metrics WITH (date_column = 'sampled_at', compact_every = '20') AS
    SELECT time_ms, cluster, kind, name, metric, value, unit, interval_ms, timestamp_millis(time_ms) AS sampled_at
    FROM samples;
