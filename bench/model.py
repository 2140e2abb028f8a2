"""What a case is, what it yields, and what is aimed for."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.runner import Bench

Sample = Mapping[str, float]


class Side(Enum):
    PENSTOCK = "Penstock"
    KAFKA = "Apache Kafka"
    MOCK = "mock"

    @property
    def key(self) -> str:
        """Its name in files."""
        return self.name.lower()


class Better(Enum):
    HIGHER = "≥"
    LOWER = "≤"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a sample: how it is called, told and judged."""

    name: str
    title: str
    unit: str
    better: Better
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Target:
    """An aim for one metric of Penstock: relative to another side's, or in the metric's own unit."""

    metric: str
    bound: float
    better: Better
    against: Side | None = Side.KAFKA

    def __str__(self) -> str:
        of = "" if self.against is None else f" × {self.against.name.capitalize()}"
        return f"{self.better.value} {self.bound:g}{of}"

    def met(self, value: float) -> bool:
        return value >= self.bound if self.better is Better.HIGHER else value <= self.bound


class Case(ABC):
    """Something that can be measured on each of its sides."""

    name: str
    title: str
    metrics: Sequence[Metric]
    targets: Sequence[Target] = ()
    sides: Sequence[Side] = (Side.PENSTOCK, Side.KAFKA)
    under_load: bool = False
    """Whether it runs on the shared, warmed-up brokers; else they are stopped first, and it starts its own."""
    warmup_samples: int = 1
    """How many samples of each side are taken and thrown away first."""

    @abstractmethod
    def settings(self, bench: Bench) -> Mapping[str, object]:
        """What was asked of client and broker, for the record."""

    def prepare(self, bench: Bench, side: Side) -> None:  # noqa: B027
        """Whatever must be there before the first sample of this side."""

    @abstractmethod
    def sample(self, bench: Bench, side: Side) -> Sample: ...

    def clean_up(self, bench: Bench, side: Side) -> None:  # noqa: B027
        """Removes what `prepare` made."""


@dataclass(slots=True)
class Outcome:
    """All that a case yielded. A side that failed has the reason, and the samples up to there."""

    case: Case
    settings: Mapping[str, object]
    samples: dict[Side, list[Sample]] = field(default_factory=dict)
    failures: dict[Side, str] = field(default_factory=dict)

    def median(self, side: Side, metric: str) -> float | None:
        values = [sample[metric] for sample in self.samples.get(side, []) if metric in sample]
        return statistics.median(values) if values else None

    def ratios(self, metric: str, against: Side) -> list[float]:
        """Penstock's value to the other's, pair by pair."""
        pairs = zip(self.samples.get(Side.PENSTOCK, []), self.samples.get(against, []), strict=False)
        return [
            ours[metric] / theirs[metric]
            for ours, theirs in pairs
            if metric in ours and metric in theirs and theirs[metric] > 0
        ]

    def ratio(self, metric: str, against: Side) -> float | None:
        ratios = self.ratios(metric, against)
        return statistics.median(ratios) if ratios else None

    def reached(self, target: Target) -> float | None:
        """What the target is compared with; None when there is nothing to compare."""
        if target.against is None:
            return self.median(Side.PENSTOCK, target.metric)
        return self.ratio(target.metric, target.against)
