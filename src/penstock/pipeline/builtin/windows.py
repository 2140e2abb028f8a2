"""Counts and sums per window of time, and the first k of each window."""

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
    from pyspark.sql import DataFrame

COUNT = "count"
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

    check_time(events, time)
    check_columns(events, keys, "keys")
    check_columns(events, sums, "sums")
    span = f.window(time, window, slide) if slide else f.window(time, window)
    return (
        with_watermark(events, time, watermark)
        .groupBy(span.alias(_WINDOW), *keys)
        .agg(f.count(f.lit(1)).alias(COUNT), *(f.sum(name).alias(f"{name}_sum") for name in sums))
    )


def _flat(counted: DataFrame, columns: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as f

    return counted.select(
        f.col(f"{_WINDOW}.start").alias("window_start"), f.col(f"{_WINDOW}.end").alias("window_end"), *columns
    )
