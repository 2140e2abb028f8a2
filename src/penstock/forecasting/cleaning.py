"""Samples → a grid of hours, and an account of what was wrong with them."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

HOUR_MS: Final = 3_600_000
HOURS_MAX: Final = 24 * 366 * 6
"""Six years; older samples are left out."""
AHEAD_MS_MAX: Final = HOUR_MS
"""A sample further in the future was taken with a wrong clock."""

Floats = NDArray[np.float64]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What was wrong with the samples of a series."""

    samples: int = 0
    double: int = 0
    """Same time twice; the later one counts."""
    from_the_future: int = 0
    too_old: int = 0
    not_numbers: int = 0
    resets: int = 0
    """A counter began again."""
    hours: int = 0
    """From the first sample to the last."""
    hours_missing: int = 0
    longest_gap_hours: int = 0


class Hours(msgspec.Struct, frozen=True):
    """Means by the hour; NaN where there was no sample."""

    start: int
    """Hours since 1970."""
    values: Floats
    findings: Findings


def to_hours(times_ms: NDArray[np.int64], values: Floats, now_ms: int, *, counter: bool = False) -> Hours:
    """The samples by the hour. A counter becomes its increase per second, across restarts of what it counts."""
    assert len(times_ms) == len(values)
    count = len(values)
    finite = np.isfinite(values)
    future = finite & (times_ms > now_ms + AHEAD_MS_MAX)
    old = finite & (times_ms <= now_ms - HOURS_MAX * HOUR_MS)
    kept = finite & ~future & ~old
    times, numbers = times_ms[kept], values[kept]
    order = np.argsort(times, kind="stable")
    times, numbers = times[order], numbers[order]
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, bool)
    double = int(len(times) - last.sum())
    times, numbers = times[last], numbers[last]
    resets = 0
    if counter and len(numbers):
        steps = np.diff(numbers)
        resets = int((steps < 0).sum())
        # After a restart it counts from zero: what it shows is what was added.
        gained = np.where(steps < 0, numbers[1:], steps)
        numbers = gained / np.maximum(np.diff(times) / 1000, 1e-3)
        times = times[1:]
    findings = Findings(
        samples=count,
        double=double,
        from_the_future=int(future.sum()),
        too_old=int(old.sum()),
        not_numbers=int(count - finite.sum()),
        resets=resets,
    )
    if not len(times):
        return Hours(0, np.zeros(0), findings)
    hours = times // HOUR_MS
    start = int(hours[0])
    size = int(hours[-1]) - start + 1
    index = hours - start
    sums = np.bincount(index, numbers, size)
    counts = np.bincount(index, minlength=size)
    grid = np.full(size, np.nan)
    there = counts > 0
    grid[there] = sums[there] / counts[there]
    return Hours(
        start,
        grid,
        msgspec.structs.replace(
            findings, hours=size, hours_missing=int(size - there.sum()), longest_gap_hours=_longest_gap(there)
        ),
    )


def _longest_gap(there: NDArray[np.bool_]) -> int:
    places = np.flatnonzero(there)
    return int(np.diff(places).max() - 1) if len(places) > 1 else 0
