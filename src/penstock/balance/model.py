"""A cluster as planning sees it: brokers in racks, partitions with their replicas, and what each weighs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

NO_LEADER = -1


class Key(NamedTuple):
    """Which partition; `orders-3` for people."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Broker(msgspec.Struct, frozen=True):
    id: int
    rack: str | None = None
    in_service: bool = True
    """Not fenced, and it answered."""
    total_bytes: int | None = None
    """Of its disks; None where it does not tell."""
    usable_bytes: int | None = None


class Partition(msgspec.Struct, frozen=True, gc=False):
    """One partition. While it is reassigned, `replicas` has both those that come and those that go."""

    topic: str
    index: int
    replicas: tuple[int, ...]
    """The first one is preferred as the leader."""
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
        """The replicas it has, or will have when its reassignment is done."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def under_replicated(self) -> bool:
        """A replica that should be in sync is not; one that is being added need not be."""
        return any(broker not in self.in_sync for broker in self.replicas if broker not in self.adding)


class Load(msgspec.Struct):
    """What one broker carries."""

    replicas: int = 0
    leaders: int = 0
    """Partitions whose first replica it is: what it leads when nothing is amiss."""
    size_bytes: int = 0
    rate: float = 0.0
    """Bytes per second that it takes in, and sends to followers of what it leads."""


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
        """The rack of each broker. One without a rack is a rack of its own, so that nothing is asked of it."""
        return {broker.id: broker.rack or f"(broker {broker.id})" for broker in self.brokers.values()}

    @cached_property
    def has_racks(self) -> bool:
        return any(broker.rack for broker in self.brokers.values())

    def rack_of(self, broker: int) -> str:
        return self.racks.get(broker) or f"(broker {broker})"

    def rack_count(self, replicas: Iterable[int]) -> int:
        """Over how many racks these replicas are spread."""
        return len({self.rack_of(broker) for broker in replicas})

    def only(self, topics: Iterable[str] | None) -> list[int]:
        """The positions in `partitions` of those topics' partitions; of all if none are named."""
        if topics is None:
            return list(range(len(self.partitions)))
        wanted = frozenset(topics)
        return [position for position, one in enumerate(self.partitions) if one.topic in wanted]

    def loads(self, assignment: Mapping[tuple[str, int], Sequence[int]] | None = None) -> dict[int, Load]:
        """What each broker carries; with `assignment` in place of the replicas of the partitions that it names."""
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
    """What a replica costs its broker in bytes per second: everyone takes records in, the leader also sends them on."""
    return rate * replication_factor if leads else rate


def keeps_racks(model: ClusterModel, replicas: Sequence[int], leaving: int, coming: int) -> bool:
    """Whether the replicas are spread over as many racks with `coming` in the place of `leaving`."""
    rack = model.rack_of(coming)
    rest = [model.rack_of(broker) for broker in replicas if broker != leaving]
    return rack not in rest or model.rack_of(leaving) in rest
