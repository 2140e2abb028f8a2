"""Each record once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.builtin.parameters import ParameterError, check_columns, check_time, names_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deduplicate(events: DataFrame, *, keys: str | Sequence[str], time: str, within: str) -> DataFrame:
    """Of events with the same keys only the first one that arrives.

        deduplicate(orders, keys="order_id", time="ordered_at", within="1 hour")

    A stream remembers keys for as long as `within`, counted from the event's time behind the newest one: it is the
    watermark, so events that are later than that are dropped as late, and copies further apart are not recognised. On
    a batch `within` has no meaning, and one event of each key is left.
    """
    keys = names_of(keys)
    if not keys:
        raise ParameterError("keys is empty: name the columns that make two events the same")
    check_columns(events, keys, "keys")
    check_time(events, time)
    if not events.isStreaming:
        return events.dropDuplicates(list(keys))
    return events.withWatermark(time, within).dropDuplicatesWithinWatermark(list(keys))
