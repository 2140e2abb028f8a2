-- A topic into the lake, record for record: nothing is decoded, so nothing can fail to decode, and it can be replayed.
-- Check it with `penstock pipeline validate`, start it with `… run`.

SET bootstrap.servers = '${BOOTSTRAP:-127.0.0.1:9092}';
SET checkpoint = 'checkpoints/archive';     -- how far it came; this pipeline's alone
SET trigger = 'every 10 seconds';           -- or 'once', to archive what is there and end
SET lake = 'lake';

CREATE STREAM records WITH (topic = '${TOPIC:-orders}', format = 'bytes', starting = 'earliest');

-- A directory for each day, by the record's timestamp in UTC; small files are put together in the background.
CREATE TABLE archive WITH (date_column = 'timestamp', compact_every = '20') AS
    SELECT key, value, headers, topic, partition, offset, timestamp FROM records;
