"""All results: summed up, as JSON for other programs, and as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

import msgspec
import numpy as np

from penstock.forecasting.charts import STYLE, chart, figure
from penstock.forecasting.domains import Growth, domain_of, growth
from penstock.forecasting.series import SeriesForecast
from penstock.planning.report import STYLE as PAGE_STYLE

CHARTS_MAX: Final = 60
ROWS_MAX: Final = 500
DOMAIN_METRIC: Final = "bytes_in_per_s"


class ForecastReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of `penstock forecast` found."""

    made_at: str
    table: str
    series: list[SeriesForecast]
    domains: list[Growth]

    @property
    def skipped(self) -> list[SeriesForecast]:
        """Series with too little history."""
        return [one for one in self.series if not one.history.is_enough]


def sum_up(made_at: str, table: str, series: Iterable[SeriesForecast]) -> ForecastReport:
    ordered = sorted(series, key=_urgency)
    topics = [one for one in ordered if one.kind == "topic" and one.metric == DOMAIN_METRIC and one.mean]
    names = sorted({domain_of(one.name) for one in topics})
    domains = []
    for name in names:
        members = [one for one in topics if domain_of(one.name) == name]
        domains.append(growth(name, [np.array(one.past) for one in members], [np.array(one.mean) for one in members]))
    domains.sort(key=lambda one: -one.now)
    return ForecastReport(made_at=made_at, table=table, series=ordered, domains=domains)


def as_json(report: ForecastReport, *, full: bool = False) -> dict[str, object]:
    """For scripts and `penstock advise`: dates, growth and errors; with `full` every value."""
    if full:
        whole: dict[str, object] = msgspec.to_builtins(report)
        return whole
    return {
        "made_at": report.made_at,
        "table": report.table,
        "dates": [
            {
                "cluster": one.cluster, "kind": one.kind, "name": one.name, "metric": one.metric, "unit": one.unit,
                "scenario": crossing.scenario, "threshold": crossing.threshold, "crosses_on": crossing.crosses_on,
                "order_by": crossing.order_by, "overdue": crossing.overdue,
            }
            for one in report.series
            for crossing in one.crossings
            if crossing.crosses_on is not None
        ],
        "series": [
            {
                "cluster": one.cluster, "kind": one.kind, "name": one.name, "metric": one.metric, "unit": one.unit,
                "history": one.history.text, "growth_per_month": round(one.growth_per_month, 4),
                "now": one.past[-1] if one.past else None, "then": one.mean[-1] if one.mean else None,
                "from": one.start, "days": len(one.mean),
                "error": None if one.check is None else round(one.check.error, 4),
                "baseline_error": None if one.check is None else round(one.check.baseline_error, 4),
                "drivers": [{"driver": c.driver, "r": round(c.r, 3), "text": c.text} for c in one.correlations],
                "events": {name: round(factor, 3) for name, factor in one.events.items()},
            }
            for one in report.series
        ],
        "domains": [msgspec.to_builtins(one) for one in report.domains],
    }  # fmt: skip


def html_report(report: ForecastReport) -> str:
    """The whole page, with charts inline."""
    crossing = [
        (one.title, c.scenario, figure(c.threshold), c.crosses_on, c.order_by + (" (overdue)" if c.overdue else ""))
        for one in report.series
        for c in one.crossings
        if c.crosses_on is not None and c.order_by is not None
    ]
    shown = [one for one in report.series if one.mean][:CHARTS_MAX]
    parts = [
        "<h1>Forecast</h1>",
        f'<p class="muted">{escape(report.table)}, {escape(report.made_at)}, by <code>penstock forecast</code></p>',
        "<h2>What runs out, and when to order</h2>",
        _table(("resource", "scenario", "threshold", "crosses on", "order by"), crossing)
        if crossing
        else "<p>No threshold is crossed within the horizon, in any scenario.</p>",
        "<h2>Growth per domain</h2>",
        _table(
            ("domain", "topics", "bytes/s now", "at the end", "a month"),
            [(g.domain, g.series, figure(g.now), figure(g.then), f"{g.per_month:+.1%}") for g in report.domains],
        ),
        "<h2>Business drivers</h2>",
        _table(
            ("series", "driver", "what it means"),
            [(one.title, c.driver, c.text) for one in report.series for c in one.correlations[:2]],
        ),
        "<h2>Series</h2>",
        *(_section(one) for one in shown),
    ]
    if len(report.series) > len(shown):
        parts.append(f"<p>{len(report.series) - len(shown):,} more series are in the JSON output.</p>")
    if report.skipped:
        parts += [
            "<h2>Too little history</h2>",
            _table(("series", "why"), [(s.title, s.history.text) for s in report.skipped]),
        ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Forecast</title><style>{PAGE_STYLE}{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _section(one: SeriesForecast) -> str:
    notes = [one.history.text]
    if one.check is not None:
        notes.append(
            f"forecast of the last {one.check.horizon} days was off by {one.check.error:.1%}, "
            f"the seasonal-naive baseline by {one.check.baseline_error:.1%}"
        )
    notes += [f"{name}: {factor:.2f} times the usual load" for name, factor in one.events.items()]
    found = one.findings
    for count, text in (
        (found.from_the_future, "samples were from the future (a clock was wrong)"),
        (found.resets, "restarts of a counter"),
        (found.hours_missing, "hours without a sample"),
    ):
        if count:
            notes.append(f"{count:,} {text}")
    return chart(one) + f'<p class="muted">{escape("; ".join(notes))}</p>'


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return '<p class="muted">none</p>'
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows[:ROWS_MAX]
    )
    more = f'<p class="muted">{len(rows) - ROWS_MAX:,} more</p>' if len(rows) > ROWS_MAX else ""
    return f"<table><tr>{names}</tr>{lines}</table>{more}"


def _urgency(one: SeriesForecast) -> tuple[str, str, str, str]:
    """What must be ordered first comes first."""
    dates = [c.order_by for c in one.crossings if c.order_by is not None and c.scenario == "expected"]
    others = [c.order_by for c in one.crossings if c.order_by is not None]
    return (min(dates, default="9999"), min(others, default="9999"), one.kind, one.name + one.metric)
