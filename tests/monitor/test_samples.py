"""The records of the metrics topics, which other programs read."""

from __future__ import annotations

import json

import pytest

from penstock.monitor.rollups import Rollups
from penstock.monitor.samples import (
    DAY_MS,
    HOUR_MS,
    METRICS,
    ROLLUP_SPARK_SCHEMA,
    SPARK_SCHEMA,
    Kind,
    MetricSample,
    Rollup,
    decode_rollup,
    decode_sample,
    encode,
)

NOON_MS = 20_000 * DAY_MS + 12 * HOUR_MS


def sample(value: float = 1.0, time_ms: int = NOON_MS, metric: str = "bytes_in_per_s") -> MetricSample:
    return MetricSample(
        time_ms=time_ms,
        cluster="c",
        kind=Kind.TOPIC,
        name="orders",
        metric=metric,
        value=value,
        unit=METRICS[Kind.TOPIC, metric].unit,
        topic="orders",
    )


def columns(schema: str) -> list[str]:
    return [part.split()[0].strip("`") for part in schema.split(", ")]


def test_a_raw_record_is_flat_json_with_the_columns_of_the_spark_schema() -> None:
    found = json.loads(encode(sample()))
    assert sorted(found) == sorted(columns(SPARK_SCHEMA))
    assert not any(isinstance(value, (dict, list)) for value in found.values())
    assert sample().key == b"topic/orders/bytes_in_per_s"


def test_a_rollup_has_the_columns_of_its_spark_schema() -> None:
    (rollup,) = Rollups([HOUR_MS]).add([sample(), sample(time_ms=NOON_MS + HOUR_MS)])
    assert sorted(json.loads(encode(rollup))) == sorted(columns(ROLLUP_SPARK_SCHEMA))


def test_records_are_read_back_as_written() -> None:
    assert decode_sample(encode(sample(2.5))) == sample(2.5)
    (rollup,) = Rollups([HOUR_MS]).add([sample(), sample(time_ms=NOON_MS + HOUR_MS)])
    assert decode_rollup(encode(rollup)) == rollup


@pytest.mark.parametrize("value", [None, b"", b"{}", b"[1]", b"\xff", b'{"time_ms": "now"}', b"x" * 20_000])
def test_foreign_records_are_skipped(value: bytes | None) -> None:
    assert decode_sample(value) is None
    assert decode_rollup(value) is None


def test_a_window_closes_with_the_first_sample_of_the_next() -> None:
    rollups = Rollups([HOUR_MS])
    assert list(rollups.add([sample(1.0), sample(5.0, NOON_MS + 10_000), sample(3.0, NOON_MS + 20_000)])) == []
    (closed,) = rollups.add([sample(9.0, NOON_MS + HOUR_MS)])
    assert (closed.start_ms, closed.count, closed.minimum, closed.maximum, closed.mean, closed.last) == (
        NOON_MS, 3, 1.0, 5.0, 3.0, 3.0,
    )  # fmt: skip


def test_a_sample_from_before_the_open_window_is_counted_in_it() -> None:
    rollups = Rollups([HOUR_MS])
    assert list(rollups.add([sample(1.0, NOON_MS), sample(2.0, NOON_MS - HOUR_MS)])) == []
    (open_window,) = rollups.partial(NOON_MS + 1_000)
    assert (open_window.start_ms, open_window.count) == (NOON_MS, 2)


def test_a_restarted_monitor_continues_the_windows_of_the_last_one() -> None:
    first = Rollups([DAY_MS])
    list(first.add([sample(1.0), sample(3.0, NOON_MS + 10_000)]))
    (partial,) = first.partial(NOON_MS + 20_000)
    second = Rollups([DAY_MS])
    second.resume(partial)
    list(second.add([sample(8.0, NOON_MS + 60_000)]))
    (continued,) = second.partial(NOON_MS + 70_000)
    assert continued.key == partial.key
    assert (continued.count, continued.minimum, continued.maximum, continued.mean) == (3, 1.0, 8.0, 4.0)


def test_partial_rollups_are_written_only_when_they_changed() -> None:
    rollups = Rollups([HOUR_MS])
    list(rollups.add([sample()]))
    assert len(list(rollups.partial(NOON_MS + 1))) == 1
    assert list(rollups.partial(NOON_MS + 2)) == []


def test_windows_of_series_that_vanished_are_let_go() -> None:
    rollups = Rollups([HOUR_MS])
    list(rollups.add([sample()]))
    list(rollups.partial(NOON_MS + 2 * HOUR_MS))
    assert list(rollups.partial(NOON_MS + 3 * HOUR_MS)) == []
    assert not rollups._windows


def test_too_many_series_are_counted_and_not_rolled_up() -> None:
    rollups = Rollups([HOUR_MS], series_max=1)
    list(rollups.add([sample(), sample(metric="size_bytes")]))
    assert rollups.dropped == 1


def test_metrics_have_units_and_texts() -> None:
    assert all(one.unit and one.text for one in METRICS.values())
    assert isinstance(METRICS[Kind.GROUP, "lag_s"].unit, str)
    assert Rollup.__struct_config__.frozen
