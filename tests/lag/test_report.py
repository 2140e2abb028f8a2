"""Figures of a partition and of a group."""

from __future__ import annotations

import pytest

from penstock.lag import (
    Direction,
    GroupVerdict,
    History,
    Observation,
    PartitionLag,
    Position,
    Verdict,
    assess_group,
    assess_partition,
)

NOW_MS = 1_000_000


def position(committed: int | None = 10, end: int | None = 15, **more: int | None) -> Position:
    return Position(topic="orders", partition=3, committed=committed, end=end, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(10, 15, 5), (15, 15, 0), (16, 15, 0), (None, 15, None), (10, None, None)]
)
def test_lag_in_records(committed: int | None, end: int | None, lag: int | None) -> None:
    assert position(committed, end).lag_records == lag


@pytest.mark.parametrize(
    ("timestamp_ms", "age_ms"), [(NOW_MS - 7_000, 7_000), (NOW_MS, 0), (NOW_MS + 5, 0), (-1, None), (None, None)]
)
def test_lag_in_time_is_the_age_of_the_oldest_unread_record(timestamp_ms: int | None, age_ms: int | None) -> None:
    assert position(unread_timestamp_ms=timestamp_ms).lag_ms(NOW_MS) == age_ms


def test_nothing_unread_has_no_age() -> None:
    assert position(15, 15, unread_timestamp_ms=3).lag_ms(NOW_MS) == 0
    assert position(None, 15, unread_timestamp_ms=3).lag_ms(NOW_MS) is None


def test_records_that_were_deleted_unread_are_counted() -> None:
    assert position(10, 50, start=30).deleted_unread == 20
    assert position(10, 50, start=5).deleted_unread == 0
    assert position(None, 50, start=5).deleted_unread == 0


def test_a_partition_has_all_three_figures_and_a_verdict() -> None:
    history = History([Observation(10 * n, NOW_MS - 60_000 + 10_000 * n, 100 + 10 * n) for n in range(7)])
    told = assess_partition(position(60, 220, unread_timestamp_ms=NOW_MS - 90_000), history, NOW_MS)
    assert (told.lag_records, told.lag_ms) == (160, 90_000)
    assert told.trend.direction is Direction.GROWING
    assert told.trend.records_per_s == pytest.approx(1.0)
    assert told.verdict is Verdict.WARN
    assert told.complete == pytest.approx(0.7)


def test_without_a_history_there_are_figures_only() -> None:
    told = assess_partition(position(), None, NOW_MS)
    assert (told.lag_records, told.verdict, told.trend.direction) == (5, Verdict.OK, Direction.UNKNOWN)


def partition(lag: int | None, verdict: Verdict, lag_ms: int | None = None, complete: float = 1.0) -> PartitionLag:
    told = assess_partition(position(), None, NOW_MS)
    return PartitionLag(
        position=told.position, lag_records=lag, lag_ms=lag_ms, trend=told.trend, verdict=verdict, reason="",
        complete=complete,
    )  # fmt: skip


def test_a_group_adds_up() -> None:
    parts = [
        partition(5, Verdict.OK, 1_000),
        partition(None, Verdict.OK),
        partition(70, Verdict.WARN, 9_000, 0.5),
        partition(30, Verdict.STALL, 500),
    ]
    group = assess_group("billing", parts)
    assert (group.group, group.total_lag, group.lag_ms_max) == ("billing", 105, 9_000)
    assert group.verdict is GroupVerdict.ERR
    assert group.complete == pytest.approx(0.75)
    assert group.worst is parts[3]


def test_a_group_that_reads_nothing() -> None:
    group = assess_group("idle", [])
    assert (group.verdict, group.total_lag, group.lag_ms_max, group.worst) == (GroupVerdict.OK, 0, None, None)
