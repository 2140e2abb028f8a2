"""Generated histories: what a metric may look like."""

from __future__ import annotations

import numpy as np

from penstock.forecasting.cleaning import HOUR_MS, Floats

NOW_MS = 1_788_220_800_000
"""A midnight in UTC: 2026-09-01."""
DAY_MS = 24 * HOUR_MS
IDENTITY = {"cluster": "c", "kind": "broker", "name": "1", "metric": "host_cpu_share", "unit": "share"}


def load(
    days: int,
    *,
    level: float = 0.3,
    growth_per_day: float = 0.0,
    daily: float = 0.3,
    weekly: float = 0.2,
    noise: float = 0.02,
    seed: int = 1,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats]:
    """Hourly samples up to NOW_MS: growth, the waves of a day and of a week, and noise."""
    hours = np.arange(days * 24)
    times = NOW_MS - (days * 24 - hours) * HOUR_MS
    rng = np.random.default_rng(seed)
    values = (
        level
        * (1 + growth_per_day * hours / 24)
        * (1 + daily * np.sin(2 * np.pi * hours / 24))
        * (1 + weekly * np.sin(2 * np.pi * hours / 168))
        * np.exp(rng.normal(0, noise, len(hours)))
    )
    return times, values
