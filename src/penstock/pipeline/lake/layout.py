"""Names of directories, and values of partitions as Delta's log writes them. Pure."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from urllib.parse import unquote

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
"""How Hive, and Spark after it, name the directory of rows without a value."""

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(0x20))))
"""What Spark escapes in the names of partition directories."""

_JAVA_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

PartitionValue = str | int | bool | float | Decimal | datetime.date | None
"""What a handle tells, or a batch brings. With a time zone a timestamp is a moment, without one what a clock shows."""


def partition_text(value: PartitionValue) -> str | None:
    """A partition's value as it stands in the log; None is null. So is an empty text: the format has no way to tell."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return value.isoformat(" ", "microseconds")
        # In UTC and with the Z, or each reader would take it for the time of its own session's time zone.
        return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat("T", "microseconds") + "Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return _JAVA_WORDS[str(value)]
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def directory_of(partition_by: Sequence[str], values: Sequence[str | None]) -> str:
    """`date=2026-01-31/shop=7`, or nothing for a table that has no partitions."""
    return "/".join(
        f"{escape(name)}={NULL_DIRECTORY if value is None else escape(value)}"
        for name, value in zip(partition_by, values, strict=True)
    )


def values_in_directory(partition_by: Sequence[str], directory: str) -> tuple[str | None, ...] | None:
    """The values that a directory's name tells; None where it is not named that way."""
    segments = directory.split("/") if directory else []
    if len(segments) != len(partition_by):
        return None
    values: list[str | None] = []
    for name, segment in zip(partition_by, segments, strict=True):
        told, equals, value = segment.partition("=")
        if not equals or unquote(told) != name:
            return None
        values.append(None if value == NULL_DIRECTORY else unquote(value))
    return tuple(values)


def escape(text: str) -> str:
    """A name that is safe in a path and that Spark reads back."""
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)
