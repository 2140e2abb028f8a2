"""What the monitor knows of a cluster. Plain values: the collector fills them in, `derive` reads them.

The parts are sampled at different times (`pace`), so each part that rates are computed from keeps its last two readings
with their times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

Place = tuple[str, int]
"""A topic and the number of a partition."""


class PartitionShape(NamedTuple):
    number: int
    leader: int
    """−1 if there is none."""
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicShape(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionShape, ...]


class BrokerShape(NamedTuple):
    node_id: int
    address: str
    rack: str | None
    is_up: bool
    answer_ms: float | None = None
    """How long it took to answer a small request; None if it did not."""


@dataclass(slots=True, kw_only=True)
class Shape:
    """Brokers, topics and who leads what."""

    cluster_id: str = ""
    controller_id: int = -1
    brokers: dict[int, BrokerShape] = field(default_factory=dict)
    topics: dict[str, TopicShape] = field(default_factory=dict)
    reassigning: frozenset[Place] = frozenset()
    under_min_isr: tuple[Place, ...] | None = None
    """None if the topics' settings could not be read."""

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def offline(self) -> list[Place]:
        return [(t.name, p.number) for t in self.topics.values() for p in t.partitions if p.leader < 0]

    def under_replicated(self) -> list[Place]:
        return [
            (t.name, p.number) for t in self.topics.values() for p in t.partitions if len(p.in_sync) < len(p.replicas)
        ]

    def down(self) -> list[int]:
        """Brokers that hold replicas, or are registered, and do not serve."""
        placed = {broker for t in self.topics.values() for p in t.partitions for broker in p.replicas}
        known = placed | self.brokers.keys()
        return sorted(broker for broker in known if broker not in self.brokers or not self.brokers[broker].is_up)


class Disk(NamedTuple):
    """The log directories of one broker."""

    total_bytes: int | None
    usable_bytes: int | None
    sizes: dict[str, dict[int, int]]
    """Bytes of each replica, by topic and partition."""
    behind: dict[Place, int]
    """Records that a replica lacks, for those that lack some."""


class GroupView(NamedTuple):
    name: str
    state: str
    protocol: str
    """`classic` or `consumer`."""
    coordinator: int
    committed: dict[Place, int]
    members: int | None = None
    assignor: str = ""
    assigned: tuple[tuple[Place, ...], ...] = ()
    """The partitions of each member, if they were asked for."""


Scrape = Mapping[str, float]
"""Series of a Prometheus endpoint, by name with labels, as they are written there."""


@dataclass(slots=True)
class Reading(Generic[T]):
    """The last two readings of something, with the monotonic time of each in seconds."""

    value: T | None = None
    at_s: float = 0.0
    before: T | None = None
    before_s: float = 0.0

    def take(self, value: T, now_s: float) -> None:
        self.before, self.before_s = self.value, self.at_s
        self.value, self.at_s = value, now_s

    @property
    def interval_s(self) -> float:
        """The time between the two readings; 0 if there is only one."""
        return self.at_s - self.before_s if self.before is not None else 0.0


Ends = dict[str, list[int]]
"""High watermarks by topic, one for each partition; −1 where it is unknown."""


@dataclass(slots=True, kw_only=True)
class Observed:
    """Everything that is known now."""

    shape: Shape = field(default_factory=Shape)
    ends: Reading[Ends] = field(default_factory=Reading)
    starts: Ends = field(default_factory=dict)
    """The first offsets of the logs."""
    disks: dict[int, Reading[Disk]] = field(default_factory=dict)
    groups: Reading[dict[str, GroupView]] = field(default_factory=Reading)
    scrapes: dict[int, Reading[Scrape]] = field(default_factory=dict)
    """By broker."""
    pipelines: dict[str, Reading[Scrape]] = field(default_factory=dict)
    """By name; a value of None means that the endpoint did not answer."""
    pipelines_up: dict[str, bool] = field(default_factory=dict)
    lag_s: dict[str, float] = field(default_factory=dict)
    """Age of the oldest unread record of a group, where it is known."""
    behind_since_s: dict[tuple[int, Place], float] = field(default_factory=dict)
    """Since when a replica of a broker has been behind."""
    problems: list[str] = field(default_factory=list)
    """What could not be read in this round."""
