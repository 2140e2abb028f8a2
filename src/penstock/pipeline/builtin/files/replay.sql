-- A time range of a topic into another one, once: keys, values and headers as they are. Run again after a stop, it goes
-- on where it stopped. Where timestamps and partitions have to stay as well, or where the brokers have no transactions and
-- nothing may be written twice, use the function `penstock.pipeline.builtin.replay`.
-- Check it with `penstock pipeline validate`, start it with `… run`.

SET bootstrap.servers = '${BOOTSTRAP:-127.0.0.1:9092}';
SET checkpoint = 'checkpoints/replay';      -- how far it came; a checkpoint for each replay
SET trigger = 'once';                       -- ends when the range is written
SET delivery = 'at-least-once';             -- leave it out where the brokers have transactions: exactly once

CREATE STREAM past WITH (
    topic = '${TOPIC:-orders}', format = 'bytes',
    starting = '${START:-2026-01-05T08:00:00Z}', ending = '${END:-2026-01-05T12:00:00Z}'
);

CREATE STREAM again WITH (topic = '${TARGET:-orders.again}', format = 'bytes') AS
    SELECT key, value, headers FROM past;
