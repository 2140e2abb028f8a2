"""`penstock forecast`: what load and resources will be, and when something runs out."""

from __future__ import annotations

import importlib.util
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock import install_command
from penstock.cli import exit_codes
from penstock.cli.carrying_out import parse_share, parse_span_s
from penstock.cli.connection import parse_settings
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import note, plural, print_json, print_line, print_table
from penstock.cli.pipeline_files import Master, require_spark
from penstock.cli.pipeline_work import with_spark

if TYPE_CHECKING:
    from penstock.forecasting.report import ForecastReport
    from penstock.forecasting.series import Options

EXAMPLES = examples(
    ("penstock forecast lake/metrics", "what runs out within 90 days, and when to order"),
    ("penstock forecast lake/metrics --horizon 180d --lead-time 60d --html forecast.html", "further, with charts"),
    ("penstock forecast lake/metrics --events sales.csv --drivers business.csv", "with events and business figures"),
    ("penstock forecast lake/metrics --threshold broker/disk_used_share=80% --json", "another limit; for a script"),
)
CALENDAR_BYTES_MAX = 1 << 20
CHARTS_MAX = 500
DAY_S = 86_400
_ASSUMPTIONS = "Assumptions of the scenarios"


def forecast(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", show_default=False, help="The Delta table of archived metrics.")
    ],
    horizon: Annotated[str, typer.Option(metavar="SPAN", help="How far to look ahead, in whole days.")] = "90d",
    lead_time: Annotated[
        str, typer.Option(metavar="SPAN", help="How long it takes from an order to capacity in use.")
    ] = "30d",
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND/METRIC=LIMIT", help="Another limit, such as broker/disk_used_share=80%. Repeatable."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND/METRIC", help="Forecast this metric, instead of the usual ones. Repeatable."),
    ] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="CSV", help="A calendar of events: name,first day,last day[,factor].")
    ] = None,
    drivers: Annotated[
        str, typer.Option(metavar="TABLE", help="Business figures to compare with: CSV or Delta, by `date`.")
    ] = "",
    peak: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR", rich_help_panel=_ASSUMPTIONS, help="Peak season; the highest week's if not given."
        ),
    ] = None,
    new_product: Annotated[
        str, typer.Option(metavar="SHARE", rich_help_panel=_ASSUMPTIONS, help="Load that a new product adds.")
    ] = "20%",
    new_product_in: Annotated[
        str, typer.Option(metavar="SPAN", rich_help_panel=_ASSUMPTIONS, help="When the new product starts.")
    ] = "30d",
    regions: Annotated[
        int, typer.Option(min=2, max=1000, rich_help_panel=_ASSUMPTIONS, help="Regions, of which one may be lost.")
    ] = 2,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with charts and tables.")] = None,
    svg: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a chart of each series into DIR.")] = None,
    full: Annotated[bool, typer.Option("--full", help="With --json: every value of every day, too.")] = False,
    check: Annotated[bool, typer.Option(help="Forecast the last weeks as well, and tell how far off that was.")] = True,
    master: Master = None,
    json: Json = False,
) -> None:
    """Forecast load and resources from archived metrics, and tell when thresholds are crossed and when to order.

    Trend, daily and weekly season come from the history; the yearly season from two years of it, or from a calendar of
    events. The dates are given for each scenario: best, expected and worst (bounds of 80 %), peak season, a new
    product, and the loss of a region.
    """
    require_spark()
    if importlib.util.find_spec("statsforecast") is None:
        raise CliError("forecasts need statsforecast, which is not installed", hint=install_command("forecast"))
    options = _options(horizon, lead_time, threshold, events, peak, new_product, new_product_in, regions, check=check)
    report = with_spark(lambda: _run(table, options, metric, drivers, master))
    _write(report, html, svg)
    if json:
        from penstock.forecasting.report import as_json

        print_json(as_json(report, full=full))
        return
    _show(report)


