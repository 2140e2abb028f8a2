"""The definition of a property: its name, type, default, limits, documentation, and when it may change.

Values are passed as text (in files, on the command line, in the protocol) and parsed by Kafka's rules: surrounding
white space is ignored, booleans are `true` or `false` in any case, lists are separated by commas, and integers must fit
Java's types, because clients and tools for Kafka rely on those limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum, IntEnum
from typing import NamedTuple

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigError(Exception):
    """A configuration that a broker cannot start with. `problems` has one sentence per problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Kind(IntEnum):
    """The type of a value; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """When a broker property may change. A topic property may always change."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Validator(NamedTuple):
    """A limit on a value: `text` describes it, `check` tells whether a parsed value satisfies it."""

    text: str
    check: Callable[[Value], bool]


class Definition(NamedTuple):
    """One property."""

    name: str
    kind: Kind
    default: Value
    validator: Validator | None
    doc: str
    mode: UpdateMode = UpdateMode.READ_ONLY
    importance: Importance = Importance.MEDIUM
    sensitive: bool = False
    kafka_default: str | None = None
    """Kafka's default, as text, if ours differs."""
    cluster_only: bool = False
    """Concerns other brokers: checked and described, but without effect while the cluster has one broker."""
    only_default: str = ""
    """Why only the default is accepted; empty if every valid value works."""
    no_effect: str = ""
    """Why the property has no effect here; empty if it has one."""
    hidden: bool = False
    """Neither described nor documented; for tests that would otherwise need much data."""
    fallbacks: tuple[tuple[str, int], ...] = ()
    """The properties that apply if this one is not set, in order, each with its factor to this property's unit."""
    scale: int = 1
    """Factor from the property's unit to the attribute's."""
    origin: str = ""
    """For topic and group properties: the broker property that provides the default."""
    attribute: str = ""
    """The attribute name in a typed config; empty if there is none."""
    is_folded: bool = False
    """The property deliberately has no attribute: see `penstock.config.tables`."""

    def scaled(self, value: Value) -> Value:
        return value if self.scale == 1 or not isinstance(value, int) else value * self.scale


def parse(definition: Definition, text: str | None) -> Value:
    """Parse a value. Raises ValueError, which says what is wrong and what would be right."""
    if text is None:
        value = definition.default
    else:
        value = _PARSERS[definition.kind](text.strip())
    validator = definition.validator
    if validator is not None and value is not None and not validator.check(value):
        raise ValueError(f"must be {validator.text}")
    if definition.only_default and value != definition.default:
        default = render(definition.default) or "an empty value"
        raise ValueError(f"only {default} is accepted: {definition.only_default}")
    return value


def render(value: Value) -> str | None:
    """A value as text, as DescribeConfigs returns it; the inverse of `parse`."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _render_double(value) if isinstance(value, float) else str(value)


def _render_double(value: float) -> str:
    """The text that Java produces: `0.5`, `1.0E7`."""
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not math.isfinite(value):
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    tail = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"{'-' if sign else ''}{digits[0]}.{tail}E{exponent + len(digits) - 1}"


def at_least(minimum: int) -> Validator:
    return Validator(f"{minimum} or more", lambda value: isinstance(value, int | float) and value >= minimum)


def between(minimum: float, maximum: float) -> Validator:
    return Validator(
        f"between {minimum} and {maximum}",
        lambda value: isinstance(value, int | float) and minimum <= value <= maximum,
    )


def at_least_or(minimum: int, special: int) -> Validator:
    """`special` means "none" or "the system's default"."""
    return Validator(
        f"{special}, or {minimum} or more",
        lambda value: isinstance(value, int | float) and (value == special or value >= minimum),
    )


def between_or(minimum: int, maximum: int, special: int) -> Validator:
    return Validator(
        f"{special}, or between {minimum} and {maximum}",
        lambda value: isinstance(value, int | float) and (value == special or minimum <= value <= maximum),
    )


def one_of(*choices: str) -> Validator:
    return Validator("one of " + ", ".join(choices), lambda value: value in choices)


def distinct_of(*choices: str) -> Validator:
    """For lists: any of the choices, each at most once."""
    return Validator(
        "a list of distinct values from " + ", ".join(choices),
        lambda value: (
            isinstance(value, tuple) and len(frozenset(value)) == len(value) and all(item in choices for item in value)
        ),
    )


def non_empty() -> Validator:
    """For lists: at least one element, and no empty ones."""
    return Validator(
        "a list with at least one value and no empty ones",
        lambda value: isinstance(value, tuple) and len(value) > 0 and all(value),
    )


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered == "true":
        return True
    if lowered == "false":
        return False
    raise ValueError("must be true or false")


def _parse_integer(text: str, maximum: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # Python's int() also accepts underscores and digits of other scripts; Java's parser, which Kafka uses, does not.
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("must be a whole number")
    value = int(text)
    if not -maximum - 1 <= value <= maximum:
        raise ValueError(f"must be a whole number between {-maximum - 1} and {maximum}")
    return value


def _parse_double(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if "_" in text or not text.isascii() or value != value:
        raise ValueError("must be a number")
    return value


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text else ()


_PARSERS: dict[Kind, Callable[[str], Value]] = {
    Kind.BOOLEAN: _parse_boolean,
    Kind.STRING: str,
    Kind.INT: lambda text: _parse_integer(text, INT32_MAX),
    Kind.SHORT: lambda text: _parse_integer(text, INT16_MAX),
    Kind.LONG: lambda text: _parse_integer(text, INT64_MAX),
    Kind.DOUBLE: _parse_double,
    Kind.LIST: _parse_list,
    Kind.CLASS: str,
    Kind.PASSWORD: str,
}
