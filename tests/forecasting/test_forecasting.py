"""The core of the forecast: arrays in, results out."""

from __future__ import annotations

from datetime import date

import msgspec
import numpy as np
import pytest

from forecasting.histories import DAY_MS, IDENTITY, NOW_MS, load
from penstock.forecasting.backtest import backtest
from penstock.forecasting.charts import chart
from penstock.forecasting.cleaning import HOUR_MS, to_hours
from penstock.forecasting.crossing import crossing
from penstock.forecasting.daily import to_days
from penstock.forecasting.domains import domain_of, growth, monthly
from penstock.forecasting.drivers import correlate
from penstock.forecasting.events import EPOCH, EventError, factors_ahead, measure, parse_events
from penstock.forecasting.models import project, seasonal_naive
from penstock.forecasting.report import as_json, html_report, sum_up
from penstock.forecasting.scenarios import ScenarioOptions
from penstock.forecasting.series import Options, SeriesForecast, forecast_series
from penstock.monitor.samples import METRICS

TODAY = NOW_MS // DAY_MS
OPTIONS = Options(now_ms=NOW_MS, horizon_days=60)


def forecast(days: int, options: Options = OPTIONS, **more: float) -> SeriesForecast:
    return forecast_series(IDENTITY, *load(days, **more), options)  # type: ignore[arg-type]


# Samples


def test_samples_of_a_wrong_clock_double_ones_and_those_that_are_no_numbers_are_left_out_and_counted() -> None:
    times, values = load(10)
    times = np.concatenate([times, times[:5], [NOW_MS + 400 * DAY_MS, NOW_MS - 9_000 * DAY_MS], times[:3]])
    values = np.concatenate([values, values[:5], [1e9, 1e9], [np.nan, np.inf, -np.inf]])
    hours = to_hours(times, values, NOW_MS)
    found = hours.findings
    assert (found.double, found.from_the_future, found.too_old, found.not_numbers) == (5, 1, 1, 3)
    assert (found.hours, found.hours_missing) == (240, 0)
    assert hours.values.max() < 1


def test_samples_that_come_out_of_order_are_put_in_order() -> None:
    times, values = load(10)
    order = np.random.default_rng(3).permutation(len(times))
    np.testing.assert_array_equal(to_hours(times[order], values[order], NOW_MS).values, values)


def test_a_counter_becomes_a_rate_across_its_restarts() -> None:
    times = NOW_MS - np.arange(48)[::-1] * HOUR_MS
    counter = np.cumsum(np.full(48, 3600.0 * 5))
    counter[20:] -= counter[19]  # it began again
    hours = to_hours(times, counter, NOW_MS, counter=True)
    assert hours.findings.resets == 1
    np.testing.assert_allclose(hours.values, 5.0)


