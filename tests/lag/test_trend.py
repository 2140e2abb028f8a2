"""Whether lag grows or shrinks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lag import Direction, Observation, Source, Trend, trend_of


def line(*lags: int | None, every_ms: int = 1_000) -> list[Observation]:
    return [Observation(n, n * every_ms, lag) for n, lag in enumerate(lags)]


def about(direction: Direction, records_per_s: float) -> Trend:
    rate: Any = pytest.approx(records_per_s)
    return Trend(direction, rate)


def test_lag_that_grows_has_a_rate() -> None:
    assert trend_of(line(10, 20, 30), 30, 2_000) == about(Direction.GROWING, 10.0)


def test_lag_that_shrinks_says_when_it_is_gone() -> None:
    trend = trend_of(line(100, 80, 60, 40), 40, 3_000)
    assert trend == about(Direction.SHRINKING, -20.0)
    assert trend.seconds_to_zero(40) == pytest.approx(2.0)
    assert trend_of(line(1, 50, 99), 99, 2_000).seconds_to_zero(99) is None


def test_small_changes_are_steady() -> None:
    assert trend_of(line(1_000, 1_010, 990, 1_005), 1_005, 3_000).direction is Direction.STEADY
    assert trend_of(line(3, 4, 3), 3, 2_000).direction is Direction.STEADY
    assert trend_of(line(0, 0, 0), 0, 2_000) == Trend(Direction.STEADY, 0.0)


def test_too_little_is_no_trend() -> None:
    assert trend_of([], 5, 0).direction is Direction.UNKNOWN
    assert trend_of(line(5), 5, 0).direction is Direction.UNKNOWN
    assert trend_of(line(None, 5, None), 5, 1_000).direction is Direction.UNKNOWN
    assert trend_of([Observation(1, 7, 1), Observation(2, 7, 9)], 9, 7).direction is Direction.UNKNOWN


def test_a_tooth_of_the_saw_is_no_trend() -> None:
    """Between two commits lag always grows; only silence longer than any before makes it count."""
    seen = line(0, 0, 0, 0, every_ms=5_000)
    assert trend_of(seen, 5_000, 20_000).direction is Direction.STEADY
    assert trend_of(seen, 5_001, 20_001).direction is Direction.GROWING


def test_a_reset_is_no_trend() -> None:
    """Nobody produces: lag jumps when the offset goes back, and is steady before and after."""
    seen = [Observation(100, 0, 0), Observation(100, 1_000, 0), Observation(0, 2_000, 100)]
    assert trend_of(seen, 100, 60_000).direction is Direction.STEADY
    # Consumers come back, and lag shrinks from there.
    more = [*seen, Observation(30, 3_000, 70), Observation(60, 4_000, 40)]
    assert trend_of(more, 40, 4_000) == about(Direction.SHRINKING, -30.0)


def test_what_is_produced_after_a_reset_makes_lag_grow() -> None:
    seen = [Observation(100, 0, 0), Observation(0, 2_000, 100)]
    assert trend_of(seen, 300, 12_000) == about(Direction.GROWING, 20.0)


def test_now_is_a_sample_like_the_others() -> None:
    seen = line(0, 0, every_ms=5_000)
    assert trend_of(seen, 400, 5_400, Source.SAMPLES).direction is Direction.GROWING


def test_lag_that_is_not_known_is_left_out() -> None:
    assert trend_of(line(10, None, 30), 30, 2_000).records_per_s == pytest.approx(10.0)


@given(st.integers(-500, 500), st.integers(2, 10), st.integers(1, 60_000))
def test_a_straight_line_is_found(slope: int, count: int, every_ms: int) -> None:
    base = 100_000
    seen = [Observation(n, n * every_ms, base + slope * n) for n in range(count)]
    found = trend_of(seen, base, (count - 1) * every_ms)
    assert found.records_per_s == pytest.approx(slope * 1000 / every_ms, abs=1e-6)
