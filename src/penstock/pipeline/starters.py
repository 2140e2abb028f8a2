"""The pipeline files that `penstock pipeline init` writes where no built-in one is asked for."""

from __future__ import annotations

from penstock.pipeline.model import Template

SQL = Template(
    name="sql",
    summary="orders from a topic to a table of revenue per minute, in SQL",
    suffix=".sql",
    text="""\
-- Revenue per minute, from a topic to a table. Check it with `penstock pipeline validate`, start it with `… run`.

SET bootstrap.servers = '${BOOTSTRAP:-127.0.0.1:9092}';
SET checkpoint = 'checkpoints/revenue';     -- how far it came; this pipeline's alone
SET trigger = 'every 5 seconds';            -- or 'continuous', or 'once'
SET lake = 'lake';                          -- tables without a path are written below this
SET delivery = 'at-least-once';             -- leave it out where the brokers have transactions: exactly once

CREATE STREAM orders (
    order_id   STRING NOT NULL,
    product    STRING,
    amount     DECIMAL(10,2),
    ordered_at TIMESTAMP,
    WATERMARK FOR ordered_at DELAY OF 10 MINUTES
) WITH (topic = 'orders', format = 'json', dead_letters = 'orders.dead');

CREATE TABLE revenue AS
    SELECT window.start AS minute, product, sum(amount) AS amount, count(*) AS orders
    FROM orders
    GROUP BY window(ordered_at, '1 minute'), product;
""",
)

PYTHON = Template(
    name="python",
    summary="the same in Python",
    suffix=".py",
    text='''\
"""Revenue per minute, from a topic to a table. Check it with `penstock pipeline validate`, start it with `… run`."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.pipeline import define, variable

pipeline = define(
    "revenue",
    bootstrap_servers=variable("BOOTSTRAP", "127.0.0.1:9092"),
    checkpoint="checkpoints/revenue",  # how far it came; this pipeline's alone
    trigger="every 5 seconds",  # or "continuous", or "once"
    delivery="at-least-once",  # leave it out where the brokers have transactions: exactly once
)

pipeline.stream(
    "orders",
    "order_id STRING NOT NULL, product STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP",
    topic="orders",
    watermark="ordered_at 10 minutes",
    dead_letters="orders.dead",
)


@pipeline.to_table("lake/revenue")
def revenue(orders: DataFrame) -> DataFrame:
    """A function is given the streams, tables and views that its parameters name."""
    minutes = orders.groupBy(F.window("ordered_at", "1 minute"), "product")
    sums = minutes.agg(F.sum("amount").alias("amount"), F.count("*").alias("orders"))
    return sums.select(F.col("window.start").alias("minute"), "product", "amount", "orders")
''',
)

STARTERS = {template.name: template for template in (SQL, PYTHON)}


def templates() -> dict[str, Template]:
    """All files to start from: these two and the built-in pipelines."""
    from penstock.pipeline.builtin.templates import TEMPLATES

    return {**STARTERS, **TEMPLATES}
