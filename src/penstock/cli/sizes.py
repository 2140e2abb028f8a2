"""Numbers of bytes on the command line. Pure."""

from __future__ import annotations

import re

_UNITS = {
    "": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_size(text: str) -> int:
    """`50MB` (or `50M`) is 50,000,000, `64MiB` is 67,108,864, a plain number is bytes; `/s` at the end is allowed."""
    found = _SIZE.fullmatch(text.strip().lower().removesuffix("/s"))
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{text!r} is no number of bytes; use 50MB, 1.5GB, 64MiB or a plain number")
    return int(float(found[1]) * _UNITS[found[2]])
