"""The catalogue: every rule, threshold and price that the planner uses, with its source.

A `Value` is one number that a user may replace. A `Rule` is one formula or table: where it comes from, what it needs,
what it says, and where its document slips. The functions of this package take their numbers from a `Catalogue` and name
the rules they used, so that each answer can be traced back to a sentence of a document.

Sources are the project's five seed documents, cited by number and section:

    000  Scaling Considerations         003  Distributed Message Queue System Design
    001  Scale and Constraints          004  Chapter 15: Scaling & Optimization
    002  Event Broker Scaling           Penstock: measured or decided here
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    name: str
    source: str
    formula: str
    text: str
    slip: str = ""
    """What the document says otherwise, and why the planner does not."""
    values: tuple[str, ...] = ()
    """The values of the catalogue that it uses."""


VALUES: Final[tuple[Value, ...]] = (
    # ---- partitions
    Value(
        name="partitions.minimum", value=6, unit="partitions", minimum=1,
        source="002, Partition Count Calculation", text="No topic gets fewer.",
    ),
    Value(
        name="partitions.multiple", value=6, unit="partitions", minimum=1,
        source="002, Topic Scaling Example", text="Counts are rounded up to a multiple of this: 6 divides among 2, 3 and 6 consumers.",
    ),
    Value(
        name="partitions.consumer_multiple", value=2, unit="×", minimum=1,
        source="002, Topic Scaling Example",
        text="Partitions per planned consumer, so that a group can grow. 002 calls it Consumer_Replication_Factor.",
    ),
    Value(
        name="partitions.headroom_low", value=2, unit="×", minimum=1,
        source="000, Partition Scaling", text="A current load is multiplied by at least this; a peak load is taken as it is.",
    ),
    Value(
        name="partitions.headroom_high", value=3, unit="×", minimum=1,
        source="000, Partition Scaling", text="The generous end of the headroom for a current load.",
    ),
    Value(
        name="partitions.diminishing", value=50, unit="partitions", minimum=1,
        source="004, Partition Strategy", text="Beyond this a topic gains little from more partitions.",
    ),
    Value(
        name="partitions.maximum", value=1000, unit="partitions", minimum=1,
        source="000, Partition Scaling", text="The most that a topic should have.",
    ),
    Value(
        name="partitions.per_broker", value=2000, unit="replicas per broker", minimum=1,
        source="002, Broker Scaling Thresholds", text="Beyond this, brokers are added. Counted per broker process.",
    ),
    # ---- storage
    Value(
        name="storage.headroom", value=0.3, unit="share of the disk", maximum=0.9,
        source="002, Vertical Scaling Guidelines", text="Kept free. 30 % means ÷ 0.7, which meets 002's 70 % trigger.",
    ),
    Value(
        name="storage.index_share", value=0.1, unit="share of the data", maximum=1.0,
        source="001, Message Storage", text="Offset and time indexes beside the data.",
    ),
    Value(
        name="storage.segment_bytes", value=1_073_741_824, unit="bytes", minimum=1,
        source="Kafka, segment.bytes", text="An active segment is not deleted until it is closed and its newest record has expired.",
    ),
    # ---- brokers
    Value(
        name="brokers.utilisation", value=0.7, unit="share", minimum=0.05, maximum=1.0,
        source="002, Metrics for Capacity Planning", text="The load at peak that a broker is sized for.",
    ),
    Value(
        name="brokers.utilisation_degraded", value=0.9, unit="share", minimum=0.05, maximum=1.0,
        source="002, Broker Scaling Thresholds (emergency)", text="The load at peak that the survivors of a failure may carry.",
    ),
    Value(
        name="brokers.rebuild_hours", value=8, unit="h", minimum=0.01,
        source="Penstock", text="The longest time that copying a lost broker's data back may take.",
    ),
    Value(
        name="brokers.minimum", value=3, unit="brokers", minimum=1,
        source="004, Scale Milestones", text="The smallest cluster for production.",
    ),
    # ---- network and load
    Value(
        name="load.protocol_overhead", value=0.2, unit="share", maximum=5,
        source="001, Inbound Traffic", text="Bytes on the wire beyond the records.",
    ),
    Value(
        name="load.burst", value=10, unit="×", minimum=1,
        source="001, Message Volume", text="A burst over the average rate.",
    ),
    # ---- cost, in US dollars a month
    Value(name="price.broker", value=500, unit="$ per broker", source="001, Infrastructure Costs", text="Compute."),
    Value(name="price.hot_gb", value=0.10, unit="$ per GB", source="000, Tiered Storage", text="Local disk: $100 per TB."),
    Value(name="price.warm_gb", value=0.05, unit="$ per GB", source="000, Tiered Storage", text="Slower disk: $50 per TB."),
    Value(name="price.cold_gb", value=0.02, unit="$ per GB", source="000, Tiered Storage", text="Object storage: $20 per TB."),
    Value(name="price.egress_gb", value=0.05, unit="$ per GB", source="001, Infrastructure Costs", text="Traffic that leaves."),
    Value(
        name="price.cross_zone_gb", value=0.02, unit="$ per GB",
        source="Penstock", text="Traffic between zones; clouds charge $0.01 on each side.",
    ),
    Value(name="price.load_balancer", value=50, unit="$ each", source="001, Infrastructure Costs", text="Load balancer."),
    Value(name="price.load_balancers", value=10, unit="pieces", source="001, Infrastructure Costs", text="How many."),
    Value(name="price.monitoring", value=5_000, unit="$", source="001, Infrastructure Costs", text="Monitoring."),
    Value(name="price.engineering", value=50_000, unit="$", source="001, Operational Costs", text="Two engineers."),
    Value(name="price.support", value=20_000, unit="$", source="001, Operational Costs", text="On call."),
    Value(name="price.training", value=5_000, unit="$", source="001, Operational Costs", text="Training."),
    Value(
        name="price.spot_discount", value=0.7, unit="share", maximum=1.0,
        source="000, Resource Right-Sizing", text="Saved by spot instances.",
    ),
    Value(
        name="price.reserved_discount", value=0.4, unit="share", maximum=1.0,
        source="000, Resource Right-Sizing", text="Saved by reserved instances.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The values in force: the documents' own, and what a user put in their place."""

    values: Mapping[str, Value] = field(
        default_factory=lambda: MappingProxyType({value.name: value for value in VALUES})
    )
    replaced: frozenset[str] = frozenset()
    """Names of the values that a user has set."""

    def __getitem__(self, name: str) -> float:
        return self.values[name].value

    def count(self, name: str) -> int:
        """A value that is a number of things."""
        value = self.values[name].value
        assert value == int(value), f"{name} is {value}"
        return int(value)

    def with_overrides(self, text: str, origin: str = "the overrides") -> Catalogue:
        """The catalogue with the values of a TOML document in place of the documents'. Raises PlanError."""
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(f"{origin} is not valid TOML: {error}") from None
        values = dict(self.values)
        names = []
        for name, number in _flat(tables):
            known = values.get(name)
            if known is None:
                near = get_close_matches(name, values, 1)
                hint = f"; did you mean {near[0]}?" if near else "; `penstock plan values` lists all names"
                raise PlanError(f"{origin} sets {name}, which is not a value of the catalogue{hint}")
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise PlanError(f"{origin} sets {name} to {number!r}: a number is needed ({known.unit})")
            if not known.minimum <= number <= known.maximum:
                raise PlanError(
                    f"{origin} sets {name} to {number}: it must be from {known.minimum:g} to {known.maximum:g} ({known.unit})"
                )
            values[name] = Value(
                name=name, value=number, unit=known.unit, source=origin, text=known.text,
                minimum=known.minimum, maximum=known.maximum,
            )  # fmt: skip
            names.append(name)
        return Catalogue(MappingProxyType(values), self.replaced | frozenset(names))


def _flat(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


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
    for name, value in inputs.items():
        if not 0 <= value < float("inf"):
            raise PlanError(f"{name} is {value:g}: a number of 0 or more is needed")


def within(low: float, high: float, **inputs: float) -> None:
    for name, value in inputs.items():
        if not low <= value <= high:
            raise PlanError(f"{name} is {value:g}: a number from {low:g} to {high:g} is needed")


def notes(*lines: str | None) -> tuple[str, ...]:
    """The lines that there are."""
    return tuple(line for line in lines if line)


def joined(*groups: Iterable[str]) -> tuple[str, ...]:
    """Each line once, in order."""
    return tuple(dict.fromkeys(line for group in groups for line in group))
