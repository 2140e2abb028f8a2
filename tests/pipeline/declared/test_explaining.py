"""What `penstock pipeline explain` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.explaining import Positions, Resumption, TopicSize, explain, spark_plan, state_of
from penstock.pipeline.planning import own_session, plan
from penstock.pipeline.sql_file import parse_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
SET lake = 'lake';
SET trigger = 'every 5 seconds';
CREATE STREAM orders (id STRING NOT NULL, product STRING, at TIMESTAMP, WATERMARK FOR at DELAY OF 10 MINUTES)
    WITH (topic = 'o', dead_letters = 'o.dead', delivery = 'at-least-once', starting = 'latest');
CREATE STREAM clicks (id STRING, at TIMESTAMP, WATERMARK FOR at DELAY OF 10 MINUTES) WITH (topic = 'c', unparsed = 'drop');
CREATE TABLE plain AS SELECT id FROM orders;
CREATE TABLE minutes AS SELECT window.start AS start, count(*) AS n FROM orders GROUP BY window(at, '1 minute');
CREATE TABLE totals WITH (mode = 'update', key = 'product') AS
    SELECT product, count(*) AS n FROM orders GROUP BY product;
CREATE STREAM pairs WITH (topic = 'p', key = 'id') AS
    SELECT o.id FROM orders o JOIN clicks c ON o.id = c.id AND c.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR;
CREATE TABLE once AS SELECT DISTINCT id, at FROM orders;
"""  # noqa: E501


def test_every_part_is_told_in_words() -> None:
    pipeline = parse_sql(PIPELINE, name="shop")
    resumed = Resumption(7, {("o", 1): 5, ("o", 0): 1200})
    found = explain(pipeline, Positions({"orders": TopicSize(2, 5000, 12)}, {"plain": resumed}), {"plain": []})
    told = {(section.title, item.name): " ".join(item.sentences) for section in found for item in section.items}
    assert "Starts a batch every 5 s" in told["When", "shop"]
    assert "Topic o at 127.0.0.1:9092 (2 partitions, 5,000 records), as JSON." in told["Reads", "orders"]
    assert "starts at the end of the topic. That is 12 records from the end." in told["Reads", "orders"]
    assert "do not parse, or lack id, go to topic o.dead" in told["Reads", "orders"]
    assert "Waits 10 minutes for late rows" in told["Reads", "orders"]
    assert "are left out and counted" in told["Reads", "clicks"]
    assert told["Starts", "plain"] == "Resumes after batch 7: o-0 at 1,200, o-1 at 5."
    assert told["Starts", "totals"] == "Has not run yet: it starts where its streams say."
    assert told["Keeps", "plain"].startswith("No state")
    assert "replace those with the same product, to the Delta table lake/totals." in told["Writes", "totals"]
    assert "topic p, as JSON, keyed by id. Exactly once: each batch is one transaction" in told["Writes", "pairs"]
    assert "At least once" in told["Writes", "orders.dead_letters"]


def test_state_is_read_from_sparks_plan(spark: SparkSession) -> None:
    pipeline = parse_sql(PIPELINE, name="shop")
    planned = plan(pipeline, own_session(spark, pipeline))
    assert planned.problems == []
    state = {name: state_of(rows) for name, rows in planned.sinks.items()}
    assert state["plain"] == []
    assert state["minutes"] == ["One row of state for each group of window, until the watermark has passed it."]
    assert state["totals"] == [
        "One row of state for each group of product, for ever: it grows with the number of groups."
    ]
    [join] = state["pairs"]
    assert join.startswith("Rows of both streams")
    [distinct] = state["once"]
    assert "until the watermark has passed it" in distinct
    assert "Aggregate" in spark_plan(planned.sinks["minutes"])
