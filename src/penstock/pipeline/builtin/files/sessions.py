"""Visits: the clicks of one customer that follow each other closely. `penstock pipeline validate`, then `… run`."""

from pyspark.sql import DataFrame

from penstock.pipeline import define, variable
from penstock.pipeline.builtin import sessions

TOPIC = variable("TOPIC", "clicks")

pipeline = define(
    "sessions",
    bootstrap_servers=variable("BOOTSTRAP", "127.0.0.1:9092"),
    checkpoint="checkpoints/sessions",  # how far it came; this pipeline's alone
    trigger="every 5 seconds",
    delivery="at-least-once",  # of dead letters; leave it out where the brokers have transactions
)

pipeline.stream(
    "clicks",
    "customer STRING NOT NULL, page STRING, clicked_at TIMESTAMP NOT NULL",
    topic=TOPIC,
    watermark="clicked_at 10 minutes",  # how late a click may be and still count
    dead_letters=f"{TOPIC}.dead",
)


@pipeline.to_table("lake/visits")
def visits(clicks: DataFrame) -> DataFrame:
    """A visit is over when the customer did nothing for half an hour."""
    return sessions(
        clicks,
        keys="customer",
        time="clicked_at",
        gap="30 minutes",
        counts={"baskets": "page = 'basket'"},
    )
