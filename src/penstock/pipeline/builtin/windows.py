"""Per window of time: counts and sums, the first k, the figures of a measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.builtin.parameters import (
    ParameterError,
    check_columns,
    check_time,
    names_of,
    with_watermark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, GroupedData

COUNT = "count"
ACCURACY = 1_000
"""Of percentiles: a rank is wrong by a thousandth at most."""
_WINDOW = "window"


def windowed_counts(
    events: DataFrame,
    *,
    time: str,
    window: str,
    keys: str | Sequence[str] = (),
    sums: str | Sequence[str] = (),
    slide: str = "",
    watermark: str = "",
) -> DataFrame:
    """How many events each window has, per key, and the sums of some of their columns.

        windowed_counts(orders, time="ordered_at", window="1 hour", keys="product", sums="amount",
                        watermark="10 minutes")

    Columns: `window_start`, `window_end`, the keys, `count`, and `<column>_sum` for each of `sums`. With `slide` the
    windows overlap: a new one begins that often. On a stream in append mode a window comes out when the watermark has
    passed its end.
    """
    keys, sums = names_of(keys), names_of(sums)
    counted = _counted(events, time, window, slide, watermark, keys, sums)
    return _flat(counted, (*keys, COUNT, *(f"{name}_sum" for name in sums)))


def top_k(
    events: DataFrame,
    k: int,
    *,
    item: str | Sequence[str],
    time: str,
    window: str,
    by: str = "",
    slide: str = "",
    watermark: str = "",
) -> DataFrame:
    """The k items of each window with the most events, or with `by`, the largest sum of that column.

        top_k(orders, 5, item="product", by="amount", time="ordered_at", window="1 hour", watermark="10 minutes")

    Columns: `window_start`, `window_end`, `rank` (from 1), the item's, `count`, and `<by>_sum`. Items that are equal
    stand in the order of their names, so that a batch that is computed again has the same result.
    """
    from pyspark.sql import functions as f

    if k < 1:
        raise ParameterError(f"k is {k}: it must be 1 or more")
    items, sums = names_of(item), names_of(by) if by else ()
    measure = f"{by}_sum" if by else COUNT
    counted = _counted(events, time, window, slide, watermark, items, sums)
    # Ascending by the negative measure and then by name: Spark sorts a struct by its fields, in one direction.
    row = f.struct((-f.col(measure)).alias("_order"), *items, COUNT, *(f"{name}_sum" for name in sums))
    ranked = counted.groupBy(_WINDOW).agg(f.slice(f.array_sort(f.collect_list(row)), 1, k).alias("_top"))
    exploded = ranked.select(_WINDOW, f.posexplode("_top").alias("_rank", "_row"))
    values = [f.col(f"_row.{name}") for name in (*items, COUNT, *(f"{name}_sum" for name in sums))]
    return exploded.select(
        f.col(f"{_WINDOW}.start").alias("window_start"),
        f.col(f"{_WINDOW}.end").alias("window_end"),
        (f.col("_rank") + 1).alias("rank"),
        *values,
    )


def roll_up(
    samples: DataFrame,
    *,
    time: str,
    window: str,
    value: str = "value",
    keys: str | Sequence[str] = (),
    percentiles: Sequence[float] = (),
    slide: str = "",
    watermark: str = "",
) -> DataFrame:
    """What each series measured in each window: metrics by the minute out of metrics by the second.

        roll_up(metrics, time="at", window="1 minute", keys=["name", "instance"], percentiles=[50, 99],
                watermark="2 minutes")

    Columns: `window_start`, `window_end`, the keys, `count`, and of the value `<value>_sum`, `_min`, `_max`, `_avg`,
    `_last` (of the newest sample), and `_p50` and so on for each of `percentiles`. Samples that are null do not count.
    On a stream in append mode a window comes out when the watermark has passed its end.
    """
    from pyspark.sql import functions as f

    keys = names_of(keys)
    check_columns(samples, (value,), "value")
    if wrong := [one for one in percentiles if not 0 <= one <= 100]:
        raise ParameterError(f"percentiles has {wrong[0]}: they are between 0 and 100")
    figures = [
        f.count(value).alias("count"),
        f.sum(value).alias(f"{value}_sum"),
        f.min(value).alias(f"{value}_min"),
        f.max(value).alias(f"{value}_max"),
        f.avg(value).alias(f"{value}_avg"),
        f.max_by(value, f.when(f.col(value).isNotNull(), f.col(time))).alias(f"{value}_last"),
        *(f.percentile_approx(value, one / 100, ACCURACY).alias(f"{value}_p{one:g}") for one in percentiles),
    ]
    rolled = _windows(samples, time, window, slide, watermark, keys).agg(*figures)
    return _flat(rolled, [name for name in rolled.columns if name != _WINDOW])


def _counted(
    events: DataFrame,
    time: str,
    window: str,
    slide: str,
    watermark: str,
    keys: Sequence[str],
    sums: Sequence[str],
) -> DataFrame:
    from pyspark.sql import functions as f

    check_columns(events, sums, "sums")
    return _windows(events, time, window, slide, watermark, keys).agg(
        f.count(f.lit(1)).alias(COUNT), *(f.sum(name).alias(f"{name}_sum") for name in sums)
    )


def _windows(events: DataFrame, time: str, window: str, slide: str, watermark: str, keys: Sequence[str]) -> GroupedData:
    from pyspark.sql import functions as f

    check_time(events, time)
    check_columns(events, keys, "keys")
    span = f.window(time, window, slide) if slide else f.window(time, window)
    return with_watermark(events, time, watermark).groupBy(span.alias(_WINDOW), *keys)


def _flat(counted: DataFrame, columns: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as f

    return counted.select(
        f.col(f"{_WINDOW}.start").alias("window_start"), f.col(f"{_WINDOW}.end").alias("window_end"), *columns
    )
