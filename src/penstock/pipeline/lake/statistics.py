"""What a commit tells about a file, so that readers may leave it out: counts, smallest and largest values. Pure.

Smallest and largest are kept only where all engines agree on the order: whole numbers, dates, timestamps, texts.
Floating point is left out because of NaN, which Parquet's own statistics leave out and Spark takes for the largest
value of all; decimals, because readers parse JSON numbers as binary fractions.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

COLUMNS_MAX = 32
"""Delta's own limit on the columns that have statistics (`delta.dataSkippingNumIndexedCols`)."""
TEXT_LENGTH_MAX = 32

_WHOLE = ("byte", "short", "integer", "long")
_ORDERED = (*_WHOLE, "date", "timestamp", "timestamp_ntz", "string")
_COUNTED = (*_ORDERED, "boolean", "float", "double")

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
_MILLI_US = 1000

Json = str | int


def columns_with_statistics(types: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's columns (name → Delta's name of the type) about which files tell something.

    A name with a dot cannot be told from a field of a struct in Parquet's footer, so it has none.
    """
    known = [(name, kind) for name, kind in types.items() if kind in _COUNTED and "." not in name]
    return dict(known[:COLUMNS_MAX])


def statistics_json(metadata: FileMetaData, types: Mapping[str, str]) -> str:
    """The statistics of a file, from its footer."""
    nulls: dict[str, int] = {}
    lows: dict[str, list[Json | None]] = {}
    highs: dict[str, list[Json | None]] = {}
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        for column_index in range(group.num_columns):
            column = group.column(column_index)
            name = column.path_in_schema
            kind = types.get(name)
            found = column.statistics
            if kind is None:
                continue
            if found is None or not found.has_null_count:
                lows.setdefault(name, []).append(None)
                highs.setdefault(name, []).append(None)
                nulls[name] = -1
                continue
            if nulls.get(name, 0) >= 0:
                nulls[name] = nulls.get(name, 0) + found.null_count
            if found.null_count == column.num_values and not found.has_min_max:
                continue  # only nulls: nothing to compare with
            low = lower_bound(kind, found.min_raw) if found.has_min_max else None
            high = upper_bound(kind, found.max_raw) if found.has_min_max else None
            lows.setdefault(name, []).append(low)
            highs.setdefault(name, []).append(high)
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": _extremes(lows, smallest=True),
            "maxValues": _extremes(highs, smallest=False),
            "nullCount": {name: count for name, count in nulls.items() if count >= 0},
        },
        separators=(",", ":"),
    )


def lower_bound(kind: str, raw: int | bytes) -> Json | None:
    """Parquet's smallest value as JSON, rounded down where the format is coarser; None where it has no JSON form."""
    if isinstance(raw, bytes):
        return _text(raw, cut=True) if kind == "string" else None
    if kind in _WHOLE:
        return raw
    if kind == "date":
        return _date(raw)
    if kind in ("timestamp", "timestamp_ntz"):
        return _moment(raw - raw % _MILLI_US, zone="Z" if kind == "timestamp" else "")
    return None


def upper_bound(kind: str, raw: int | bytes) -> Json | None:
    """Parquet's largest value as JSON, rounded up. A text that is too long has no bound: cutting makes it smaller."""
    if isinstance(raw, bytes):
        return _text(raw, cut=False) if kind == "string" else None
    if kind in ("timestamp", "timestamp_ntz"):
        return _moment(raw + -raw % _MILLI_US, zone="Z" if kind == "timestamp" else "")
    return lower_bound(kind, raw)


def _extremes(bounds: Mapping[str, list[Json | None]], *, smallest: bool) -> dict[str, Json]:
    """Over all row groups; a group without a bound leaves the file without one."""
    chosen: dict[str, Json] = {}
    for name, values in bounds.items():
        known = [value for value in values if value is not None]
        if len(known) < len(values) or not known:
            continue
        chosen[name] = min(known) if smallest else max(known)
    return chosen


def _text(raw: bytes, *, cut: bool) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if len(text) > TEXT_LENGTH_MAX:
        return text[:TEXT_LENGTH_MAX] if cut else None
    return text


def _date(days: int) -> str | None:
    ordinal = _EPOCH_DAY + days
    if not 1 <= ordinal <= datetime.date.max.toordinal():
        return None
    return datetime.date.fromordinal(ordinal).isoformat()


def _moment(micros: int, *, zone: str) -> str | None:
    days, within_us = divmod(micros, _DAY_US)
    date = _date(days)
    if date is None:
        return None
    seconds, us = divmod(within_us, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{date}T{hour:02}:{minute:02}:{second:02}.{us // _MILLI_US:03}{zone}"
