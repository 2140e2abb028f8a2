"""Windows, top-k, deduplication, sessions and joins, on a real Spark; batches first, for they are fast."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.pipeline.builtin import (
    deduplicate,
    join_table,
    latest_by_key,
    roll_up,
    sessions,
    top_k,
    windowed_counts,
)
from penstock.pipeline.builtin.parameters import ParameterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A timeout in the middle of a call to Spark would leave the session that all tests share out of step.
pytestmark = pytest.mark.timeout(600)

MORNING = datetime(2026, 1, 5, 8, tzinfo=UTC)
SCHEMA = "order_id STRING, product STRING, amount BIGINT, at TIMESTAMP"


def at(minute: float) -> datetime:
    return MORNING + timedelta(minutes=minute)


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> DataFrame:
    rows = [
        ("o1", "pan", 50, at(5)),
        ("o2", "knife", 80, at(10)),
        ("o3", "pan", 50, at(50)),
        ("o3", "pan", 50, at(52)),
        ("o4", "apron", 20, at(65)),
        ("o5", "knife", 80, at(70)),
        ("o6", "bowl", 20, at(75)),
    ]
    return spark.createDataFrame(rows, SCHEMA)


def test_windows_count_and_sum_per_key(orders: DataFrame) -> None:
    counted = windowed_counts(orders, time="at", window="1 hour", keys="product", sums="amount")
    assert counted.columns == ["window_start", "window_end", "product", "count", "amount_sum"]
    found = {
        (round(row.window_start.timestamp() - MORNING.timestamp()), row.product, row["count"], row.amount_sum)
        for row in counted.collect()
    }
    assert found == {
        (0, "pan", 3, 150),
        (0, "knife", 1, 80),
        (3600, "apron", 1, 20),
        (3600, "knife", 1, 80),
        (3600, "bowl", 1, 20),
    }
    overlapping = windowed_counts(orders, time="at", window="1 hour", slide="30 minutes")
    assert sum(row["count"] for row in overlapping.collect()) == 14, "each event is in two windows"


def test_the_first_k_of_each_window_are_ranked_and_ties_stand_by_name(orders: DataFrame) -> None:
    best = top_k(orders, 2, item="product", by="amount", time="at", window="1 hour")
    assert best.columns == ["window_start", "window_end", "rank", "product", "count", "amount_sum"]
    rows = best.orderBy("window_start", "rank").collect()
    found = [(row.rank, row.product, row["count"], row.amount_sum) for row in rows]
    assert found == [(1, "pan", 3, 150), (2, "knife", 1, 80), (1, "knife", 1, 80), (2, "apron", 1, 20)]
    frequent = top_k(orders, 1, item="product", time="at", window="1 day")
    assert [(row.product, row["count"]) for row in frequent.collect()] == [("pan", 3)]


def test_samples_are_rolled_up_per_series_and_window(spark: SparkSession) -> None:
    rows: list[tuple[str, float | None, datetime]] = [("cpu", float(second), at(second / 60)) for second in range(90)]
    rows += [("cpu", None, at(0.9)), ("memory", 7.0, at(0)), ("memory", None, at(1.2))]
    samples = spark.createDataFrame(rows, "name STRING, load DOUBLE, at TIMESTAMP")
    rolled = roll_up(samples, time="at", window="1 minute", value="load", keys="name", percentiles=[50, 99])
    assert rolled.columns == [
        "window_start", "window_end", "name", "count", "load_sum", "load_min", "load_max", "load_avg", "load_last",
        "load_p50", "load_p99",
    ]  # fmt: skip
    found = [tuple(row)[2:] for row in rolled.orderBy("name", "window_start").collect()]
    assert found == [
        ("cpu", 60, 1770.0, 0.0, 59.0, 29.5, 59.0, 29.0, 59.0),
        ("cpu", 30, 2235.0, 60.0, 89.0, 74.5, 89.0, 74.0, 89.0),
        ("memory", 1, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0),
        ("memory", 0, None, None, None, None, None, None, None),
    ]
    with pytest.raises(ParameterError, match="percentiles has 101"):
        roll_up(samples, time="at", window="1 minute", value="load", percentiles=[101])


def test_of_copies_one_is_left(orders: DataFrame) -> None:
    unique = deduplicate(orders, keys="order_id", time="at", within="1 hour")
    assert sorted(row.order_id for row in unique.collect()) == ["o1", "o2", "o3", "o4", "o5", "o6"]


def test_sessions_end_at_a_gap(orders: DataFrame) -> None:
    found = sessions(
        orders, keys="product", time="at", gap="30 minutes", counts={"dear": "amount >= 50"}, sums="amount"
    )
    assert found.columns == [
        "product", "session_start", "session_end", "duration_s", "count", "dear", "amount_sum",
    ]  # fmt: skip
    pans = found.where("product = 'pan'").orderBy("session_start").collect()
    assert [(row["count"], row.dear, row.amount_sum, row.duration_s) for row in pans] == [
        (1, 1, 50, 0.0),
        (2, 2, 100, 120.0),
    ]


def test_a_join_adds_what_the_table_knows(spark: SparkSession, orders: DataFrame) -> None:
    changes = [("pan", "kitchen", 1), ("pan", "outdoor", 2), ("knife", "kitchen", 1)]
    table = latest_by_key(
        spark.createDataFrame(changes, "product STRING, category STRING, version INT"), keys="product", order="version"
    )
    joined = join_table(orders, table, on="product", columns="category")
    assert {(row.order_id, row.category) for row in joined.collect()} == {
        ("o1", "outdoor"), ("o2", "kitchen"), ("o3", "outdoor"), ("o4", None), ("o5", "kitchen"), ("o6", None),
    }  # fmt: skip
    known = join_table(orders, table, on="product", prefix="product_", missing="drop")
    assert known.columns[-2:] == ["product_category", "product_version"]
    assert known.count() == 5


def test_a_stream_is_joined_with_the_table_as_it_is_at_each_start(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()

    def run(orders: list[tuple[str, str]], products: list[tuple[str, str]], missing: str) -> list[tuple[str, ...]]:
        for order_id, product in orders:
            (tmp_path / "orders" / f"{order_id}.json").write_text(
                json.dumps({"order_id": order_id, "product": product})
            )
        stream = spark.readStream.schema("order_id STRING, product STRING").json(str(tmp_path / "orders"))
        table = spark.createDataFrame(products, "product STRING, category STRING")
        joined = join_table(stream, table, on="product", missing="drop" if missing == "drop" else "keep")
        assert joined.isStreaming
        found: list[tuple[str, ...]] = []
        query = (
            joined.writeStream.foreachBatch(
                lambda batch, _: found.extend((row.order_id, row.category) for row in batch.collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(300)
        return sorted(found)

    kitchen = [("pan", "kitchen"), ("knife", "kitchen")]
    assert run([("o1", "pan"), ("o2", "kite")], kitchen, "keep") == [("o1", "kitchen"), ("o2", None)]
    moved = [("pan", "outdoor"), ("kite", "toys")]
    found = run([("o3", "pan"), ("o4", "kite"), ("o5", "bowl")], moved, "drop")
    assert found == [("o3", "outdoor"), ("o4", "toys")], "it goes on where it stopped, with the table of now"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o: windowed_counts(o, time="then", window="1 hour"), "time names the column then"),
        (lambda o: windowed_counts(o, time="product", window="1 hour"), "product, which is string: cast it"),
        (lambda o: windowed_counts(o, time="at", window="1 hour", keys="produkt"), "did you mean product"),
        (lambda o: top_k(o, 0, item="product", time="at", window="1 hour"), "k is 0"),
        (lambda o: deduplicate(o, keys=[], time="at", within="1 hour"), "keys is empty"),
        (lambda o: sessions(o, keys="product", time="at", gap="1 hour", counts={"count": "true"}), "cannot have"),
        (lambda o: join_table(o, o, on="product"), "both sides have a column order_id"),
        (lambda o: join_table(o, o, on="product", missing=cast(Any, "maybe")), "'keep' or 'drop'"),
    ],
)
def test_a_wrong_parameter_is_named(orders: DataFrame, call: Callable[[DataFrame], DataFrame], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call(orders)


def test_a_stream_without_a_watermark_is_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ParameterError, match="a stream needs a watermark"):
        windowed_counts(stream, time="timestamp", window="1 hour")
    windowed_counts(stream.withWatermark("timestamp", "1 minute"), time="timestamp", window="1 hour")
    with pytest.raises(ParameterError, match="table is a stream"):
        join_table(stream, stream, on="value")
