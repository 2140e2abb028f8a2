"""The forecast of one series, from samples to dates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.forecasting.backtest import Backtest, backtest
from penstock.forecasting.cleaning import HOUR_MS, Findings, Floats, to_hours
from penstock.forecasting.crossing import LEAD_DAYS_DEFAULT, THRESHOLDS, Crossing, Threshold, crossing, iso
from penstock.forecasting.daily import DAY_HOURS, WEEK_DAYS, Days, to_days, weekdays
from penstock.forecasting.domains import monthly
from penstock.forecasting.drivers import Correlation, correlate
from penstock.forecasting.events import Event, factors_ahead, measure
from penstock.forecasting.history import History, assess
from penstock.forecasting.models import LEVELS, Projection, project, widened
from penstock.forecasting.scenarios import ScenarioOptions, scenarios_of

DAY_MS: Final = DAY_HOURS * HOUR_MS
HORIZON_DAYS_DEFAULT: Final = 90
HORIZON_DAYS_MAX: Final = 730
SHOWN_DAYS: Final = 400
"""History that a result carries, for charts."""
CHECKED_DAYS: Final = 28
WIDENED_MAX: Final = 4.0
COUNTERS: Final = frozenset({"end_offset"})
"""Metrics that only grow, and start again: forecast as rates."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; the same for all series."""

    now_ms: int
    horizon_days: int = HORIZON_DAYS_DEFAULT
    lead_days: int = LEAD_DAYS_DEFAULT
    thresholds: dict[str, float] = {}
    """By `kind/metric`, over the table's own."""
    scenarios: ScenarioOptions = ScenarioOptions()
    events: tuple[Event, ...] = ()
    check: bool = True
    """Forecast the last weeks from what was known before them, and report the error."""

    def threshold(self, kind: str, metric: str) -> Threshold | None:
        own = self.thresholds.get(f"{kind}/{metric}")
        known = THRESHOLDS.get((kind, metric))
        if own is None:
            return known
        return Threshold(own, True if known is None else known.of_peak, "given by the user")


class SeriesForecast(msgspec.Struct, frozen=True, kw_only=True):
    """One series' result. Lists have a value for each day."""

    cluster: str
    kind: str
    name: str
    metric: str
    unit: str
    history: History
    findings: Findings
    past_start: str | None = None
    past: list[float] = []
    start: str | None = None
    mean: list[float] = []
    low: dict[int, list[float]] = {}
    high: dict[int, list[float]] = {}
    peak: list[float] = []
    """The highest hour of each day, expected."""
    week: list[float] = []
    """The first seven days by the hour."""
    scenarios: dict[str, list[float]] = {}
    crossings: list[Crossing] = []
    growth_per_month: float = 0.0
    events: dict[str, float] = {}
    correlations: tuple[Correlation, ...] = ()
    check: Backtest | None = None

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name} {self.metric}" if self.name else f"{self.kind} {self.metric}"


def forecast_series(
    identity: Mapping[str, str],
    times_ms: NDArray[np.int64],
    values: Floats,
    options: Options,
    drivers: Mapping[str, tuple[int, Floats]] | None = None,
) -> SeriesForecast:
    """`identity` has cluster, kind, name, metric and unit. Never fails for what the samples are like."""
    kind, metric = identity["kind"], identity["metric"]
    hours = to_hours(times_ms, values, options.now_ms, counter=metric in COUNTERS)
    days = to_days(hours)
    history = assess(days, hours.findings)
    nothing = SeriesForecast(
        cluster=identity["cluster"],
        kind=kind,
        name=identity["name"],
        metric=metric,
        unit=identity["unit"],
        history=history,
        findings=hours.findings,
    )
    if not history.is_enough:
        return nothing
    past, measured = measure(days.start, days.values, options.events) if options.events else (days.values, {})
    today = options.now_ms // DAY_MS
    start = days.start + len(days.values)
    stale = max(0, int(today) - start)
    horizon = min(options.horizon_days + stale, max(history.horizon_days_max, 1), HORIZON_DAYS_MAX)
    checked = min(CHECKED_DAYS, len(past) // 4)
    check = backtest(past, history.seasons, checked, 1) if options.check and checked >= WEEK_DAYS else None
    made = project(past, history.seasons, horizon)
    if check is not None:
        # Models know their noise, but not that the world changes: intervals that were too narrow are widened.
        made = widened(made, min(max(check.width_80, 1.0), WIDENED_MAX))
    made = _bounded(made, factors_ahead(start, horizon, options.events, measured))
    ratios = days.peak_ratio[weekdays(start, horizon)]
    bent = scenarios_of(metric, made, days.values, options.scenarios)
    return msgspec.structs.replace(
        nothing,
        past_start=iso(max(days.start, start - SHOWN_DAYS)),
        past=_short(days.values[-SHOWN_DAYS:]),
        start=iso(start),
        mean=_short(made.mean),
        low={level: _short(made.low[level]) for level in LEVELS},
        high={level: _short(made.high[level]) for level in LEVELS},
        peak=_short(made.mean * ratios),
        week=_short(_hours(made.mean, days, start)),
        scenarios={name: _short(one) for name, one in bent.items()},
        crossings=_crossings(options, kind, metric, bent, ratios, start, int(today)),
        growth_per_month=monthly(days.values),
        events=measured,
        correlations=correlate(days.start, days.values, drivers) if drivers else (),
        check=check,
    )


def _bounded(made: Projection, factors: Floats) -> Projection:
    """With the effect of events, and nothing below zero: no metric of the monitor is negative."""
    return Projection(
        np.maximum(made.mean, 0.0) * factors,
        {level: np.maximum(one, 0.0) * factors for level, one in made.low.items()},
        {level: np.maximum(one, 0.0) * factors for level, one in made.high.items()},
    )


def _crossings(
    options: Options, kind: str, metric: str, bent: Mapping[str, Floats], ratios: Floats, start: int, today: int
) -> list[Crossing]:
    threshold = options.threshold(kind, metric)
    if threshold is None:
        return []
    return [
        crossing(
            name,
            values * ratios if threshold.of_peak else values,
            start,
            threshold.value,
            options.lead_days,
            today,
        )
        for name, values in bent.items()
    ]


def _hours(mean: Floats, days: Days, start: int) -> Floats:
    """The shape of the day on the first week."""
    first = mean[:WEEK_DAYS]
    return (first[:, None] * days.profile[weekdays(start, len(first))]).ravel()


def _short(values: Floats) -> list[float]:
    """Seven digits: results are stored and sent as text."""
    return [float(f"{value:.7g}") for value in values]
