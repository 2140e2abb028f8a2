"""AvailableNow inside a real Spark, over what only brokers with transactions have: it ends, and reads what counts."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

from support.apache_kafka import ApacheKafka, available
from support.records import create_topic, is_decided, open_transaction
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.needs_maven, pytest.mark.timeout(400)]

RECORDS = 10


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    if reason := available():
        pytest.skip(reason)
    with ApacheKafka(heap="512M") as running:
        yield running


def run(spark: SparkSession, kafka: ApacheKafka, topic: str, checkpoint: Path) -> list[int]:
    """The offsets of all committed records that are there now and were not taken before."""
    taken: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        taken.extend(row.offset for row in batch.select("offset").collect())

    options = {
        "kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "4",
    }  # fmt: skip
    query = spark.readStream.format("penstock").options(**options).load().writeStream.foreachBatch(take)
    running = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(120), "it does not end"
    finally:
        running.stop()
    return taken


def test_aborted_ranges_and_transactions_that_are_open_or_decided_later(
    spark: SparkSession, kafka: ApacheKafka, tmp_path: Path
) -> None:
    topic = create_topic(kafka.bootstrap, f"t-{uuid.uuid4().hex[:8]}")
    open_transaction(kafka.bootstrap, topic, RECORDS).abort_transaction(30)
    open_transaction(kafka.bootstrap, topic, RECORDS).abort_transaction(30)
    wait_until(lambda: is_decided(kafka.bootstrap, topic))
    assert run(spark, kafka, topic, tmp_path) == [], "nothing but what was aborted"
    first = 2 * (RECORDS + 1)
    open_transaction(kafka.bootstrap, topic, RECORDS).commit_transaction(30)
    wait_until(lambda: is_decided(kafka.bootstrap, topic))
    late = open_transaction(kafka.bootstrap, topic, RECORDS)
    assert run(spark, kafka, topic, tmp_path) == list(range(first, first + RECORDS)), "up to what is undecided"
    assert run(spark, kafka, topic, tmp_path) == []
    late.commit_transaction(30)
    wait_until(lambda: is_decided(kafka.bootstrap, topic))
    first += RECORDS + 1
    assert run(spark, kafka, topic, tmp_path) == list(range(first, first + RECORDS))
