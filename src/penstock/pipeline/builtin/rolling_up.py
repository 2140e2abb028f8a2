"""Many samples of a measure as a few figures per window of time."""

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

ACCURACY = 1_000
"""Of percentiles: a rank is wrong by a thousandth at most."""


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
    check_time(samples, time)
    check_columns(samples, (value,), "value")
    check_columns(samples, keys, "keys")
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
    span = f.window(time, window, slide) if slide else f.window(time, window)
    rolled = with_watermark(samples, time, watermark).groupBy(span.alias("_window"), *keys).agg(*figures)
    start, end = f.col("_window.start").alias("window_start"), f.col("_window.end").alias("window_end")
    return rolled.select(start, end, *(name for name in rolled.columns if name != "_window"))
