"""Thresholds, the dates at which they are crossed, and the dates at which to order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Final

import msgspec
import numpy as np

from penstock.forecasting.cleaning import Floats
from penstock.forecasting.events import EPOCH

LEAD_DAYS_DEFAULT: Final = 30
LEAD_DAYS_MAX: Final = 3650


class Threshold(msgspec.Struct, frozen=True):
    value: float
    of_peak: bool
    """Whether the day's peak must stay below it, or its mean."""
    source: str


THRESHOLDS: Final[Mapping[tuple[str, str], Threshold]] = {
    ("broker", "disk_used_share"): Threshold(0.70, False, "002: disk at 70 %"),
    ("broker", "host_cpu_share"): Threshold(0.70, True, "002: CPU sustained at 70 %"),
    ("broker", "network_share"): Threshold(0.70, True, "Penstock, as for CPU"),
    ("broker", "memory_share"): Threshold(0.85, True, "Penstock: the page cache needs the rest"),
    ("broker", "disk_busy_share"): Threshold(0.70, True, "Penstock, as for CPU"),
    ("broker", "partitions"): Threshold(4000, False, "000: partitions per broker"),
    ("group", "lag_s"): Threshold(120, True, "002: lag of two minutes: scale the consumers"),
}


class Crossing(msgspec.Struct, frozen=True):
    """When a scenario crosses a threshold; None: not within the horizon."""

    scenario: str
    threshold: float
    crosses_on: str | None
    order_by: str | None
    overdue: bool
    """The day to order has passed."""


def crossing(scenario: str, values: Floats, start_day: int, threshold: float, lead_days: int, today: int) -> Crossing:
    """The first day from which the values stay at or above the threshold for a week, or to the end."""
    above = values >= threshold
    first: int | None = None
    for index in np.flatnonzero(above):
        following = above[index : index + 7]
        # One day above it is an outlier of the season; half a week is a trend.
        if following.mean() >= 0.5:
            first = int(index)
            break
    if first is None:
        return Crossing(scenario, threshold, None, None, False)
    day = start_day + first
    order = day - lead_days
    return Crossing(scenario, threshold, iso(day), iso(order), order < today)


def iso(day: int) -> str:
    return date.fromordinal(day + EPOCH).isoformat()
