"""Places the replicas of new partitions: Kafka's striped, rack-aware placement.

Racks take turns, and within each rack its brokers do. Every partition starts one step further, so leaders and replicas
spread evenly ("striped"). Racks come before brokers: if a rack has only one broker, every partition with enough
replicas gets one there. The first replica, the future leader, is never on a fenced broker; other replicas are on fenced
brokers only if there are too few active ones. Starting points are random, so that small topics do not all start at the
same broker.

With racks A, B, C of three brokers each, and all starting points 0:

    partition 0   A0 B0 C0
    partition 1   B1 C1 A1
    partition 2   C2 A2 B2
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from penstock.metadata.image import BrokerRegistration
from penstock.raft.types import Randomness
from penstock.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")


def place_replicas(
    brokers: Iterable[BrokerRegistration], partitions: int, replication_factor: int, rng: Randomness
) -> list[tuple[int, ...]]:
    """Replicas for each of `count` new partitions. Raises KafkaError(INVALID_REPLICATION_FACTOR) if impossible."""
    registered = list(brokers)
    if replication_factor <= 0:
        raise _refused(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if all(broker.fenced for broker in registered):
        raise _refused("All brokers are currently fenced.")
    if replication_factor > len(registered):
        raise _refused(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(registered)} broker(s) are registered."
        )
    stripes = _Stripes(registered, rng)
    return [stripes.next(replication_factor) for _ in range(partitions)]


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class _Ring:
    """Active or fenced brokers of one rack. Each round returns every broker once, starting one further each time."""

    __slots__ = ("_brokers", "_given", "_round", "_start")

    def __init__(self, brokers: list[int], rng: Randomness) -> None:
        self._brokers = sorted(brokers)
        self._start = rng.randrange(len(brokers)) if brokers else 0
        self._given = 0
        self._round = 0

    def next(self, round_number: int) -> int | None:
        count = len(self._brokers)
        if round_number != self._round:
            self._round = round_number
            self._given = 0
            self._start += 1
        if self._given == count:
            return None
        broker = self._brokers[(self._start + self._given) % count]
        self._given += 1
        return broker

    def shuffle(self, rng: Randomness) -> None:
        shuffle(self._brokers, rng)


class _Rack:
    __slots__ = ("active", "fenced")

    def __init__(self, brokers: list[BrokerRegistration], rng: Randomness) -> None:
        self.fenced = _Ring([broker.id for broker in brokers if broker.fenced], rng)
        self.active = _Ring([broker.id for broker in brokers if not broker.fenced], rng)

    def next(self, round_number: int) -> int | None:
        broker = self.active.next(round_number)
        return self.fenced.next(round_number) if broker is None else broker


class _Stripes:
    __slots__ = ("_active_brokers", "_offset", "_racks", "_rng", "_round")

    def __init__(self, brokers: list[BrokerRegistration], rng: Randomness) -> None:
        by_rack: dict[str | None, list[BrokerRegistration]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        # Brokers without a rack form a rack that comes first.
        names = sorted(by_rack, key=lambda rack: (rack is not None, rack or ""))
        self._racks = [_Rack(by_rack[name], rng) for name in names]
        self._active_brokers = sum(1 for broker in brokers if not broker.fenced)
        self._offset = rng.randrange(len(names))
        self._round = 0
        self._rng = rng

    def next(self, replication_factor: int) -> tuple[int, ...]:
        if self._round == self._active_brokers and self._active_brokers > 1:
            # Every starting point was used once: shuffle again, or the same replica sets would repeat.
            shuffle(self._racks, self._rng)
            for rack in self._racks:
                rack.active.shuffle(self._rng)
                rack.fenced.shuffle(self._rng)
            self._round = 0
        self._offset %= len(self._racks)
        leader_rack, leader = self._leader()
        replicas = [leader]
        index = self._offset
        skip: int | None = leader_rack
        while len(replicas) < replication_factor:
            if index == skip:
                # The leader's rack already had its turn in the first lap.
                skip = None
            else:
                broker = self._racks[index].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            index = (index + 1) % len(self._racks)
        self._round += 1
        self._offset += 1
        return tuple(replicas)

    def _leader(self) -> tuple[int, int]:
        for step in range(len(self._racks)):
            index = (self._offset + step) % len(self._racks)
            broker = self._racks[index].active.next(self._round)
            if broker is not None:
                return index, broker
        raise AssertionError("no active broker, though one was counted")


def shuffle(items: list[T], rng: Randomness) -> None:
    """The Fisher–Yates shuffle, with the given source of randomness."""
    for last in range(len(items) - 1, 0, -1):
        other = rng.randrange(last + 1)
        items[last], items[other] = items[other], items[last]
