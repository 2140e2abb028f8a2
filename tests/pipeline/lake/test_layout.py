"""Names of directories and values of partitions."""

from __future__ import annotations

import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.lake.layout import PartitionValue, directory_of, escape, partition_text, values_in_directory

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None), ("", None), ("a/b", "a/b"), (7, "7"), (-1, "-1"), (True, "true"), (False, "false"),
        (datetime.date(2026, 1, 31), "2026-01-31"), (0, "0"), (0.1, "0.1"), (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"), (Decimal("0E-3"), "0.000"),
        (datetime.datetime(2026, 1, 31, 12, 30, 0, 5), "2026-01-31 12:30:00.000005"),
        (datetime.datetime(2026, 1, 31, 12, 30, tzinfo=ZoneInfo("Asia/Tokyo")), "2026-01-31T03:30:00.000000Z"),
    ],
)  # fmt: skip
def test_values_are_texts_as_the_log_has_them(value: PartitionValue, text: str | None) -> None:
    assert partition_text(value) == text


def test_directories_are_named_as_spark_names_them() -> None:
    assert directory_of(["date", "shop"], ["2026-01-31", "a:b c"]) == "date=2026-01-31/shop=a%3Ab c"
    assert directory_of(["date"], [None]) == "date=__HIVE_DEFAULT_PARTITION__"
    assert directory_of([], []) == ""


@given(st.lists(st.tuples(NAMES, st.none() | NAMES), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
def test_directories_tell_their_values(pairs: list[tuple[str, str | None]]) -> None:
    names = [name for name, _ in pairs]
    values = tuple(value for _, value in pairs)
    directory = directory_of(names, values)
    assert directory.count("/") == len(pairs) - 1
    assert values_in_directory(names, directory) == values


@pytest.mark.parametrize("directory", ["", "2026-01-31", "day=2026-01-31", "date=1/shop=7", "x/date=1"])
def test_other_directories_tell_nothing(directory: str) -> None:
    assert values_in_directory(["date"], directory) is None


def test_what_means_something_in_a_path_is_escaped() -> None:
    assert escape("a/b=c*[d]{e") == "a%2Fb%3Dc%2A%5Bd%5D%7Be"
