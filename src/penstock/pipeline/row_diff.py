"""Compares the rows of a query with those that a test expects, in any order. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

Values = tuple[object, ...]

SHOWN_MAX = 20
"""How many differences of one query are printed."""


@dataclass(frozen=True)
class Difference:
    """A row that is missing, one that was not expected, or one in place of the other."""

    expected: Values | None
    found: Values | None


def differences(expected: Sequence[Values], found: Sequence[Values]) -> list[Difference]:
    """What distinguishes two bags of rows; each missing row is paired with the unexpected row that is most like it."""
    unexpected = list(found)
    missing = []
    for row in expected:
        at = next((index for index, one in enumerate(unexpected) if _same(row, one)), None)
        if at is None:
            missing.append(row)
        else:
            del unexpected[at]
    pairs = []
    for row in missing:
        likeness = [sum(map(_same, row, one)) for one in unexpected]
        best = max(range(len(unexpected)), key=likeness.__getitem__, default=None)
        # Rows that have nothing in common are two differences.
        has_pair = best is not None and likeness[best] > 0
        pairs.append(Difference(row, unexpected.pop(best) if has_pair and best is not None else None))
    return [*pairs, *(Difference(None, row) for row in unexpected)]


def diff_lines(columns: Sequence[str], found: Sequence[Difference]) -> Iterator[str]:
    """A table: `-` before an expected row that is missing, `+` before a row that was not expected."""
    table: list[tuple[str, list[str]]] = [(" ", list(columns))]
    for one in found[:SHOWN_MAX]:
        for sign, row in (("-", one.expected), ("+", one.found)):
            if row is not None:
                table.append((sign, [text_of(value) for value in row]))
        if one.expected is not None and one.found is not None:
            marks = [
                "" if _same(wanted, got) else "^" * max(1, min(len(text_of(got)), 12))
                for wanted, got in zip(one.expected, one.found, strict=True)
            ]
            table.append((" ", marks))
    widths = [max(len(cells[index]) for _, cells in table) for index in range(len(columns))]
    for sign, cells in table:
        yield f"{sign} {'  '.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))}".rstrip()
    if len(found) > SHOWN_MAX:
        yield f"… and {len(found) - SHOWN_MAX} more"


def text_of(value: object) -> str:
    """A value as a test would write it."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=text_of, ensure_ascii=False)
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _same(one: object, other: object) -> bool:
    """Equality, but for the last digits of floating-point numbers."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other) or f"{one:.12g}" == f"{other:.12g}"
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return one == other
    return type(one) is type(other) and one == other
