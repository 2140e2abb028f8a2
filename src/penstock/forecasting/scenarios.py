"""Scenarios: the same forecast under other circumstances."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from penstock.forecasting.cleaning import Floats
from penstock.forecasting.daily import WEEK_DAYS
from penstock.forecasting.models import Projection

PEAK_FACTOR_DEFAULT: Final = 1.5
PRODUCT_SHARE_DEFAULT: Final = 0.2
REGIONS_DEFAULT: Final = 2

LOAD_METRICS: Final = frozenset(
    {
        "messages_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "cpu_share", "host_cpu_share", "disk_busy_share",
        "disk_iops", "disk_read_bytes_per_s", "disk_write_bytes_per_s", "network_in_bytes_per_s",
        "network_out_bytes_per_s", "network_share", "consume_per_s", "produce_per_s", "connections", "records_per_s",
    }
)  # fmt: skip
"""Metrics that follow the load of the moment. Others (disk space, lag) add up, and are not multiplied."""


class ScenarioOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's assumptions."""

    peak_factor: float | None = None
    """Load of the peak season as a multiple of the expected one; measured from the highest week if not given."""
    product_share: float = PRODUCT_SHARE_DEFAULT
    """What a new product adds, as a share of the load of today."""
    product_in_days: int = 30
    regions: int = REGIONS_DEFAULT
    """Regions that share the load evenly; when one is lost, the others take its part."""

    def __post_init__(self) -> None:
        if self.peak_factor is not None and not 0.1 <= self.peak_factor <= 100:
            raise ValueError(f"a peak factor of {self.peak_factor} is not between 0.1 and 100")
        if not 0 <= self.product_share <= 100:
            raise ValueError(f"a new product that adds {self.product_share} is not between 0 and 100")
        if not 2 <= self.regions <= 1000:
            raise ValueError(f"{self.regions} regions: to lose one, there must be 2 to 1,000")
        if not 0 <= self.product_in_days <= 3650:
            raise ValueError(f"{self.product_in_days} days is not between 0 and 3,650")


def scenarios_of(metric: str, made: Projection, history: Floats, options: ScenarioOptions) -> dict[str, Floats]:
    """Daily values to come, by scenario. Best and worst are the bounds of the interval of 80 %."""
    horizon = len(made.mean)
    found = {"best": made.low[80], "expected": made.mean, "worst": made.high[80]}
    if metric not in LOAD_METRICS:
        # What grows day by day: the growth is multiplied, not what is there already.
        base = float(history[-WEEK_DAYS:].mean()) if len(history) else 0.0
        growth = made.mean - base

        def bent(factors: Floats) -> Floats:
            return base + np.cumsum(np.diff(growth, prepend=0.0) * factors)
    else:

        def bent(factors: Floats) -> Floats:
            return made.mean * factors

    peak = options.peak_factor if options.peak_factor is not None else peak_factor(history)
    added = np.where(np.arange(horizon) >= options.product_in_days, 1 + options.product_share, 1.0)
    lost = options.regions / (options.regions - 1)
    found["peak season"] = bent(np.full(horizon, peak))
    found["new product"] = bent(added)
    found["loss of a region"] = bent(np.full(horizon, lost))
    return {name: np.maximum(values, 0.0) for name, values in found.items()}


def peak_factor(history: Floats) -> float:
    """The highest week beside the weeks around it; the default without a quarter of history."""
    weeks = len(history) // WEEK_DAYS
    if weeks < 13:
        return PEAK_FACTOR_DEFAULT
    means = history[-weeks * WEEK_DAYS :].reshape(weeks, WEEK_DAYS).mean(axis=1)
    trend = np.polyval(np.polyfit(np.arange(weeks), means, 1), np.arange(weeks))
    usable = trend > 1e-12
    return float(max(1.0, (means[usable] / trend[usable]).max())) if usable.any() else PEAK_FACTOR_DEFAULT
