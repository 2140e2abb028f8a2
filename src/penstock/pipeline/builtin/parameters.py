"""What the built-in functions check before they hand over to Spark, whose own errors come later and say less."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.model import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ParameterError(ValueError):
    """A parameter of a built-in pipeline that cannot be; the message names it and the fix."""


def names_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """`"a"` and `["a", "b"]` alike."""
    return (names,) if isinstance(names, str) else tuple(names)


def check_columns(frame: DataFrame, names: Iterable[str], parameter: str) -> None:
    """Refuses names of columns that the DataFrame does not have."""
    columns = frame.columns
    known = {column.lower() for column in columns}
    for name in names:
        if name.lower() not in known:
            raise ParameterError(
                f"{parameter} names the column {name}, which is not there{nearest(name, columns)}; "
                f"there are {', '.join(columns)}"
            )


def check_time(frame: DataFrame, name: str) -> None:
    """Refuses a column of time that Spark would not take."""
    check_columns(frame, [name], "time")
    kind = next(field.dataType.simpleString() for field in frame.schema.fields if field.name.lower() == name.lower())
    if not kind.startswith("timestamp"):
        raise ParameterError(f"time names the column {name}, which is {kind}: cast it to a timestamp first")


def with_watermark(frame: DataFrame, time: str, watermark: str) -> DataFrame:
    """A stream with its watermark; a stream without one would keep its state for ever, so it is refused."""
    if not frame.isStreaming:
        return frame
    if watermark:
        return frame.withWatermark(time, watermark)
    if _has_watermark(frame, time):
        return frame
    raise ParameterError(
        f"a stream needs a watermark: say how late events may be, as in watermark='10 minutes' (or call "
        f".withWatermark({time!r}, …) before)"
    )


def _has_watermark(frame: DataFrame, time: str) -> bool:
    if not hasattr(frame, "_jdf"):
        return True  # Spark Connect does not tell; Spark itself complains when the query starts
    # Spark keeps the delay in the column's metadata, which the schema of a DataFrame does not show.
    found = frame._jdf.queryExecution().analyzed().output().iterator()
    while found.hasNext():
        attribute = found.next()
        if attribute.name().lower() == time.lower():
            return bool(attribute.metadata().contains("spark.watermarkDelayMs"))
    return False
