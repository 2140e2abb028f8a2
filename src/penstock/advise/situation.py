"""Everything that advice is based on. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.monitor.history import Span
from penstock.monitor.observed import Observed
from penstock.monitor.samples import Kind, MetricSample
from penstock.planning.catalogue import Catalogue

SUSTAINED_SAMPLES_MIN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySample:
    """Some of the newest records of a topic."""

    keys: Sequence[tuple[bytes | None, int]]
    """Key and partition of each record."""
    values: Sequence[bytes | None] = ()
    """Their values, in the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """Settings and contents of a topic that figures do not tell."""

    retention_ms: int | None = None
    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    stored_codec: str = ""
    """The codec of its newest batches; empty if unknown."""
    sampled_ratio: Mapping[str, float] = field(default_factory=dict)
    """How many times smaller its newest records would be, by codec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    observed: Observed
    samples: Sequence[MetricSample] = ()
    """The newest."""
    history: Span | None = None
    facts: Mapping[str, TopicFacts] = field(default_factory=dict)
    keys: Mapping[str, KeySample] = field(default_factory=dict)
    per_consumer_per_s: float | None = None
    """What one consumer can process, measured by the user; None: as fast as the members are now."""
    per_partition_mb_s: float | None = None
    """What one partition takes, from a calibration; None: unknown, and no advice depends on it."""
    message_rate_max: float | None = None
    """The tested maximum of one broker, in records/s."""
    catalogue: Catalogue = field(default_factory=Catalogue)

    _newest: dict[tuple[Kind, str, str], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _median: dict[tuple[Kind, str, str], float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._newest.update({(one.kind, one.name, one.metric): one.value for one in self.samples})
        series: dict[tuple[Kind, str, str], list[float]] = {}
        for one in self.history.samples if self.history is not None else ():
            series.setdefault((one.kind, one.name, one.metric), []).append(one.value)
        for key, values in series.items():
            if len(values) >= SUSTAINED_SAMPLES_MIN:
                self._median[key] = sorted(values)[len(values) // 2]

    def value(self, kind: Kind, name: str, metric: str) -> float | None:
        """The newest value; None if it is unknown."""
        return self._newest.get((kind, name, metric))

    def names(self, kind: Kind) -> list[str]:
        return sorted({name for one, name, _ in self._newest if one is kind})

    def sustained(self, kind: Kind, name: str, metric: str) -> float | None:
        """The median of the history, if there is one, and otherwise the newest value: a peak is no trigger."""
        key = (kind, name, metric)
        return self._median[key] if key in self._median else self._newest.get(key)
