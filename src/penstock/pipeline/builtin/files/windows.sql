-- Counts and sums per window of time and key, from a topic to a table.
-- Check it with `penstock pipeline validate`, start it with `… run`.

SET bootstrap.servers = '${BOOTSTRAP:-127.0.0.1:9092}';
SET checkpoint = 'checkpoints/windows';     -- how far it came; this pipeline's alone
SET trigger = 'every 5 seconds';
SET lake = 'lake';
SET delivery = 'at-least-once';             -- leave it out where the brokers have transactions: exactly once

CREATE STREAM orders (
    order_id   STRING NOT NULL,
    product    STRING,
    amount     DECIMAL(10,2),
    ordered_at TIMESTAMP NOT NULL,
    WATERMARK FOR ordered_at DELAY OF 10 MINUTES    -- how late an order may be and still count
) WITH (topic = '${TOPIC:-orders}', format = 'json', dead_letters = '${TOPIC:-orders}.dead');

-- A window is written once, when the watermark has passed its end. For windows that overlap, say how often one begins:
-- window(ordered_at, '1 hour', '15 minutes').
CREATE TABLE windows AS
    SELECT window.start AS window_start, window.end AS window_end, product, count(*) AS orders, sum(amount) AS amount
    FROM orders
    GROUP BY window(ordered_at, '1 hour'), product;
