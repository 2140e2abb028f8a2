"""Whether lag grows or shrinks, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from penstock.lag.history import Observation, Source

STEADY_SHARE = 0.05
"""A change over the window of less than this share of the mean lag is not a trend."""
STEADY_RECORDS = 1.0
"""Nor is a change of a single record."""


class Direction(StrEnum):
    GROWING = "growing"
    SHRINKING = "shrinking"
    STEADY = "steady"
    UNKNOWN = "unknown"
    """Fewer than two lags at different times were seen."""


class Trend(msgspec.Struct, frozen=True):
    direction: Direction
    records_per_s: float = 0.0
    """The slope: positive if lag grows."""

    def seconds_to_zero(self, lag: int) -> float | None:
        """When a lag that shrinks at this rate reaches zero; None if it does not shrink."""
        if self.direction is not Direction.SHRINKING:
            return None
        return lag / -self.records_per_s


UNKNOWN_TREND = Trend(Direction.UNKNOWN)


def trend_of(
    observations: Sequence[Observation], lag_now: int | None, now_ms: int, source: Source = Source.COMMITS
) -> Trend:
    """The least-squares line through the lags of the window, each the end of the log minus the committed offset.

    A commit that goes back, by a reset or a mistake, makes lag jump, which is not a trend: only the observations after
    the last such commit count.

    Lag is a sawtooth: it grows until the consumer commits, then drops at once. The observations are the minima; the
    current lag is anywhere on the tooth. So the current lag is included only if the consumer has been silent for longer
    than it ever was between two commits: then it is part of the trend.
    """
    steps_back = [index for index, (one, other) in enumerate(pairwise(observations), 1) if other.offset < one.offset]
    counted = observations[steps_back[-1] :] if steps_back else observations
    points = [(one.timestamp_ms, one.lag) for one in counted if one.lag is not None]
    if lag_now is not None and points and now_ms > points[-1][0]:
        gaps = [later[0] - earlier[0] for earlier, later in pairwise(points)]
        if source is Source.SAMPLES or now_ms - points[-1][0] > max(gaps, default=0):
            points.append((now_ms, lag_now))
    return _line(points)


def _line(points: Sequence[tuple[int, int]]) -> Trend:
    if len(points) < 2 or points[0][0] == points[-1][0]:
        return UNKNOWN_TREND
    start_ms = points[0][0]
    seconds = [(when - start_ms) / 1000 for when, _ in points]
    mean_s = sum(seconds) / len(points)
    mean_lag = sum(lag for _, lag in points) / len(points)
    spread = sum((when - mean_s) ** 2 for when in seconds)
    if spread == 0:
        return UNKNOWN_TREND
    slope = sum((when - mean_s) * (lag - mean_lag) for when, (_, lag) in zip(seconds, points, strict=True)) / spread
    change = abs(slope) * (max(seconds) - min(seconds))
    if change <= max(STEADY_RECORDS, STEADY_SHARE * mean_lag):
        return Trend(Direction.STEADY, slope)
    return Trend(Direction.GROWING if slope > 0 else Direction.SHRINKING, slope)
