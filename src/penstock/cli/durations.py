"""Spans of time on the command line. Pure."""

from __future__ import annotations

import re

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT = re.compile(r"(?:\d+(?:ms|[smhdw]))+")
_PART = re.compile(r"(\d+)(ms|[smhdw])")
# As java.time.Duration reads it: days are 24 hours, seconds may have a fraction, any part may be negative.
_ISO = re.compile(
    r"(?P<sign>[-+])?P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<clock>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


def parse_duration_ms(text: str) -> int:
    """`PT1H30M`, `P7D` (ISO 8601, as Kafka's tools take them), or `90s`, `15m`, `1h30m`, `7d`."""
    text = text.strip()
    if _SHORT.fullmatch(text):
        return sum(int(count) * _UNIT_MS[unit] for count, unit in _PART.findall(text))
    found = _ISO.fullmatch(text)
    if found is None or text.upper().lstrip("+-") in ("P", "PT") or text.upper().endswith("T"):
        raise ValueError(f"{text!r} is no span of time; use PT1H30M or P7D (ISO 8601), or 90s, 15m, 1h30m, 7d")
    milliseconds = 0
    for name, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if found[name]:
            milliseconds += int(found[name]) * size
    if found["seconds"]:
        milliseconds += round(float(found["seconds"].replace(",", ".")) * 1000)
    return -milliseconds if found["sign"] == "-" else milliseconds
