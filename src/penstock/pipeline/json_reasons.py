"""Why a value does not parse as JSON of some columns, for a person. Pure, and asked about bad records only.

Spark's own parser decides what is bad, in the JVM and at its speed; it does not say why. This looks at one bad value
after the fact and says what a person would: where the JSON breaks, or which field has what instead of which type.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

SHOWN_CHARACTERS_MAX = 60
REASON_CHARACTERS_MAX = 500
NO_VALUE = "no value (a tombstone)"
_INTEGERS = {"TINYINT": 7, "BYTE": 7, "SMALLINT": 15, "SHORT": 15, "INT": 31, "INTEGER": 31, "BIGINT": 63, "LONG": 63}


class Expected(NamedTuple):
    """What a record should have had."""

    name: str
    type: str
    nullable: bool


def explain(value: bytes | None, columns: Sequence[Expected]) -> str:
    """The reason, in one line."""
    if value is None:
        return NO_VALUE
    try:
        text = bytes(value).decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} is 0x{value[error.start]:02x}"
    if not text.strip():
        return "an empty value"
    try:
        found = json.loads(text)
    except ValueError as error:
        return _short(f"not JSON: {error}")
    except RecursionError:
        return "not JSON: nested too deeply"
    if not isinstance(found, dict):
        return f"not a JSON object but {_kind(found)}"
    for column in columns:
        item = found.get(column.name)
        if item is None:
            if not column.nullable:
                state = "null" if column.name in found else "missing"
                return f"{column.name} is {state}, and is NOT NULL"
        elif reason := _mismatch(item, column.type):
            return _short(f"{column.name} is not {_article(column.type)}: {reason}")
    return "does not fit the columns"


def _mismatch(item: object, type_text: str) -> str:
    """What is wrong with a field, or nothing that is seen from here."""
    base = type_text.upper().partition("(")[0].partition("<")[0].strip()
    shown = json.dumps(item, ensure_ascii=False)
    if len(shown) > SHOWN_CHARACTERS_MAX:
        shown = shown[: SHOWN_CHARACTERS_MAX - 1] + "…"
    if base in _INTEGERS:
        bits = _INTEGERS[base]
        if not isinstance(item, int) or isinstance(item, bool):
            return shown
        return "" if -(1 << bits) <= item < 1 << bits else f"{shown} is out of range"
    if base in ("DOUBLE", "FLOAT", "REAL"):
        return "" if isinstance(item, int | float) and not isinstance(item, bool) else shown
    if base in ("DECIMAL", "DEC", "NUMERIC"):
        return "" if isinstance(item, int | float) and not isinstance(item, bool) and _fits(item, type_text) else shown
    if base == "BOOLEAN":
        return "" if isinstance(item, bool) else shown
    if base in ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "DATE"):
        return "" if _is_time(item) else shown
    if base == "ARRAY":
        return "" if isinstance(item, list) else shown
    if base in ("STRUCT", "MAP"):
        return "" if isinstance(item, dict) else shown
    return ""


def _is_time(item: object) -> bool:
    if isinstance(item, int) and not isinstance(item, bool):
        return True
    try:
        datetime.fromisoformat(item.strip() if isinstance(item, str) else "")
    except ValueError:
        return False
    return True


def _fits(item: float, type_text: str) -> bool:
    inside = type_text.partition("(")[2].rstrip(") ").split(",")
    if not inside[0].strip().isdigit():
        return True
    precision = int(inside[0])
    scale = int(inside[1]) if len(inside) > 1 and inside[1].strip().isdigit() else 0
    return abs(item) < 10.0 ** (precision - scale)


def _kind(item: object) -> str:
    if item is None:
        return "null"
    names = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "an array"}
    return names.get(type(item), "something else")


def _article(type_text: str) -> str:
    return f"{'an' if type_text[:1].upper() in 'AEIO' else 'a'} {type_text}"


def _short(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS_MAX else text[: REASON_CHARACTERS_MAX - 1] + "…"
