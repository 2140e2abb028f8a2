"""The best sellers of each hour, from a topic to a table. Check it with `penstock pipeline validate`, then `… run`."""

from pyspark.sql import DataFrame

from penstock.pipeline import define, variable
from penstock.pipeline.builtin import top_k

TOPIC = variable("TOPIC", "orders")

pipeline = define(
    "top_k",
    bootstrap_servers=variable("BOOTSTRAP", "127.0.0.1:9092"),
    checkpoint="checkpoints/top_k",  # how far it came; this pipeline's alone
    trigger="every 5 seconds",
    delivery="at-least-once",  # of dead letters; leave it out where the brokers have transactions
)

pipeline.stream(
    "orders",
    "order_id STRING NOT NULL, product STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP NOT NULL",
    topic=TOPIC,
    watermark="ordered_at 10 minutes",  # how late an order may be and still count
    dead_letters=f"{TOPIC}.dead",
)


@pipeline.to_table("lake/best_sellers")
def best_sellers(orders: DataFrame) -> DataFrame:
    """The five products with the largest revenue, and their rank; without `by`, those with the most orders."""
    return top_k(orders, 5, item="product", by="amount", time="ordered_at", window="1 hour")
