-- Metrics by the minute out of metrics by the second: what each series measured, from a topic to a table.
-- Check it with `penstock pipeline validate`, start it with `… run`. The function `penstock.pipeline.builtin.roll_up` says
-- the same in a file in Python.

SET bootstrap.servers = '${BOOTSTRAP:-127.0.0.1:9092}';
SET checkpoint = 'checkpoints/roll-up';     -- how far it came; this pipeline's alone
SET trigger = 'every 5 seconds';
SET lake = 'lake';
SET delivery = 'at-least-once';             -- leave it out where the brokers have transactions: exactly once

CREATE STREAM metrics (
    name     STRING NOT NULL,
    instance STRING,
    value    DOUBLE,
    at       TIMESTAMP NOT NULL,
    WATERMARK FOR at DELAY OF 2 MINUTES     -- how late a sample may be and still count
) WITH (topic = '${TOPIC:-metrics}', format = 'json', dead_letters = '${TOPIC:-metrics}.dead');

-- A window is written once, when the watermark has passed its end.
CREATE TABLE metrics_by_minute AS
    SELECT window.start AS window_start, window.end AS window_end, name, instance,
           count(value) AS samples, min(value) AS min, max(value) AS max, avg(value) AS avg,
           max_by(value, at) AS last, percentile_approx(value, 0.99) AS p99
    FROM metrics
    GROUP BY window(at, '1 minute'), name, instance;
