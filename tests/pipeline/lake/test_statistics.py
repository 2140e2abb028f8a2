"""What commits tell about files: bounds have to bound."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from penstock.pipeline.lake.statistics import (  # noqa: E402
    COLUMNS_MAX,
    columns_with_statistics,
    lower_bound,
    statistics_json,
    upper_bound,
)

TYPES = {"n": "long", "d": "date", "t": "timestamp", "s": "string", "f": "double", "b": "boolean"}
ROW = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.dates(),
        "t": st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
        "f": st.none() | st.floats(),
        "b": st.none() | st.booleans(),
    }
)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("s", pa.string()),
        ("f", pa.float64()), ("b", pa.bool_()),
    ]
)  # fmt: skip


def told(rows: list[dict[str, Any]], row_group_size: int = 3) -> dict[str, Any]:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), sink, row_group_size=row_group_size)
    found: dict[str, Any] = json.loads(statistics_json(pq.read_metadata(sink), TYPES))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=10))
def test_no_value_lies_outside_of_its_bounds(rows: list[dict[str, Any]]) -> None:
    found = told(rows)
    assert found["numRecords"] == len(rows)
    assert found["nullCount"] == {name: sum(row[name] is None for row in rows) for name in TYPES}
    parsers: dict[str, Callable[[Any], Any]] = {"n": int, "s": str, "d": datetime.date.fromisoformat, "t": _moment}
    for name, parse in parsers.items():
        values = [row[name] for row in rows if row[name] is not None]
        low, high = found["minValues"].get(name), found["maxValues"].get(name)
        if low is not None:
            assert parse(low) <= min(values)
        if high is not None:
            assert parse(high) >= max(values)


def _moment(text: str) -> datetime.datetime:
    # Bounds are whole milliseconds, so that they may lie just behind the last moment Python knows.
    return datetime.datetime.fromisoformat(text)


def test_bounds_are_told_for_values_that_have_an_order_everywhere() -> None:
    moment = datetime.datetime(2026, 1, 31, 12, 0, 0, 123456, datetime.UTC)
    rows = [
        {"n": 1, "d": datetime.date(2026, 1, 31), "t": moment, "s": "b", "f": float("nan"), "b": True},
        {"n": -5, "d": datetime.date(2025, 1, 31), "t": moment, "s": "a", "f": 1.0, "b": None},
    ]
    found = told(rows)
    assert found["minValues"] == {"n": -5, "d": "2025-01-31", "t": "2026-01-31T12:00:00.123Z", "s": "a"}
    assert found["maxValues"] == {"n": 1, "d": "2026-01-31", "t": "2026-01-31T12:00:00.124Z", "s": "b"}
    assert found["nullCount"]["b"] == 1


def test_a_long_text_bounds_from_below_only() -> None:
    assert lower_bound("string", b"x" * 100) == "x" * 32
    assert upper_bound("string", b"x" * 100) is None
    assert lower_bound("string", b"\xff") is None


def test_moments_before_1970_and_beyond_the_calendar() -> None:
    assert lower_bound("timestamp", -1) == "1969-12-31T23:59:59.999Z"
    assert upper_bound("timestamp", -1) == "1970-01-01T00:00:00.000Z"
    assert lower_bound("timestamp_ntz", 0) == "1970-01-01T00:00:00.000"
    assert upper_bound("timestamp", 2**62) is None
    assert lower_bound("date", 2**30) is None


def test_a_column_of_nulls_has_a_count_and_no_bounds() -> None:
    found = told([dict.fromkeys(TYPES)] * 4)
    assert found["minValues"] == found["maxValues"] == {}
    assert found["nullCount"] == dict.fromkeys(TYPES, 4)


def test_columns_that_have_statistics_are_few_and_flat() -> None:
    many = {f"c{number}": "long" for number in range(50)}
    assert len(columns_with_statistics(many)) == COLUMNS_MAX
    mixed = {"a.b": "long", "raw": "binary", "amount": "decimal(5,2)", "x": "long"}
    assert columns_with_statistics(mixed) == {"x": "long"}
