"""Values of options, read as Spark reads them; an error names the option, what stands there and what could."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from penstock.client import TopicPartition
from penstock.spark.errors import OptionError

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DURATION: Final = re.compile(r"(-?[0-9]+)([a-z]+)?")
_UNITS_US: Final = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000,
}  # fmt: skip


def boolean(texts: Mapping[str, str], name: str, default: bool) -> bool:
    text = texts.get(name.lower())
    if text is None:
        return default
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"{name}: '{text}' is neither true nor false")
    return word == "true"


def whole_number(text: str) -> int:
    """As Java reads one: Python would take 1_000 too."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text)


def long_number(texts: Mapping[str, str], name: str, *, at_least: int, message: str | None = None) -> int | None:
    return _number(texts, name, at_least, LONG_MAX, message)


def int_at_least(texts: Mapping[str, str], name: str, at_least: int, message: str | None = None) -> int | None:
    return _number(texts, name, at_least, INT_MAX, message)


def duration_ms(texts: Mapping[str, str], name: str, default: str) -> int:
    """`15m`, `500ms`, `2h`; a plain number is milliseconds."""
    text = texts.get(name.lower(), default).strip().lower()
    match = _DURATION.fullmatch(text)
    unit = (match[2] or "ms") if match else ""
    if match is None or unit not in _UNITS_US or int(match[1]) < 0:
        raise OptionError(f"{name}: '{text}' is no time: write a number and one of {', '.join(_UNITS_US)}, as in 15m")
    return int(match[1]) * _UNITS_US[unit] // 1_000


def partition_list(text: str) -> tuple[TopicPartition, ...]:
    """`{"topicA":[0,1]}`, without repetitions."""
    expected = f'assign: Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text}'
    found: dict[TopicPartition, None] = {}
    for topic, partitions in _object(text, expected).items():
        if not isinstance(partitions, list):
            raise OptionError(expected)
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= INT_MAX:
                raise OptionError(expected)
            found[TopicPartition(topic, partition)] = None
    return tuple(found)


def partition_numbers(text: str, name: str, example: str) -> dict[TopicPartition, int]:
    """`{"topicA":{"0":23}}`."""
    expected = f"{name}: Expected e.g. {example}, got {text}"
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _object(text, expected).items():
        if not isinstance(numbers, dict):
            raise OptionError(expected)
        for partition, number in numbers.items():
            if not partition.isascii() or not partition.isdecimal() or type(number) is not int:
                raise OptionError(expected)
            if not -LONG_MAX <= number <= LONG_MAX:
                raise OptionError(expected)
            found[TopicPartition(topic, int(partition))] = number
    return found


def _object(text: str, expected: str) -> dict[str, object]:
    try:
        read = json.loads(text)
    except ValueError:
        raise OptionError(expected) from None
    if not isinstance(read, dict):
        raise OptionError(expected)
    return read


def _number(texts: Mapping[str, str], name: str, at_least: int, at_most: int, message: str | None) -> int | None:
    text = texts.get(name.lower())
    if text is None:
        return None
    try:
        value = whole_number(text)
    except ValueError:
        raise OptionError(f"{name}: '{text}' is not a whole number") from None
    if value < at_least:
        raise OptionError(message or (f"{name} must be positive" if at_least == 1 else f"{name} must not be negative"))
    if value > at_most:
        raise OptionError(f"{name}: {value} is too large, at most {at_most}")
    return value
