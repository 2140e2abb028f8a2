-- A topic into another one with another number of partitions, for as long as it runs: records are placed by their keys,
-- and those of one key stay in their order. Make the target first:
--     penstock topics create orders.wide --partitions 24
-- When it has caught up (`penstock pipeline status`), move the producers, then the consumers. Timestamps become those of the
-- copy; for what is there already, `penstock.pipeline.builtin.replay` keeps them.
-- Check it with `penstock pipeline validate`, start it with `… run`.

SET bootstrap.servers = '${BOOTSTRAP:-127.0.0.1:9092}';
SET checkpoint = 'checkpoints/repartition'; -- how far it came; a checkpoint for each copy
SET trigger = 'every 1 second';             -- 'once' ends at the end that the topic has now
SET delivery = 'at-least-once';             -- leave it out where the brokers have transactions: exactly once

CREATE STREAM narrow WITH (topic = '${TOPIC:-orders}', format = 'bytes', starting = 'earliest');

CREATE STREAM wide WITH (topic = '${TARGET:-orders.wide}', format = 'bytes') AS
    SELECT key, value, headers FROM narrow;
