"""A topic into the lake, record for record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.pipeline.builtin.parameters import ParameterError
from penstock.pipeline.builtin.reading import topic_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORDS_PER_TRIGGER = 500_000
COMPACT_EVERY = 20
"""Batches between two compactions: a table of a thousand small files is slow to read."""


def archive_topic(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    path: str,
    *,
    checkpoint: str,
    every: str = "10 seconds",
    once: bool = False,
    starting: str = "earliest",
    records_per_trigger: int = RECORDS_PER_TRIGGER,
    compact_every: int | None = COMPACT_EVERY,
    properties: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Starts a query that writes a topic (or several, separated by commas) to a Delta table, exactly once.

        archive_topic(spark, "localhost:9092", "orders", "lake/orders", checkpoint="checkpoints/orders")

    The table has what a record has: `key`, `value`, `headers`, `topic`, `partition`, `offset`, `timestamp`,
    `timestampType`, and `date`, the day of the timestamp in UTC, by which it is partitioned. Nothing is decoded, so
    nothing can fail to decode, and `replay` has all it needs. With `once` the query ends when it reaches the end that
    the topic has now; else it writes `every` so often. Small files are put together in the background. Records of
    transactions are archived when they are committed, and not if they are aborted (`properties` may say otherwise:
    `{"isolation.level": "read_uncommitted"}`).
    """
    from penstock.pipeline.lake import to_table

    if records_per_trigger < 1:
        raise ParameterError(f"records_per_trigger is {records_per_trigger}: it must be 1 or more")
    records = (
        topic_reader(spark.readStream, {"bootstrap.servers": bootstrap_servers, **(properties or {})})
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", str(records_per_trigger))
        .option("includeHeaders", "true")
        .load()
    )
    writer = to_table(path, date_column="timestamp", compact_every=compact_every)
    started = records.writeStream.option("checkpointLocation", checkpoint).foreachBatch(writer)
    return (started.trigger(availableNow=True) if once else started.trigger(processingTime=every)).start()
