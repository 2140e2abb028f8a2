"""Rolling origins: how far off forecasts from the past were, beside the seasonal-naive baseline."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from penstock.forecasting.cleaning import Floats
from penstock.forecasting.models import project, seasonal_naive


class Backtest(msgspec.Struct, frozen=True):
    """Mean absolute errors over all origins, as a share of the mean of what happened."""

    origins: int
    horizon: int
    error: float
    baseline_error: float
    inside_80: float
    """The share of outcomes within the interval of 80 %."""
    width_80: float = 1.0
    """How many times as wide that interval would have had to be to hold 80 % of the outcomes."""

    @property
    def ratio(self) -> float:
        """Below 1 the model is better."""
        return self.error / self.baseline_error if self.baseline_error > 0 else (1.0 if self.error == 0 else np.inf)


def backtest(values: Floats, seasons: Sequence[int], horizon: int, origins: int) -> Backtest | None:
    """Forecasts from several points in the past; None if the series is too short for one."""
    longest = max((season for season in seasons if len(values) >= 2 * season + horizon), default=1)
    earliest = max(2 * longest, 4)
    step = max(1, horizon // 2)
    starts = [len(values) - horizon - number * step for number in range(origins)]
    starts = [start for start in starts if start >= earliest]
    if not starts:
        return None
    errors, naive, inside, scale = 0.0, 0.0, 0, 0.0
    widths: list[Floats] = []
    season = min(seasons) if seasons else 1
    for start in starts:
        known, happened = values[:start], values[start : start + horizon]
        made = project(known, seasons, horizon)
        errors += float(np.abs(made.mean - happened).sum())
        naive += float(np.abs(seasonal_naive(known, season, horizon) - happened).sum())
        inside += int(((happened >= made.low[80]) & (happened <= made.high[80])).sum())
        scale += float(np.abs(happened).sum())
        bound = np.where(happened > made.mean, made.high[80] - made.mean, made.mean - made.low[80])
        widths.append(np.abs(happened - made.mean) / np.maximum(bound, 1e-12))
    count = len(starts) * horizon
    scale = max(scale, 1e-12)
    width = float(np.quantile(np.concatenate(widths), 0.8))
    return Backtest(len(starts), horizon, errors / scale, naive / scale, inside / count, width)
