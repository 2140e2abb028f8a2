"""The query that counts hours, over several batches: every event is in a window, late, a copy, or bad."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from penstock.demo.generator import Fate, Generator
from penstock.demo.seasons import ShopClock
from penstock.demo.spark_job import Followed
from penstock.demo.topics import replace_topics
from support.penstock import PenstockServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES_S = (8.0, 12.0, 16.0, 20.0)
RATE = 150.0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_late_events_and_copies_are_told_exactly(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.demo.shop_queries import shop_queries
    from penstock.pipeline import read_table

    with PenstockServer() as server:
        replace_topics(server.bootstrap)
        producer = Producer({"bootstrap.servers": server.bootstrap})
        generator = Generator(ShopClock(20.0), RATE)
        events = iter(generator)
        waiting = next(events)
        fates = dict.fromkeys(Fate, 0)
        hours = next(one for one in shop_queries(spark, server.bootstrap, tmp_path) if one.name == "hours")
        counted = Followed(lambda: None, None)  # type: ignore[arg-type,return-value]
        for until_s in BATCHES_S:
            while waiting.send_at_s <= until_s:
                producer.produce(waiting.topic, waiting.value, waiting.key)
                fates[waiting.fate] += 1
                waiting = next(events)
            if until_s == BATCHES_S[-1]:
                producer.flush(20)
                closing = generator.closing(until_s)
                producer.produce(closing.topic, closing.value, closing.key)
            producer.flush(20)
            query = (
                hours.frame.writeStream.foreachBatch(hours.write)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(300)
            for report in query.recentProgress:
                counted.take(report)
        (row,) = read_table(spark, tmp_path / "hours").selectExpr("sum(events) AS events").collect()
        assert counted.late >= fates[Fate.LATE] // 3 > 0, "some late events must have come in a later batch"
        assert counted.duplicates > 0
        assert row.events + counted.late + counted.duplicates + fates[Fate.BAD] == sum(fates.values())
