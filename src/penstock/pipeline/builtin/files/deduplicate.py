"""Each order once, though it was sent more often, to another topic. `penstock pipeline validate`, then `… run`."""

from pyspark.sql import DataFrame

from penstock.pipeline import define, variable
from penstock.pipeline.builtin import deduplicate

TOPIC = variable("TOPIC", "orders")

pipeline = define(
    "deduplicate",
    bootstrap_servers=variable("BOOTSTRAP", "127.0.0.1:9092"),
    checkpoint="checkpoints/deduplicate",  # how far it came; this pipeline's alone
    trigger="every 5 seconds",
    delivery="at-least-once",  # leave it out where the brokers have transactions: exactly once
)

pipeline.stream(
    "orders",
    "order_id STRING NOT NULL, product STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP NOT NULL",
    topic=TOPIC,
    dead_letters=f"{TOPIC}.dead",
)


@pipeline.to_topic(f"{TOPIC}.unique", key="order_id")
def unique(orders: DataFrame) -> DataFrame:
    """Copies are recognised for an hour of the orders' own time; an order that comes later than that is dropped."""
    return deduplicate(orders, keys="order_id", time="ordered_at", within="1 hour")