def _options(
    horizon: str,
    lead_time: str,
    threshold: list[str] | None,
    events: Path | None,
    peak: float | None,
    new_product: str,
    new_product_in: str,
    regions: int,
    *,
    check: bool,
) -> Options:
    from penstock.forecasting.crossing import LEAD_DAYS_MAX
    from penstock.forecasting.events import EventError, parse_events
    from penstock.forecasting.scenarios import ScenarioOptions
    from penstock.forecasting.series import HORIZON_DAYS_MAX, Options
    from penstock.pipeline.forecast import ForecastError, thresholds_from

    days = _days(horizon, "--horizon", 1, HORIZON_DAYS_MAX)
    try:
        scenarios = ScenarioOptions(
            peak_factor=peak,
            product_share=parse_share(new_product, "--new-product"),
            product_in_days=_days(new_product_in, "--new-product-in", 0, 3650),
            regions=regions,
        )
        calendar = parse_events(_calendar(events)) if events is not None else ()
        thresholds = thresholds_from(parse_settings(threshold or [], "--threshold"))
    except (EventError, ForecastError, ValueError) as error:
        raise CliError(str(error), exit_codes.USAGE) from None
    return Options(
        now_ms=time.time_ns() // 1_000_000,
        horizon_days=days,
        lead_days=_days(lead_time, "--lead-time", 0, LEAD_DAYS_MAX),
        thresholds=thresholds,
        scenarios=scenarios,
        events=calendar,
        check=check,
    )


def _run(table: str, options: Options, metric: list[str] | None, drivers: str, master: str | None) -> ForecastReport:
    from penstock.forecasting.report import sum_up
    from penstock.pipeline.forecast import DEFAULT_METRICS, ForecastError, forecast_table, read_drivers
    from penstock.pipeline.lake import read_table
    from penstock.pipeline.lake.errors import LakeError
    from penstock.spark import build_session

    spark = build_session("penstock: forecast", master=master)
    try:
        figures = read_drivers(spark, drivers) if drivers else None
        found = forecast_table(
            spark, read_table(spark, table), options, metrics=metric or DEFAULT_METRICS, drivers=figures
        )
    except (ForecastError, LakeError) as error:
        raise CliError(str(error), exit_codes.REFUSED) from None
    made_at = datetime.fromtimestamp(options.now_ms / 1000, UTC).isoformat(timespec="seconds")
    return sum_up(made_at, table, found)


def _write(report: ForecastReport, html: Path | None, svg: Path | None) -> None:
    from penstock.forecasting.charts import chart
    from penstock.forecasting.report import html_report

    try:
        if html is not None:
            html.write_text(html_report(report), encoding="utf-8")
            note(f"the report is in {html}")
        if svg is not None:
            svg.mkdir(parents=True, exist_ok=True)
            drawn = [one for one in report.series if one.mean][:CHARTS_MAX]
            for number, one in enumerate(drawn):
                safe = "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in one.title)[:120]
                (svg / f"{number:03d}-{safe}.svg").write_text(chart(one, standalone=True), encoding="utf-8")
            note(f"{plural(len(drawn), 'chart')} in {svg}")
    except OSError as error:
        raise CliError(f"cannot write {error.filename}: {error.strerror}") from None


def _show(report: ForecastReport) -> None:
    rows = [
        (one.title, crossing.scenario, crossing.threshold, crossing.crosses_on, crossing.order_by,
         "overdue" if crossing.overdue else None)
        for one in report.series
        for crossing in one.crossings
        if crossing.crosses_on is not None
    ]  # fmt: skip
    if rows:
        print_table("What runs out", ("resource", "scenario", "threshold", "crosses on", "order by", ""), rows)
    else:
        print_line("No threshold is crossed within the horizon, in any scenario.")
    if report.domains:
        growth = [(one.domain, one.series, f"{one.per_month:+.1%}") for one in report.domains]
        print_table("Growth per domain", ("domain", "topics", "a month"), growth)
    related = [(one.title, c.driver, c.text) for one in report.series for c in one.correlations[:1]]
    if related:
        print_table("Business drivers", ("series", "driver", "what it means"), related)
    checked = [one.check for one in report.series if one.check is not None]
    if checked:
        better = sum(one.error < one.baseline_error for one in checked)
        note(
            f"checked against the last weeks: better than a seasonal-naive forecast in {better:,} of "
            f"{plural(len(checked), 'series', 'series')}"
        )
    if report.skipped:
        note(f"{plural(len(report.skipped), 'series', 'series')} left out: {report.skipped[0].history.text}")


def _calendar(path: Path) -> list[str]:
    try:
        if path.stat().st_size > CALENDAR_BYTES_MAX:
            raise CliError(f"{path} is larger than any calendar", exit_codes.USAGE)
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}", exit_codes.USAGE) from None
    except UnicodeDecodeError:
        raise CliError(f"{path}: this is no text", exit_codes.USAGE) from None


def _days(text: str, option: str, least: int, most: int) -> int:
    days = parse_span_s(text, option) / DAY_S if text.strip() not in ("0", "0d") else 0.0
    if not least <= days <= most:
        raise CliError(f"{option} {text}: it is {least} to {most} days, such as 90d", exit_codes.USAGE)
    return round(days)
