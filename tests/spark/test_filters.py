"""Filters that Spark pushes down: less is read, and never too little."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from penstock.client import TopicPartition
from penstock.spark.batch_reader import BatchReader, FilteringBatchReader, plan
from penstock.spark.filters import Bounds
from penstock.spark.options import batch_options
from penstock.spark.planning import Range
from spark.fake_cluster import FakeCluster, Log, lookup_of

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribePattern": ".*"}
WHOLE = Range("a", 0, 10, 100)


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([EqualTo(("offset",), 50)], (50, 51)),
        ([In(("offset",), (70, 50))], (50, 71)),
        ([GreaterThan(("offset",), 50)], (51, 100)),
        ([GreaterThanOrEqual(("offset",), 50), LessThan(("offset",), 60)], (50, 60)),
        ([LessThanOrEqual(("offset",), 50)], (10, 51)),
        ([GreaterThan(("offset",), 5000)], None),
        ([LessThan(("offset",), 3)], None),
        ([Not(EqualTo(("offset",), 50)), IsNotNull(("offset",)), EqualTo(("value",), b"50")], (10, 100)),
    ],
)
def test_offsets(filters: list[Filter], left: tuple[int, int] | None) -> None:
    found = Bounds.of(filters).narrowed(WHOLE)

    assert ((found.start, found.end) if found.size > 0 else None) == left


def test_topics_and_partitions() -> None:
    bounds = Bounds.of([In(("topic",), ("a", "b")), EqualTo(("topic",), "a"), In(("partition",), (1, 2))])

    assert [key for topic in "abc" for number in range(4) if bounds.has(key := TopicPartition(topic, number))] == [
        ("a", 1),
        ("a", 2),
    ]


def test_a_timestamp_moves_the_beginning_only() -> None:
    class Times:
        def first_since(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            assert set(timestamps_ms.values()) == {999}
            return {TopicPartition("a", 0): 40, TopicPartition("a", 1): -1}

    second = WHOLE._replace(partition=1)
    bounds = Bounds.of(
        [
            GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(1, UTC)),
            LessThan(("timestamp",), datetime.fromtimestamp(5, UTC)),
        ]
    )

    assert bounds.timestamp_min_ms == 999
    assert bounds.narrowed_by_time([WHOLE, second], Times()) == [
        Range("a", 0, 40, 100),
        Range("a", 1, 100, 100),
    ]


def test_timestamps_have_zones() -> None:
    noon = datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))

    assert Bounds.of([GreaterThan(("timestamp",), noon)]).timestamp_min_ms == 1767268800000 - 1


def test_a_plan_reads_only_what_may_pass() -> None:
    cluster = FakeCluster()
    cluster.logs = {"a": [Log([1, 2, 3]), Log([1, 2, 3])], "b": [Log([9, 9])]}
    options = batch_options(OPTIONS)

    def planned(*filters: Filter) -> list[tuple[str, int, int, int]]:
        return [part.range_key for part in plan(options, lookup_of(options, cluster), Bounds.of(filters))]

    assert planned() == [("a", 0, 0, 3), ("a", 1, 0, 3), ("b", 0, 0, 2)]
    assert planned(EqualTo(("topic",), "a"), EqualTo(("partition",), 1)) == [("a", 1, 0, 3)]
    assert planned(GreaterThan(("offset",), 1)) == [("a", 0, 2, 3), ("a", 1, 2, 3)]
    assert planned(GreaterThan(("timestamp",), datetime.fromtimestamp(0.005, UTC))) == [("b", 0, 0, 2)]


def test_spark_evaluates_every_filter_again() -> None:
    reader = FilteringBatchReader(batch_options(OPTIONS))
    filters: list[Filter] = [EqualTo(("partition",), 1), EqualTo(("value",), b"x")]

    assert list(reader.pushFilters(filters)) == filters


def test_a_reader_without_the_setting_has_no_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader

    assert BatchReader.pushFilters is DataSourceReader.pushFilters
