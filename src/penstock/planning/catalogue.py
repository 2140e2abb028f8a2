"""The catalogue: what a value and a rule are, the values in force, and what all answers have in common.

A `Value` is one number that a user may replace. A `Rule` is one formula or table: its source, its inputs, what it says,
and where its document slips. The functions of this package take their numbers from a `Catalogue` and name the rules
they used, so that each answer can be traced back to a sentence of a document.

Sources are the five documents that the project began with, cited by number and section:

    000  Scaling Considerations         003  Distributed Message Queue System Design
    001  Scale and Constraints          004  Chapter 15: Scaling & Optimization
    002  Event Broker Scaling           Penstock: measured or decided here
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import isfinite
from types import MappingProxyType

from penstock.planning.toml_lines import line_of


class PlanError(Exception):
    """The question cannot be answered as it was asked. The message says why, and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A threshold, factor or price. A user replaces it in a TOML file under its name."""

    name: str
    """Dotted: the first word is the table of the TOML file."""
    value: float
    unit: str
    source: str
    text: str
    minimum: float = 0.0
    maximum: float = float("inf")
    whole: bool = False
    """A number of things, which has no fraction."""

    @property
    def shown(self) -> str:
        return f"{self.value:,.10g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One formula or table of the documents."""

    name: str
    source: str
    formula: str
    text: str
    inputs: tuple[tuple[str, str], ...] = ()
    """Each input and its unit; see `units`."""
    slip: str = ""
    """What the document says otherwise, and why the planner does not."""
    values: tuple[str, ...] = ()
    """The values of the catalogue that it uses."""


def units(**inputs: str) -> tuple[tuple[str, str], ...]:
    """The inputs of a rule with their units: `units(peak_mb_s="MB/s")`."""
    return tuple(inputs.items())


def _documented() -> Mapping[str, Value]:
    from penstock.planning.values import VALUES

    return MappingProxyType({value.name: value for value in VALUES})


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The values in force: the documents' own, and what a user put in their place."""

    values: Mapping[str, Value] = field(default_factory=_documented)
    replaced: frozenset[str] = frozenset()
    """Names of the values that a user has set."""

    def __getitem__(self, name: str) -> float:
        return self.values[name].value

    def count(self, name: str) -> int:
        """A value that is a number of things."""
        value = self.values[name]
        assert value.whole, f"{name} is not declared as a whole number"
        return int(value.value)

    def with_overrides(self, text: str, origin: str = "the overrides") -> Catalogue:
        """The catalogue with the values of a TOML document in place of the documents'. Raises PlanError."""
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(f"{origin} is not valid TOML: {error}") from None
        return self.with_values(
            dict(leaves(tables)),
            lambda path: f"{origin}, line {line_of(text, path)}: {'.'.join(path)}",
            origin,
        )

    def with_values(
        self, given: Mapping[tuple[str, ...], object], told: Callable[[tuple[str, ...]], str], origin: str
    ) -> Catalogue:
        """The catalogue with some values replaced; `told` names an entry in an error."""
        values = dict(self.values)
        names = []
        for path, number in given.items():
            name = ".".join(path)
            known = values.get(name)
            if known is None:
                near = get_close_matches(name, values, 1)
                hint = f"; did you mean {near[0]}?" if near else "; `penstock plan values` lists all names"
                raise PlanError(f"{told(path)} is not a value of the catalogue{hint}")
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise PlanError(f"{told(path)} is {number!r}: a number is needed ({known.unit})")
            if not isfinite(number) or not known.minimum <= number <= known.maximum:
                bound = f"from {known.minimum:g} to {known.maximum:g}"
                if known.maximum == float("inf"):
                    bound = f"{known.minimum:g} or more"
                raise PlanError(f"{told(path)} is {number}: it must be {bound} ({known.unit})")
            if known.whole and number != int(number):
                raise PlanError(f"{told(path)} is {number}: a whole number is needed ({known.unit})")
            values[name] = replace(known, value=number, source=origin)
            names.append(name)
        return Catalogue(MappingProxyType(values), self.replaced | frozenset(names))


def leaves(tables: Mapping[str, object], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The entries of a TOML document, each with the path of keys that leads to it."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What all answers have: why, what to bear in mind, and which rules were used."""

    reasons: tuple[str, ...] = ()
    """How the figures came about, in order."""
    notes: tuple[str, ...] = ()
    """Warnings, assumptions, and where documents differ."""
    rules: tuple[str, ...] = ()


def positive(**inputs: float) -> None:
    """Raises PlanError unless all of these inputs are greater than zero."""
    for name, value in inputs.items():
        if not 0 < value < float("inf"):
            raise PlanError(f"{name} is {value:g}: a number above 0 is needed")


def not_negative(**inputs: float) -> None:
    """Raises PlanError unless all of these inputs are zero or greater."""
    for name, value in inputs.items():
        if not 0 <= value < float("inf"):
            raise PlanError(f"{name} is {value:g}: a number of 0 or more is needed")


def within(low: float, high: float, **inputs: float) -> None:
    """Raises PlanError unless all of these inputs are between the bounds, bounds included."""
    for name, value in inputs.items():
        if not low <= value <= high:
            raise PlanError(f"{name} is {value:g}: a number from {low:g} to {high:g} is needed")


def notes(*lines: str | None) -> tuple[str, ...]:
    """The lines without those that are None."""
    return tuple(line for line in lines if line)


def joined(*groups: Iterable[str]) -> tuple[str, ...]:
    """Each line once, in order."""
    return tuple(dict.fromkeys(line for group in groups for line in group))
