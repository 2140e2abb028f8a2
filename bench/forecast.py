"""`python -m bench.forecast`: how far off forecasts are, beside a seasonal-naive baseline; and how long they take.

*Accuracy*: rolling origins on generated histories (hourly load of 13 months with growth, waves of day and week, noise,
gaps, a change of level, an outage) and on public series that ship with packages: AirPassengers (statsforecast), CO2,
El Niño and sunspots (statsmodels). The error is the mean absolute one as a share of the mean; the ratio is that of the
model to the baseline, and below 1 the model is better.

*Speed* (`--speed`): `forecast_table` on Spark (`local[2]`) over a Delta table of 1,000 hourly series of 13 months, with
the check against the last weeks as by default, from the start of the query to the results, by the clock and in
processor time. Nothing is asserted: a time is not a test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from penstock.forecasting.backtest import Backtest, backtest
from penstock.forecasting.cleaning import HOUR_MS, Floats, to_hours
from penstock.forecasting.daily import to_days

NOW_MS = 1_788_220_800_000
DAYS = 395
SERIES = 1_000
ORIGINS = 6
HORIZON_DAYS = 28


def generated() -> Iterator[tuple[str, Floats]]:
    """Daily values of hourly histories."""
    hours = np.arange(DAYS * 24)
    rng = np.random.default_rng(7)
    day = 1 + 0.4 * np.sin(2 * np.pi * hours / 24)
    week = 1 + 0.25 * np.sin(2 * np.pi * hours / 168)
    noise = np.exp(rng.normal(0, 0.05, len(hours)))
    steady = 100 * day * week * noise
    outage = np.where((hours > 5_000) & (hours < 5_400), np.nan, 1.0)
    histories = {
        "steady": steady,
        "linear growth": steady * (1 + hours / 24 * 0.004),
        "growth of 5 % a month": steady * 1.05 ** (hours / 720),
        "saturating growth": steady * (3 - 2 * np.exp(-hours / 3_000)),
        "random walk": 100 * np.exp(np.cumsum(rng.normal(0, 0.004, len(hours)))) * day * week,
        "change of level": steady * np.where(hours > 6_000, 1.6, 1.0),
        "gaps": steady * (1 + hours / 24 * 0.002) * outage,
        "disk that fills": 1_000 + np.cumsum(np.abs(rng.normal(1, 0.4, len(hours)))),
    }
    times = NOW_MS - (len(hours) - hours) * HOUR_MS
    for name, values in histories.items():
        yield name, to_days(to_hours(times, values, NOW_MS)).values


def public() -> Iterator[tuple[str, Floats, tuple[int, ...], int]]:
    """(name, values, seasons, horizon)."""
    from statsforecast.utils import AirPassengers
    from statsmodels.datasets import co2, elnino, sunspots

    yield "AirPassengers (monthly)", np.asarray(AirPassengers, np.float64), (12,), 12
    weekly = co2.load_pandas().data["co2"]
    monthly = weekly.resample("MS").mean().interpolate()
    yield "CO2 (monthly)", monthly.to_numpy(np.float64), (12,), 12
    table = elnino.load_pandas().data
    yield "El Niño (monthly)", table.iloc[:, 1:].to_numpy(np.float64).ravel(), (12,), 12
    yield "sunspots (yearly)", sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(np.float64), (11,), 11


def accuracy() -> dict[str, dict[str, Backtest]]:
    results: dict[str, dict[str, Backtest]] = {"generated": {}, "public": {}}
    for name, values in generated():
        found = backtest(values, (7,), HORIZON_DAYS, ORIGINS)
        assert found is not None
        results["generated"][name] = found
    for name, values, seasons, horizon in public():
        found = backtest(values, seasons, horizon, ORIGINS)
        assert found is not None
        results["public"][name] = found
    return results


def show(results: dict[str, dict[str, Backtest]]) -> None:
    print(f"{'series':28} {'error':>8} {'baseline':>9} {'ratio':>6} {'within 80 %':>12}")
    for kind, found in results.items():
        for name, one in found.items():
            print(f"{name:28} {one.error:8.2%} {one.baseline_error:9.2%} {one.ratio:6.2f} {one.inside_80:12.0%}")
        better = sum(one.ratio < 1 for one in found.values())
        print(f"{kind}: better than the baseline in {better} of {len(found)}\n")


def speed(series: int) -> tuple[float, float]:
    import pyarrow as pa
    from deltalake import write_deltalake

    from penstock.forecasting.series import Options
    from penstock.pipeline.forecast import forecast_table
    from penstock.pipeline.lake import read_table
    from penstock.spark import build_session

    hours = np.arange(DAYS * 24)
    times = NOW_MS - (len(hours) - hours) * HOUR_MS
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "metrics")
        for first in range(0, series, 100):
            tables = []
            for number in range(first, min(first + 100, series)):
                wave = (1 + 0.4 * np.sin(2 * np.pi * (hours + number) / 24)) * (
                    1 + 0.2 * np.sin(2 * np.pi * hours / 168)
                )
                values = 1e6 * wave * (1 + hours * number / series / 9_000) * np.exp(rng.normal(0, 0.05, len(hours)))
                size = len(hours)
                columns = {"time_ms": times, "value": values}
                fixed = {"cluster": "c", "kind": "topic", "name": f"d{number % 20}.t{number}", "unit": "bytes/s",
                         "metric": "bytes_in_per_s"}  # fmt: skip
                names = {
                    name: pa.array([text] * size).dictionary_encode().cast(pa.string()) for name, text in fixed.items()
                }
                tables.append(pa.table({**{name: pa.array(one) for name, one in columns.items()}, **names}))
            write_deltalake(path, pa.concat_tables(tables), mode="append")
        spark = build_session("bench.forecast", master="local[2]", config={"spark.driver.memory": "3g"})
        began_s, began_cpu_s = time.monotonic(), _cpu_s()
        found = forecast_table(spark, read_table(spark, path), Options(now_ms=NOW_MS))
        took_s, cpu_s = time.monotonic() - began_s, _cpu_s() - began_cpu_s
        assert len(found) == series
        assert all(len(one.mean) == 90 for one in found)
        better = sum(one.check.ratio < 1 for one in found if one.check is not None)
        print(
            f"{series:,} hourly series of 13 months, local[2]: {took_s:.1f} s, {cpu_s:.1f} s of processor time "
            f"({better:,} better than the baseline)"
        )
        spark.stop()
    return took_s, cpu_s


def _cpu_s() -> float:
    """Processor time of this process, Spark's JVM and its workers: it means something on a busy machine, too."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.forecast", description=__doc__.splitlines()[0])
    parser.add_argument("--speed", action="store_true", help="measure the time of 1,000 series, instead of errors")
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--results", type=Path, help="write the figures to this file as JSON")
    options = parser.parse_args()
    result: dict[str, object] = {"load": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0))}
    if options.speed:
        result["seconds"], result["processor_seconds"] = speed(options.series)
        result["series"] = options.series
    else:
        found = accuracy()
        show(found)
        result |= {
            kind: {
                name: {
                    "error": one.error,
                    "baseline": one.baseline_error,
                    "ratio": one.ratio,
                    "inside_80": one.inside_80,
                }
                for name, one in rows.items()
            }
            for kind, rows in found.items()
        }
    if options.results is not None:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
