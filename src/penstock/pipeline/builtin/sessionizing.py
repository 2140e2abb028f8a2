"""Events that follow each other closely, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.builtin.parameters import ParameterError, check_columns, check_time, names_of, with_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN = ("session_start", "session_end", "duration_s", "count")


def sessions(
    events: DataFrame,
    *,
    keys: str | Sequence[str],
    time: str,
    gap: str,
    counts: Mapping[str, str] | None = None,
    sums: str | Sequence[str] = (),
    watermark: str = "",
) -> DataFrame:
    """One row for each run of events of a key that are less than `gap` apart.

        sessions(clicks, keys="customer", time="event_time", gap="30 minutes",
                 counts={"orders": "kind = 'order'"}, watermark="1 hour")

    Columns: the keys, `session_start` and `session_end` (the times of the first and the last event), `duration_s`,
    `count`, a column for each of `counts` (events for which the SQL condition holds), and `<column>_sum` for each of
    `sums`. On a stream a session comes out when the watermark has passed its end by the gap.
    """
    from pyspark.sql import functions as f

    keys, sums, counts = names_of(keys), names_of(sums), dict(counts or {})
    if not keys:
        raise ParameterError("keys is empty: name the columns whose events belong together, such as the customer")
    check_columns(events, keys, "keys")
    check_columns(events, sums, "sums")
    check_time(events, time)
    for name in counts:
        if name in (*OWN, *keys):
            raise ParameterError(f"counts cannot have the name {name}: the result has that column already")
    grouped = with_watermark(events, time, watermark).groupBy(f.session_window(time, gap).alias("_session"), *keys)
    found = grouped.agg(
        f.min(time).alias("session_start"),
        f.max(time).alias("session_end"),
        f.count(f.lit(1)).alias("count"),
        *(f.count_if(f.expr(condition)).alias(name) for name, condition in counts.items()),
        *(f.sum(name).alias(f"{name}_sum") for name in sums),
    )
    duration = (f.unix_micros("session_end") - f.unix_micros("session_start")) / 1_000_000
    return found.select(
        *keys,
        "session_start",
        "session_end",
        duration.alias("duration_s"),
        "count",
        *counts,
        *(f"{name}_sum" for name in sums),
    )
