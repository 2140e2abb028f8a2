"""The forecast of a regular series: the mean of two models, with intervals."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from penstock.forecasting.cleaning import Floats

LEVELS: Final = (80, 95)
"""Per cent of the outcomes that lie within an interval."""
Z: Final = {80: 1.2816, 95: 1.9600}
THETA_MIN: Final = 10


class Projection(msgspec.Struct, frozen=True):
    """Values to come, and the bounds of each interval."""

    mean: Floats
    low: dict[int, Floats]
    high: dict[int, Floats]


def project(values: Floats, seasons: Sequence[int], horizon: int) -> Projection:
    """`horizon` values to come of a series without gaps; `seasons` are lengths that it has seen twice at least."""
    assert horizon > 0
    assert len(values) > 0
    assert np.isfinite(values).all()
    usable = [season for season in seasons if len(values) >= 2 * season]
    if len(values) < THETA_MIN or np.ptp(values) <= 1e-9 * max(1.0, float(np.abs(values).max())):
        return _drift(values, horizon)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = [one for model in _models(values, usable) if (one := _run(model, values, horizon)) is not None]
    if not made:
        return _drift(values, horizon)
    return Projection(
        np.mean([one.mean for one in made], axis=0),
        {level: np.mean([one.low[level] for one in made], axis=0) for level in LEVELS},
        {level: np.mean([one.high[level] for one in made], axis=0) for level in LEVELS},
    )


def widened(made: Projection, factor: float) -> Projection:
    """With intervals that are so many times as wide."""
    return Projection(
        made.mean,
        {level: made.mean - factor * (made.mean - one) for level, one in made.low.items()},
        {level: made.mean + factor * (one - made.mean) for level, one in made.high.items()},
    )


def seasonal_naive(values: Floats, season: int, horizon: int) -> Floats:
    """The baseline: the last season again and again."""
    last = values[-season:] if len(values) >= season else values[-1:]
    return np.resize(last, horizon)


def _models(values: Floats, seasons: Sequence[int]) -> list[Any]:
    from statsforecast.models import MSTL, AutoETS, DynamicOptimizedTheta

    trend = AutoETS(model="ZZN")
    if not seasons:
        return [DynamicOptimizedTheta(season_length=1), trend]
    # A theta model knows one season: the longest that matters. The decomposition takes them all.
    theta = DynamicOptimizedTheta(season_length=seasons[0])
    return [theta, MSTL(season_length=list(seasons), trend_forecaster=trend)] if len(seasons) == 1 else [
        MSTL(season_length=list(seasons), trend_forecaster=trend),
        MSTL(season_length=list(seasons), trend_forecaster=DynamicOptimizedTheta(season_length=1)),
    ]  # fmt: skip


def _run(model: Any, values: Floats, horizon: int) -> Projection | None:
    try:
        found = model.forecast(y=values.astype(np.float64), h=horizon, level=list(LEVELS))
    except Exception:  # a model that does not converge on this series: the other one stands alone
        return None
    mean = np.asarray(found["mean"], np.float64)
    low = {level: np.asarray(found[f"lo-{level}"], np.float64) for level in LEVELS}
    high = {level: np.asarray(found[f"hi-{level}"], np.float64) for level in LEVELS}
    if not all(np.isfinite(one).all() for one in (mean, *low.values(), *high.values())):
        return None
    return Projection(mean, low, high)


def _drift(values: Floats, horizon: int) -> Projection:
    """A line through the first and the last value; its error grows as that of a random walk."""
    steps = np.diff(values)
    slope = float(steps.mean()) if len(steps) else 0.0
    spread = float(steps.std()) if len(steps) > 1 else abs(float(values[-1])) * 0.1
    ahead = np.arange(1, horizon + 1)
    mean = values[-1] + slope * ahead
    error = spread * np.sqrt(ahead * (1 + ahead / max(len(steps), 1)))
    return Projection(
        mean,
        {level: mean - Z[level] * error for level in LEVELS},
        {level: mean + Z[level] * error for level in LEVELS},
    )