def test_a_day_with_missing_hours_has_the_mean_of_the_whole_day() -> None:
    """By night the load is low: a day of which only the night was seen must not look quiet."""
    times, values = load(40, noise=0.0, weekly=0.0)
    gone = (times // DAY_MS == TODAY - 10) & (times % DAY_MS >= 8 * HOUR_MS)
    days = to_days(to_hours(times[~gone], values[~gone], NOW_MS))
    assert days.filled == 0
    np.testing.assert_allclose(days.values, days.values[0], rtol=1e-6)


def test_days_that_are_missing_get_the_values_of_their_weekday() -> None:
    times, values = load(70, noise=0.0, daily=0.0)
    gone = (times // DAY_MS >= TODAY - 30) & (times // DAY_MS < TODAY - 20)
    whole, gappy = (to_days(to_hours(times[kept], values[kept], NOW_MS)) for kept in (times > 0, ~gone))
    assert (gappy.filled, len(gappy.values)) == (10, len(whole.values))
    np.testing.assert_allclose(gappy.values, whole.values, rtol=0.03)


# How much history there is


@pytest.mark.parametrize(
    ("days", "seasons", "text"),
    [
        (2, (), "a forecast needs 3 at least"),
        (9, (), "no weekly season"),
        (60, (7,), "a year of history is advised"),
        (400, (7,), "no yearly season (that needs two years, or events)"),
        (740, (7, 365), "weekly and yearly season"),
    ],
)
def test_the_history_decides_what_is_possible_and_says_so(days: int, seasons: tuple[int, ...], text: str) -> None:
    found = forecast(days, Options(now_ms=NOW_MS, horizon_days=30, check=False))
    assert found.history.seasons == seasons
    assert text in found.history.text
    assert len(found.mean) == (0 if days < 3 else min(30, found.history.days))


def test_no_history_and_mostly_gaps_give_no_forecast_and_the_reason() -> None:
    empty = forecast_series(IDENTITY, np.zeros(0, np.int64), np.zeros(0), OPTIONS)
    assert (empty.mean, empty.crossings) == ([], [])
    times, values = load(100)
    rare = times // DAY_MS % 10 == 0
    assert "no forecast is possible" in forecast_series(IDENTITY, times[rare], values[rare], OPTIONS).history.text


# The forecast


def test_growth_and_the_week_are_continued() -> None:
    found = forecast(200, growth_per_day=0.005, noise=0.01)
    truth = to_days(to_hours(*load(260, growth_per_day=0.005, noise=0.01, seed=2), NOW_MS)).values
    # The generated series ends at NOW_MS: its first 200 days are shaped like the history, the rest like what comes.
    np.testing.assert_allclose(found.mean, truth[200:], rtol=0.06)
    inside = [low <= value <= high for low, value, high in zip(found.low[95], truth[200:], found.high[95], strict=True)]
    assert np.mean(inside) > 0.8
    assert found.growth_per_month == pytest.approx(0.105, abs=0.04)


def test_hours_have_the_shape_of_the_day() -> None:
    week = np.array(forecast(60, noise=0.0).week).reshape(7, 24)
    assert week.argmax(axis=1).tolist() == [6] * 7
    assert week.max() / week.mean() == pytest.approx(1.3 * 1.2, rel=0.1)


def test_a_constant_series_and_one_of_zeros_are_forecast_as_they_are() -> None:
    for level in (0.0, 5.0):
        made = project(np.full(50, level), (7,), 20)
        np.testing.assert_allclose(made.mean, level)
        np.testing.assert_allclose(made.high[95], level, atol=1e-9)


def test_a_rolling_origin_compares_with_the_seasonal_naive_baseline() -> None:
    days = to_days(to_hours(*load(250, growth_per_day=0.004), NOW_MS)).values
    found = backtest(days, (7,), 28, 3)
    assert found is not None
    assert (found.origins, found.horizon) == (3, 28)
    assert found.error < found.baseline_error
    assert backtest(days[:10], (7,), 28, 3) is None
    np.testing.assert_array_equal(seasonal_naive(np.arange(10.0), 3, 5), [7, 8, 9, 7, 8])


# Dates


def test_the_date_of_a_threshold_and_the_date_to_order() -> None:
    found = forecast(200, growth_per_day=0.004, weekly=0.0, noise=0.005)
    dates = {one.scenario: one for one in found.crossings}
    assert list(dates) == ["best", "expected", "worst", "peak season", "new product", "loss of a region"]
    # The peak of a day is 1.3 times its mean, and 0.7 is the limit: 0.3 · (1 + 0.004 d) · 1.3 = 0.7 at d = 199.
    expected = date.fromisoformat(dates["expected"].crosses_on or "")
    assert abs(expected.toordinal() - EPOCH - TODAY) <= 12
    assert dates["expected"].overdue
    assert dates["loss of a region"].crosses_on is not None
    assert dates["loss of a region"].crosses_on <= (dates["expected"].crosses_on or "")
    order = date.fromisoformat(dates["expected"].order_by or "")
    assert (expected - order).days == OPTIONS.lead_days


def test_one_day_above_the_threshold_is_not_a_crossing_and_never_is_none() -> None:
    values = np.full(30, 0.5)
    values[10] = 0.9
    assert crossing("expected", values, TODAY, 0.7, 30, TODAY).crosses_on is None
    values[15:] = 0.9
    found = crossing("expected", values, TODAY, 0.7, 10, TODAY)
    assert date.fromisoformat(found.crosses_on or "").toordinal() - EPOCH == TODAY + 15
    assert not found.overdue


def test_the_users_threshold_goes_before_the_tables() -> None:
    low = forecast(60, Options(now_ms=NOW_MS, thresholds={"broker/host_cpu_share": 0.05}, check=False))
    assert all(one.threshold == 0.05 and one.overdue for one in low.crossings)
    high = forecast(60, Options(now_ms=NOW_MS, thresholds={"broker/host_cpu_share": 5.0}, check=False))
    assert all(one.crosses_on is None for one in high.crossings)


def test_every_threshold_is_of_a_metric_that_the_monitor_writes() -> None:
    from penstock.forecasting.crossing import THRESHOLDS
    from penstock.forecasting.scenarios import LOAD_METRICS
    from penstock.pipeline.forecast import DEFAULT_METRICS

    known = {(str(kind), name) for kind, name in METRICS}
    assert set(THRESHOLDS) <= known
    assert {tuple(one.split("/")) for one in DEFAULT_METRICS} <= known
    assert {name for _, name in known} >= LOAD_METRICS


# Scenarios, events, drivers, domains


def test_scenarios_multiply_load_but_only_the_growth_of_what_adds_up() -> None:
    options = Options(
        now_ms=NOW_MS, horizon_days=60, check=False,
        scenarios=ScenarioOptions(peak_factor=2.0, product_share=0.5, product_in_days=10, regions=3),
    )  # fmt: skip
    loaded = forecast_series(IDENTITY, *load(200), options)
    mean = np.array(loaded.mean)
    np.testing.assert_allclose(loaded.scenarios["peak season"], 2 * mean, rtol=1e-5)
    np.testing.assert_allclose(loaded.scenarios["loss of a region"], 1.5 * mean, rtol=1e-5)
    np.testing.assert_allclose(loaded.scenarios["new product"], np.r_[mean[:10], 1.5 * mean[10:]], rtol=1e-5)
    disk = {**IDENTITY, "metric": "disk_used_share"}
    stored = forecast_series(disk, *load(200, daily=0, weekly=0, growth_per_day=0.004, noise=0.001), options)
    now, grown = stored.past[-1], stored.mean[-1] - stored.past[-1]
    assert stored.scenarios["peak season"][-1] == pytest.approx(now + 2 * grown, rel=0.1)
    with pytest.raises(ValueError, match="regions"):
        ScenarioOptions(regions=1)


def test_an_event_is_measured_where_it_happened_and_laid_on_where_it_comes_again() -> None:
    times, values = load(120, noise=0.0)
    sale = (times // DAY_MS >= TODAY - 40) & (times // DAY_MS < TODAY - 37)
    values = np.where(sale, values * 3, values)
    first, again = date.fromordinal(TODAY - 40 + EPOCH), date.fromordinal(TODAY + 10 + EPOCH)
    lines = ["name,first day,last day,factor", f"sale,{first},{date.fromordinal(TODAY - 38 + EPOCH)}", "# a remark", "",
             f"sale,{again},{again}", f"launch,{again},{again},2"]  # fmt: skip
    events = parse_events(lines)
    found = forecast_series(
        IDENTITY, times, values, Options(now_ms=NOW_MS, horizon_days=30, events=events, check=False)
    )
    assert found.events == {"sale": pytest.approx(3.0, rel=0.05)}
    usual = found.mean[10 + 7]
    assert found.mean[10] / usual == pytest.approx(3.0 * 2.0, rel=0.1)
    start = TODAY - 120
    plain, factors = measure(start, to_days(to_hours(times, values, NOW_MS)).values, events)
    assert plain.max() < 0.4
    assert factors_ahead(TODAY, 30, events, {})[10] == 2.0, "without a measurement the user's own factor counts"
    assert factors["sale"] > 2


@pytest.mark.parametrize(
    "line", ["sale", "sale,2026-02-30,2026-03-01", "sale,2026-03-02,2026-03-01", "s,2026-01-01,2026-01-01,0"]
)
def test_a_calendar_that_makes_no_sense_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(EventError, match="line 2 of the calendar"):
        parse_events(["# events", line])


def test_a_driver_that_leads_the_load_is_found_with_its_lag_and_one_that_merely_grows_is_not() -> None:
    rng = np.random.default_rng(5)
    orders = np.repeat(np.exp(np.cumsum(rng.normal(0.01, 0.08, 60))), 7)
    load_days = np.roll(orders, 14) ** 1.5
    load_days[:14] = load_days[14]
    growing = np.linspace(100, 300, len(orders))
    found = correlate(0, load_days, {"growing": (0, growing), "orders": (0, orders)})
    assert [one.driver for one in found] == ["orders", "growing"]
    assert found[0].lag_weeks == 2
    assert found[0].r > 0.95
    assert found[0].elasticity == pytest.approx(1.5, abs=0.2)
    assert abs(found[1].r) < 0.4
    assert correlate(0, load_days[:30], {"orders": (0, orders)}) == ()


def test_topics_of_a_domain_grow_together() -> None:
    assert [domain_of(name) for name in ("orders.created.v1", "orders-eu", "clicks")] == ["orders", "orders", "clicks"]
    days = np.arange(365)
    rising, flat = 100 * 1.1 ** (days / 30), np.full(365, 50.0)
    found = growth("orders", [rising, flat[:100]], [np.full(30, 400.0), np.full(30, 50.0)])
    assert found.series == 2
    assert found.now == pytest.approx(rising[-7:].mean() + 50)
    assert found.then == 450
    assert monthly(rising) == pytest.approx(0.1, abs=0.005)
    assert monthly(flat[:40]) == 0.0


# Output


def test_results_survive_json_and_the_page_is_whole_and_loads_nothing() -> None:
    one = forecast(200, growth_per_day=0.004)
    assert msgspec.json.decode(msgspec.json.encode(one), type=SeriesForecast) == one
    topic = msgspec.structs.replace(one, kind="topic", name="orders<b>", metric="bytes_in_per_s", crossings=[])
    short = forecast(2)
    report = sum_up("2026-09-01", "lake/metrics", [topic, short, one])
    assert report.series[0] is one, "what must be ordered first comes first"
    assert [growing.domain for growing in report.domains] == ["orders<b>"]
    page = html_report(report)
    assert "orders&lt;b&gt;" in page
    assert "orders<b>" not in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "a forecast needs 3" in page
    assert page.count("<svg") == 2
    told = as_json(report)
    assert {row["scenario"] for row in told["dates"]} >= {"expected", "worst"}  # type: ignore[attr-defined, index]
    assert "<style>" in chart(one, standalone=True)
