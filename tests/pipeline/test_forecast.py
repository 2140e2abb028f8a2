"""The forecast as a Spark job over archived metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from forecasting.histories import NOW_MS, load
from penstock.forecasting.series import Options, SeriesForecast
from penstock.monitor.samples import HOUR_MS, RAW_TOPIC, ROLLUP_TOPIC, Kind, MetricSample, Rollup, encode
from penstock.pipeline.forecast import (
    DEFAULT_METRICS,
    ForecastError,
    forecast_table,
    hourly,
    read_drivers,
    thresholds_from,
)
from penstock.pipeline.lake import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

DAYS = 40
SERIES = (("broker", "1", "host_cpu_share"), ("topic", "orders.created", "bytes_in_per_s"))
OPTIONS = Options(now_ms=NOW_MS, horizon_days=20, check=False)


def samples(kind: str, name: str, metric: str) -> list[MetricSample]:
    times, values = load(DAYS, growth_per_day=0.01)
    return [
        MetricSample(
            time_ms=int(time_ms), cluster="c", kind=Kind(kind), name=name, metric=metric, value=float(value), unit="u"
        )
        for time_ms, value in zip(times, values, strict=True)
    ]


def rows(records: list[MetricSample]) -> pa.Table:
    names = ("time_ms", "cluster", "kind", "name", "metric", "value", "unit")
    return pa.table({name: [getattr(one, name) for one in records] for name in names})


def archived(topic: str, values: list[bytes]) -> pa.Table:
    """As `archive_topic` writes a topic."""
    return pa.table({"topic": [topic] * len(values), "value": values, "offset": list(range(len(values)))})


def rolled_up(one: MetricSample, count: int = 360) -> Rollup:
    return Rollup(
        start_ms=one.time_ms, width_ms=HOUR_MS, cluster=one.cluster, kind=one.kind, name=one.name, metric=one.metric,
        unit=one.unit, count=count, mean=one.value, minimum=one.value, maximum=one.value, last=one.value,
    )  # fmt: skip


def by_name(found: list[SeriesForecast]) -> dict[str, SeriesForecast]:
    return {one.name: one for one in found}


def test_samples_roll_ups_and_archived_records_are_read_alike_and_forecast(spark: SparkSession, tmp_path: Path) -> None:
    records = [sample for series in SERIES for sample in samples(*series)]
    partial = [rolled_up(one, 10) for one in records[:50]]  # written before their hour was over, and replaced
    halves = [Rollup(**{**{f: getattr(one, f) for f in one.__struct_fields__}, "mean": 9e9}) for one in partial]
    tables = {
        "samples": rows(records),
        "records": archived(RAW_TOPIC, [*(encode(one) for one in records), b"not a sample", b"{}"]),
        "rollups": archived(ROLLUP_TOPIC, [encode(one) for one in [*halves, *map(rolled_up, records)]]),
    }
    hours: dict[str, list[Any]] = {}
    for form, table in tables.items():
        write_deltalake(tmp_path / form, table)
        frame = hourly(read_table(spark, tmp_path / form), DEFAULT_METRICS)
        hours[form] = sorted((row.kind, row.name, row.metric, row.unit, row.hour, row.value) for row in frame.collect())
    assert len(hours["samples"]) == len(records)
    assert hours["records"] == hours["rollups"] == hours["samples"]

    found = by_name(forecast_table(spark, read_table(spark, tmp_path / "samples"), OPTIONS))
    assert found.keys() == {"1", "orders.created"}
    broker = found["1"]
    assert (broker.kind, broker.metric, broker.unit, len(broker.mean)) == ("broker", "host_cpu_share", "u", 20)
    assert {one.scenario for one in broker.crossings} >= {"expected", "worst"}
    assert found["orders.created"].crossings == []


def test_drivers_come_from_a_file_by_date_and_days_that_are_missing_stay_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "business.csv"
    path.write_text("date,orders,region\n2026-01-01,10,eu\n2026-01-03,30,eu\n2026-01-03,50,us\n")
    ((name, (start, values)),) = read_drivers(spark, str(path)).items()
    assert (name, start) == ("orders", 20_454)
    np.testing.assert_array_equal(values, [10, np.nan, 40])
    path.write_text("day,orders\n2026-01-01,10\n")
    with pytest.raises(ForecastError, match="no column `date`"):
        read_drivers(spark, str(path))


def test_a_table_that_holds_no_metrics_or_none_of_the_wanted_ones_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_deltalake(tmp_path / "other", pa.table({"a": [1]}))
    with pytest.raises(ForecastError, match="not a table of metrics"):
        hourly(read_table(spark, tmp_path / "other"), ["broker/up"])
    write_deltalake(tmp_path / "some", rows(samples(*SERIES[0])[:5]))
    with pytest.raises(ForecastError, match="none of the wanted metrics"):
        forecast_table(spark, read_table(spark, tmp_path / "some"), OPTIONS, metrics=["topic/skew"])


def test_thresholds_of_the_command_line() -> None:
    assert thresholds_from({"broker/disk_used_share": "80%", "group/lag_s": "60"}) == {
        "broker/disk_used_share": 0.8,
        "group/lag_s": 60.0,
    }
    for name, text in (("broker/x", "much"), ("x", "1"), ("broker/x", "-1"), ("broker/x", "nan")):
        with pytest.raises(ForecastError, match="--threshold"):
            thresholds_from({name: text})


@pytest.mark.long
def test_the_command_writes_dates_a_page_and_charts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, with a session as a user has it."""
    import subprocess
    import sys

    write_deltalake(tmp_path / "metrics", rows([sample for series in SERIES for sample in samples(*series)]))
    (tmp_path / "sales.csv").write_text("sale,2026-09-10,2026-09-11,2\n")
    command = [sys.executable, "-m", "penstock", "forecast", "metrics", "--json", "--html", "out.html", "--svg", "svg"]
    command += ["--events", "sales.csv", "--threshold", "broker/host_cpu_share=10%", "--master", "local[2]"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert {row["name"] for row in told["dates"]} == {"1"}
    assert all(row["overdue"] for row in told["dates"])
    assert [row["domain"] for row in told["domains"]] == ["orders"]
    assert "What runs out" in (tmp_path / "out.html").read_text()
    assert len(list((tmp_path / "svg").glob("*.svg"))) == 2
