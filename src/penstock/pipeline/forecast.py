"""`penstock forecast` on Spark: one series after another, in parallel, over the archived metrics.

The table is a Delta table of one of three forms, told apart by its columns:

| form | written by |
|---|---|
| samples (`time_ms`, `value`, …) | a pipeline over `penstock.metrics` (`penstock pipeline init --from metrics`) |
| roll-ups (`start_ms`, `mean`, …) | the same over `penstock.metrics.rollups` |
| records (`topic`, `value` as bytes) | `archive_topic` or `init --from archive` over either topic |

Spark reduces samples to hours, puts each series together on one worker, and has `penstock.forecasting` do the rest in
pandas functions. It runs on `local[*]` and on any cluster whose workers have the extra `forecast`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.forecasting.series import COUNTERS, DAY_MS, Options, SeriesForecast
from penstock.monitor.samples import HOUR_MS, ROLLUP_SPARK_SCHEMA, ROLLUP_TOPIC, SPARK_SCHEMA

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

SERIES_MAX: Final = 50_000
DRIVER_DAYS_MAX: Final = 366 * 20
DRIVERS_MAX: Final = 100
IDENTITY: Final = ("cluster", "kind", "name", "metric")
DEFAULT_METRICS: Final = (
    "broker/disk_used_share", "broker/disk_used_bytes", "broker/host_cpu_share", "broker/cpu_share",
    "broker/memory_share", "broker/network_share", "broker/disk_busy_share", "broker/bytes_in_per_s",
    "broker/partitions", "topic/bytes_in_per_s", "topic/messages_in_per_s", "topic/size_bytes",
    "group/lag_s", "group/lag_records", "group/consume_per_s", "cluster/bytes_in_per_s", "cluster/size_bytes",
    "cluster/partitions",
)  # fmt: skip
"""`kind/metric` of the series that are forecast if none are named."""

Drivers = dict[str, tuple[int, "NDArray[np.float64]"]]


class ForecastError(Exception):
    """A forecast that cannot be made; the message says what is missing."""


def forecast_table(
    spark: SparkSession,
    table: DataFrame,
    options: Options,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    drivers: Drivers | None = None,
) -> list[SeriesForecast]:
    """The forecast of every chosen series of a table of metrics."""
    from pyspark.sql import functions as F

    hours = hourly(table, metrics).withColumn("series", F.concat_ws("\x1f", *IDENTITY))
    count = hours.select("series").distinct().count()
    if count == 0:
        raise ForecastError(
            "the table has none of the wanted metrics: name others with --metric (kind/metric), or let "
            "`penstock monitor` and the archive run for some days"
        )
    if count > SERIES_MAX:
        raise ForecastError(f"the table has {count:,} series of these metrics, and {SERIES_MAX:,} is the limit")
    # Four tasks for each core: they differ in how much history they have.
    tasks = max(1, min(count, 4 * spark.sparkContext.defaultParallelism)) if _has_context(spark) else 8
    task = _Task(options, dict(drivers or {}))

    def run(frame: pd.DataFrame) -> pd.DataFrame:  # Spark counts the parameters: a method has one too many
        return task.run(frame)

    rows = hours.repartition(tasks, "series").groupBy("series").applyInPandas(run, "result STRING").collect()
    return [msgspec.json.decode(row.result, type=SeriesForecast) for row in rows]


def hourly(table: DataFrame, metrics: Sequence[str]) -> DataFrame:
    """(cluster, kind, name, metric, unit, hour, value) of a table of any form; means by the hour."""
    from pyspark.sql import functions as F

    columns = set(table.columns)
    if {"topic", "value", "offset"} <= columns:
        table = _decoded(table)
        columns = set(table.columns)
    wanted = F.concat_ws("/", "kind", "metric").isin(list(metrics))
    if {"start_ms", "width_ms", "mean", "count"} <= columns:
        chosen = table.where(wanted & (F.col("width_ms") == HOUR_MS))
        newest = F.max_by("mean", "count")
        return chosen.groupBy(*IDENTITY, (F.col("start_ms") / HOUR_MS).cast("bigint").alias("hour")).agg(
            F.first("unit").alias("unit"), newest.alias("value")
        )
    missing = {"time_ms", "value", *IDENTITY} - columns
    if missing:
        raise ForecastError(
            f"this is not a table of metrics: it has no column {', '.join(sorted(missing))}. "
            "`penstock pipeline init --from metrics` writes a pipeline that makes one"
        )
    # A counter is told by its last value, everything else by its mean.
    value = F.when(F.col("metric").isin(list(COUNTERS)), F.max_by("value", "time_ms")).otherwise(F.avg("value"))
    return (
        table.where(wanted & ~F.isnan("value"))
        .groupBy(*IDENTITY, (F.col("time_ms") / HOUR_MS).cast("bigint").alias("hour"))
        .agg(F.first("unit").alias("unit"), value.alias("value"))
    )


def _decoded(table: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    is_rollup = table.select("topic").where(F.col("topic") == ROLLUP_TOPIC).limit(1).count() > 0
    schema = ROLLUP_SPARK_SCHEMA if is_rollup else SPARK_SCHEMA
    chosen = table.where(F.col("topic") == ROLLUP_TOPIC) if is_rollup else table
    return chosen.select(F.from_json(text, schema).alias("sample")).where("sample IS NOT NULL").select("sample.*")


class _Task:
    """Runs on the workers."""

    def __init__(self, options: Options, drivers: Drivers) -> None:
        self._options = msgspec.json.encode(options)
        self._drivers = drivers

    def run(self, frame: pd.DataFrame) -> pd.DataFrame:
        import numpy as np
        import pandas as pd

        from penstock.forecasting.series import forecast_series

        options = msgspec.json.decode(self._options, type=Options)
        first = frame.iloc[0]
        identity = {name: str(first[name]) for name in (*IDENTITY, "unit")}
        times_ms = frame["hour"].to_numpy(np.int64) * HOUR_MS
        values = frame["value"].to_numpy(np.float64)
        drivers = self._drivers if identity["kind"] in ("topic", "cluster") else None
        found = forecast_series(identity, times_ms, values, options, drivers)
        return pd.DataFrame({"result": [msgspec.json.encode(found).decode()]})


def read_drivers(spark: SparkSession, path: str) -> Drivers:
    """Figures of the business: a CSV file or a Delta table with a column `date`, and a column of numbers for each."""
    from pyspark.sql import functions as F

    from penstock.pipeline.lake import read_table

    if path.lower().endswith(".csv"):
        if not Path(path).is_file():
            raise ForecastError(f"there is no file {path}")
        frame = spark.read.csv(path, header=True, inferSchema=True)
    else:
        frame = read_table(spark, path)
    if "date" not in frame.columns:
        raise ForecastError(f"{path} has no column `date`: it has {', '.join(frame.columns)}")
    names = [field.name for field in frame.schema.fields if _is_number(field.dataType) and field.name != "date"]
    if not names or len(names) > DRIVERS_MAX:
        raise ForecastError(f"{path} must have 1 to {DRIVERS_MAX} columns of numbers beside `date`")
    days = frame.groupBy(F.to_date("date").alias("date")).agg(
        *(F.avg(F.col(f"`{name}`")).alias(name) for name in names)
    )
    rows = days.where("date IS NOT NULL").orderBy("date").limit(DRIVER_DAYS_MAX + 1).collect()
    return dict(_drivers(rows, names))


def _drivers(rows: list[Any], names: list[str]) -> Iterator[tuple[str, tuple[int, NDArray[np.float64]]]]:
    import numpy as np

    from penstock.forecasting.events import EPOCH

    if not rows:
        raise ForecastError("the table of drivers has no rows")
    if len(rows) > DRIVER_DAYS_MAX:
        raise ForecastError(f"the table of drivers has more than {DRIVER_DAYS_MAX:,} days")
    ordinals = [row["date"].toordinal() - EPOCH for row in rows]
    start, size = ordinals[0], ordinals[-1] - ordinals[0] + 1
    if size > DRIVER_DAYS_MAX:
        raise ForecastError(f"the table of drivers covers more than {DRIVER_DAYS_MAX:,} days")
    for name in names:
        values = np.full(size, np.nan)
        for day, row in zip(ordinals, rows, strict=True):
            if row[name] is not None:
                values[day - start] = float(row[name])
        yield name, (start, values)


def history_note(series: Sequence[SeriesForecast], now_ms: int) -> str:
    """How current the history is, in words."""
    from datetime import date

    from penstock.forecasting.events import EPOCH

    ends = [date.fromisoformat(one.start).toordinal() - EPOCH for one in series if one.start is not None]
    if not ends:
        return "no series has enough history"
    behind = now_ms // DAY_MS - max(ends)
    return f"the newest history is {behind} days old" if behind > 1 else "the history is current"


def _is_number(kind: object) -> bool:
    from pyspark.sql.types import NumericType

    return isinstance(kind, NumericType)


def _has_context(spark: SparkSession) -> bool:
    """A Spark Connect session has none."""
    try:
        return spark.sparkContext is not None
    except Exception:
        return False


def thresholds_from(texts: Mapping[str, str]) -> dict[str, float]:
    """`kind/metric` → limit, from the command line. ForecastError for what is none."""
    found = {}
    for name, text in texts.items():
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise ForecastError(f"--threshold {name}={text}: {text} is not a number") from None
        if "/" not in name or not 0 < number < 1e18:
            raise ForecastError(f"--threshold {name}={text}: it must be kind/metric=NUMBER, above 0")
        found[name] = number
    return found
