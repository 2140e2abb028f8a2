"""Java's SimpleDateFormat, as far as a time of day needs it: `--date-format` of Kafka's consumer tool."""

from __future__ import annotations

import re
from datetime import datetime

__all__ = ["DATE_FORMAT", "date_text"]

DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"

_FIELD = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*")
_PARTS = {
    "y": lambda when, width: f"{when.year:04d}" if width != 2 else f"{when.year % 100:02d}",
    "M": lambda when, width: f"{when:%B}" if width > 3 else f"{when:%b}" if width == 3 else f"{when.month:0{width}d}",
    "d": lambda when, width: f"{when.day:0{width}d}",
    "H": lambda when, width: f"{when.hour:0{width}d}",
    "h": lambda when, width: f"{when.hour % 12 or 12:0{width}d}",
    "m": lambda when, width: f"{when.minute:0{width}d}",
    "s": lambda when, width: f"{when.second:0{width}d}",
    "S": lambda when, width: f"{when.microsecond // 1000:0{width}d}",
    "a": lambda when, width: f"{when:%p}",
    "E": lambda when, width: f"{when:%A}" if width > 3 else f"{when:%a}",
    "D": lambda when, width: f"{when.timetuple().tm_yday:0{width}d}",
}


def date_text(when: datetime, pattern: str = DATE_FORMAT) -> str:
    """The moment in Java's pattern; ValueError names a letter that is not known."""

    def field(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1].replace("''", "'") or "'"
        if found[2] not in _PARTS:
            raise ValueError(f"{found[2]!r} in a date format is not known here; there are {', '.join(_PARTS)}")
        return _PARTS[found[2]](when, len(found[0]))

    return _FIELD.sub(field, pattern)
