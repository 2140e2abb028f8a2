"""The planner's model of a cluster: brokers in racks, partitions with their replicas, and their sizes and rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

NO_LEADER = -1


class Key(NamedTuple):
    """A partition's identity; `str` gives `orders-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Broker(msgspec.Struct, frozen=True):
    id: int
    rack: str | None = None
    in_service: bool = True
    """Not fenced, and it answered a request."""
    total_bytes: int | None = None
    """The free space of its disks; None if it does not report it."""
    usable_bytes: int | None = None


class Partition(msgspec.Struct, frozen=True, gc=False):
    """One partition. During a reassignment, `replicas` holds both the added and the removed ones."""

    topic: str
    index: int
    replicas: tuple[int, ...]
    """The first one is the preferred leader."""
    leader: int = NO_LEADER
    in_sync: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    size_bytes: int = 0
    rate: float = 0.0
    """Bytes written to it per second."""

    @property
    def key(self) -> Key:
        return Key(self.topic, self.index)

    @property
    def moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once any reassignment in progress is done."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def under_replicated(self) -> bool:
        """Whether a replica is not in sync, other than one being added."""
        return any(broker not in self.in_sync for broker in self.replicas if broker not in self.adding)


class Load(msgspec.Struct):
    """The load of one broker."""

    replicas: int = 0
    leaders: int = 0
    """The number of partitions whose preferred leader it is."""
    size_bytes: int = 0
    rate: float = 0.0
    """Bytes per second received, plus those sent to followers of the partitions it leads."""


class ClusterModel:
    """Brokers and partitions at one moment. Partitions are sorted by topic and index."""

    def __init__(self, cluster_id: str, brokers: Iterable[Broker], partitions: Iterable[Partition]) -> None:
        self.cluster_id = cluster_id
        self.brokers: dict[int, Broker] = {one.id: one for one in sorted(brokers, key=lambda one: one.id)}
        self.partitions: list[Partition] = sorted(partitions, key=lambda one: (one.topic, one.index))

    @cached_property
    def by_key(self) -> dict[tuple[str, int], Partition]:
        return {(one.topic, one.index): one for one in self.partitions}

    @property
    def serving(self) -> list[int]:
        """The brokers that are in service."""
        return [broker.id for broker in self.brokers.values() if broker.in_service]

    @cached_property
    def racks(self) -> dict[int, str]:
        """The rack of each broker. A broker without a rack counts as a rack of its own."""
        return {broker.id: broker.rack or f"(broker {broker.id})" for broker in self.brokers.values()}

    @cached_property
    def has_racks(self) -> bool:
        return any(broker.rack for broker in self.brokers.values())

    def rack_of(self, broker: int) -> str:
        return self.racks.get(broker) or f"(broker {broker})"

    def rack_count(self, replicas: Iterable[int]) -> int:
        """The number of racks that these replicas cover."""
        return len({self.rack_of(broker) for broker in replicas})

    def only(self, topics: Iterable[str] | None) -> list[int]:
        """The positions in `partitions` of those topics' partitions; all positions if `topics` is None."""
        if topics is None:
            return list(range(len(self.partitions)))
        wanted = frozenset(topics)
        return [position for position, one in enumerate(self.partitions) if one.topic in wanted]

    def loads(self, assignment: Mapping[tuple[str, int], Sequence[int]] | None = None) -> dict[int, Load]:
        """The load of each broker; `assignment` overrides the replicas of the partitions it contains."""
        found = {broker: Load() for broker in self.brokers}
        for one in self.partitions:
            replicas: Sequence[int] = one.target
            if assignment:
                replicas = assignment.get((one.topic, one.index), replicas)
            for position, broker in enumerate(replicas):
                load = found.setdefault(broker, Load())
                load.replicas += 1
                load.size_bytes += one.size_bytes
                load.rate += traffic_of(one.rate, len(replicas), leads=position == 0)
                load.leaders += position == 0
        return found


def traffic_of(rate: float, replication_factor: int, *, leads: bool) -> float:
    """A replica's cost in bytes per second: every replica receives the records, the leader also sends them on."""
    return rate * replication_factor if leads else rate


def keeps_racks(model: ClusterModel, replicas: Sequence[int], leaving: int, coming: int) -> bool:
    """Whether the replicas still cover as many racks if `coming` replaces `leaving`."""
    rack = model.rack_of(coming)
    rest = [model.rack_of(broker) for broker in replicas if broker != leaving]
    return rack not in rest or model.rack_of(leaving) in rest
