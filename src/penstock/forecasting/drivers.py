"""Correlation with figures of the business: orders, customers, visits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from penstock.forecasting.cleaning import Floats

WEEKS_MIN: Final = 8
LAG_WEEKS_MAX: Final = 8
DRIVERS_MAX: Final = 100


class Correlation(msgspec.Struct, frozen=True):
    driver: str
    r: float
    """Of weekly changes: two figures that merely both grow are not related."""
    lag_weeks: int
    """How long the load follows the driver."""
    elasticity: float
    """By how many per cent the load changes when the driver changes by one per cent."""
    weeks: int
    text: str


def correlate(start_day: int, values: Floats, drivers: Mapping[str, tuple[int, Floats]]) -> tuple[Correlation, ...]:
    """Each driver beside the series, the strongest first. Days without a figure are NaN."""
    found = [one for name, (start, days) in drivers.items() if (one := _one(name, start_day, values, start, days))]
    return tuple(sorted(found, key=lambda one: -abs(one.r)))


def _one(name: str, start_day: int, values: Floats, driver_start: int, driver: Floats) -> Correlation | None:
    begin, end = max(start_day, driver_start), min(start_day + len(values), driver_start + len(driver))
    weeks = (end - begin) // 7
    if weeks < WEEKS_MIN + 1:
        return None
    load = _weeks(values[end - 7 * weeks - start_day : end - start_day], weeks)
    cause = _weeks(driver[end - 7 * weeks - driver_start : end - driver_start], weeks)
    best: tuple[float, int, float, int] | None = None
    for lag in range(min(LAG_WEEKS_MAX, weeks - WEEKS_MIN - 1) + 1):
        later, earlier = np.diff(load[lag:]), np.diff(cause[: len(cause) - lag])
        usable = np.isfinite(later) & np.isfinite(earlier)
        if usable.sum() < WEEKS_MIN or later[usable].std() < 1e-12 or earlier[usable].std() < 1e-12:
            continue
        r = float(np.corrcoef(later[usable], earlier[usable])[0, 1])
        slope = float(np.polyfit(earlier[usable], later[usable], 1)[0])
        if best is None or abs(r) > abs(best[0]) + 0.02:  # a longer lag must be clearly better
            best = (r, lag, slope, int(usable.sum()))
    if best is None:
        return None
    r, lag, slope, count = best
    strength = "strong" if abs(r) >= 0.7 else "moderate" if abs(r) >= 0.4 else "weak"
    text = f"{strength} (r = {r:.2f} over {count} weeks)"
    if abs(r) >= 0.4:
        text += f": 1 % more {name} means {slope:.1f} % more load" + (f" {lag} weeks later" if lag else "")
    return Correlation(name, r, lag, slope, count, text)


def _weeks(values: Floats, weeks: int) -> Floats:
    """Logarithms of weekly means, so that differences are growth."""
    with np.errstate(all="ignore"):
        means = np.asarray(np.nanmean(values.reshape(weeks, 7), axis=1), np.float64)
        return np.where(means > 0, np.log(np.maximum(means, 1e-300)), np.nan)
