-- A stream with what a table knows about its keys, from a topic to another.
-- Check it with `penstock pipeline validate`, start it with `… run`.

SET bootstrap.servers = '${BOOTSTRAP:-127.0.0.1:9092}';
SET checkpoint = 'checkpoints/join';        -- how far it came; this pipeline's alone
SET trigger = 'every 5 seconds';
SET delivery = 'at-least-once';             -- leave it out where the brokers have transactions: exactly once

CREATE STREAM orders (
    order_id   STRING NOT NULL,
    product_id STRING,
    amount     DECIMAL(10,2)
) WITH (topic = '${TOPIC:-orders}', format = 'json', dead_letters = '${TOPIC:-orders}.dead');

-- A Delta table that is there already, with one row for each product, as it is when the pipeline starts.
CREATE TABLE products WITH (path = '${PRODUCTS:-lake/products}');

CREATE STREAM orders_with_products WITH (topic = '${TOPIC:-orders}.with-products', key = 'order_id') AS
    SELECT orders.order_id, orders.amount, orders.product_id, products.name, products.category
    FROM orders LEFT JOIN products ON orders.product_id = products.product_id;
