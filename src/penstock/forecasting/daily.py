"""Hours → days, and the shape of the day that is laid over a forecast of days."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from penstock.forecasting.cleaning import Floats, Hours

DAY_HOURS: Final = 24
WEEK_DAYS: Final = 7
HOURS_OF_A_DAY_MIN: Final = 6
"""A day with fewer hours is missing."""
EDGE_HOURS_MIN: Final = 18
"""The first and the last day are incomplete more often than not; with fewer hours they are left out."""
RATIO_MAX: Final = 50.0
"""Of a peak to its mean."""


class Days(msgspec.Struct, frozen=True):
    """Means by the day, in UTC, without gaps."""

    start: int
    """Days since 1970."""
    values: Floats
    filled: int
    """Days without enough samples: their values are those of their weekday, between what surrounds them."""
    profile: Floats
    """Seven days (from Monday) of 24 hours: how an hour compares with the mean of its day."""
    peak_ratio: Floats
    """For each weekday: how high the day's highest hour is above its mean, in nine days of ten."""


def to_days(hours: Hours) -> Days:
    """Days from hours. The mean of a day with missing hours allows for which hours are missing."""
    first_day = -(-hours.start // DAY_HOURS)
    lead = hours.start - (first_day - 1) * DAY_HOURS if hours.start % DAY_HOURS else 0
    padded = np.concatenate([np.full(lead, np.nan), hours.values])
    start = first_day - 1 if lead else first_day
    padded = np.concatenate([padded, np.full(-len(padded) % DAY_HOURS, np.nan)])
    table = padded.reshape(-1, DAY_HOURS)
    counts = np.isfinite(table).sum(axis=1)
    begin, end = 0, len(table)
    if end > begin and counts[0] < EDGE_HOURS_MIN:
        begin += 1
    if end > begin and counts[end - 1] < EDGE_HOURS_MIN:
        end -= 1
    table, counts, start = table[begin:end], counts[begin:end], start + begin
    if not len(table):
        flat = np.ones((WEEK_DAYS, DAY_HOURS))
        return Days(start, np.zeros(0), 0, flat, np.ones(WEEK_DAYS))
    weekday = weekdays(start, len(table))
    profile = _profile(table, counts, weekday)
    shape = profile[weekday]
    there = np.isfinite(table)
    weight = np.where(there, shape, 0.0).sum(axis=1) / DAY_HOURS
    total = np.where(there, table, 0.0).sum(axis=1) / DAY_HOURS
    means = np.where((counts >= HOURS_OF_A_DAY_MIN) & (weight > 1e-9), total / np.maximum(weight, 1e-9), np.nan)
    ratios = _peak_ratios(table, counts, means, weekday)
    filled = int(np.isnan(means).sum())
    return Days(start, fill(means), filled, profile, ratios)


def weekdays(start_day: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """0 is Monday; 1 January 1970 was a Thursday."""
    return (start_day + 3 + np.arange(count)) % WEEK_DAYS


def fill(values: Floats) -> Floats:
    """Gaps closed: the line between their ends, with the shape of the week."""
    there = np.isfinite(values)
    if there.all() or not there.any():
        return np.where(there, values, 0.0)
    index = np.arange(len(values))
    line = np.interp(index, index[there], values[there])
    week = np.ones(WEEK_DAYS)
    level = np.interp(index, index[there], values[there])
    smooth = np.convolve(level, np.ones(WEEK_DAYS) / WEEK_DAYS, mode="same")
    for day in range(WEEK_DAYS):
        chosen = there & (index % WEEK_DAYS == day) & (smooth > 1e-12)
        if chosen.sum() >= 2:
            week[day] = float(np.median(values[chosen] / smooth[chosen]))
    week /= max(float(week.mean()), 1e-12)
    base = np.interp(index, index[there], values[there] / week[index[there] % WEEK_DAYS])
    guessed = base * week[index % WEEK_DAYS] if np.isfinite(base).all() else line
    return np.where(there, values, guessed)


def _profile(table: Floats, counts: np.ndarray, weekday: np.ndarray) -> Floats:
    profile = np.ones((WEEK_DAYS, DAY_HOURS))
    whole = counts >= EDGE_HOURS_MIN
    means = np.nanmean(np.where(whole[:, None], table, 0.0), axis=1)
    usable = whole & (means > 1e-12)
    if not usable.any():
        return profile
    ratios = table[usable] / means[usable, None]
    everyday = _normal(np.nanmedian(ratios, axis=0))
    for day in range(WEEK_DAYS):
        chosen = weekday[usable] == day
        profile[day] = _normal(np.nanmedian(ratios[chosen], axis=0)) if chosen.sum() >= 2 else everyday
    return profile


def _normal(shape: Floats) -> Floats:
    shape = np.where(np.isfinite(shape), shape, 1.0)
    return shape / max(float(shape.mean()), 1e-12)


def _peak_ratios(table: Floats, counts: np.ndarray, means: Floats, weekday: np.ndarray) -> Floats:
    usable = (counts >= EDGE_HOURS_MIN) & (means > 1e-12)
    if not usable.any():
        return np.ones(WEEK_DAYS)
    ratios = np.clip(np.nanmax(table[usable], axis=1) / means[usable], 1.0, RATIO_MAX)
    every = float(np.quantile(ratios, 0.9))
    found = np.full(WEEK_DAYS, every)
    for day in range(WEEK_DAYS):
        chosen = weekday[usable] == day
        if chosen.sum() >= 4:
            found[day] = float(np.quantile(ratios[chosen], 0.9))
    return found
