"""Clusters to plan for: made evenly, made by Hypothesis, and one that can be changed and that time passes in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from hypothesis import strategies as st

from penstock.balance import Broker, ClusterModel, Key, Move, Partition, Plan, Rates, Throttled


def even(
    partitions: int,
    replication_factor: int,
    brokers: int,
    *,
    empty: int = 0,
    racks: Mapping[int, str] | None = None,
    partitions_per_topic: int = 50,
    size_bytes: int = 1000,
) -> ClusterModel:
    """Replicas dealt out in turn; `empty` brokers more hold nothing."""
    made = []
    for number in range(partitions):
        replicas = tuple((number + place) % brokers + 1 for place in range(replication_factor))
        topic = f"topic-{number // partitions_per_topic:05}"
        made.append(
            Partition(
                topic,
                number % partitions_per_topic,
                replicas,
                leader=replicas[0],
                in_sync=replicas,
                size_bytes=size_bytes,
            )
        )
    total = range(1, brokers + empty + 1)
    return ClusterModel("a-cluster", [Broker(number, (racks or {}).get(number)) for number in total], made)


@st.composite
def clusters(draw: st.DrawFn, *, brokers_min: int = 2, with_racks: bool = True) -> ClusterModel:
    """Anything a cluster may have come to look like."""
    count = draw(st.integers(brokers_min, 7))
    names = st.sampled_from(["a", "b", "c"])
    racked = with_racks and draw(st.booleans())
    brokers = [Broker(number, draw(names) if racked else None) for number in range(1, count + 1)]
    made = []
    for topic in range(draw(st.integers(0, 4))):
        factor = draw(st.integers(1, min(3, count)))
        for index in range(draw(st.integers(1, 8))):
            replicas = tuple(draw(st.permutations(range(1, count + 1)))[:factor])
            made.append(
                Partition(
                    f"topic-{topic}",
                    index,
                    replicas,
                    leader=replicas[0],
                    in_sync=replicas,
                    size_bytes=draw(st.integers(0, 1_000_000)),
                    rate=draw(st.integers(0, 1000)),
                )
            )
    return ClusterModel("a-cluster", brokers, made)


def leaving(plan: Plan) -> Counter[int]:
    """How many replicas each broker gives away."""
    return Counter(broker for move in plan.moves for broker in move.leaving)


def held(model: ClusterModel, plan: Plan) -> dict[int, int]:
    return {broker: load.replicas for broker, load in model.loads(plan.assignment).items()}


def led(model: ClusterModel, plan: Plan) -> dict[int, int]:
    return {broker: load.leaders for broker, load in model.loads(plan.assignment).items()}


class Crash(Exception):
    """Whoever carried out the plan is gone."""


class SimulatedCluster:
    """A cluster behind the port, in virtual time: a copy arrives after some seconds, unless its broker is dead.

    `crash_at` ends whoever asks with the request of that number: before it takes effect, or (`after`) just after.
    """

    def __init__(self, model: ClusterModel, *, copy_s: float = 5.0) -> None:
        self.brokers = dict(model.brokers)
        self.partitions = dict(model.by_key)
        self.cluster_id = model.cluster_id
        self.copy_s = copy_s
        self.time_s = 0.0
        self.dead: set[int] = set()
        self.broker_rates: dict[int, Rates] = {}
        self.topic_throttles: dict[str, Throttled] = {}
        self.latency = 1.0
        self.most_at_once = 0
        self.unthrottled_copies = 0
        self.requests = 0
        self.crash_at: int | None = None
        self.crash_after = False
        self._started: dict[tuple[str, int], float] = {}

    # ---- what the port asks for

    def observe(self, topics: Iterable[str] | None = None, *, disks: bool = False) -> ClusterModel:
        self._request()
        self._advance()
        wanted = None if topics is None else frozenset(topics)
        brokers = [msgspec.structs.replace(one, in_service=one.id not in self.dead) for one in self.brokers.values()]
        chosen = [one for one in self.partitions.values() if wanted is None or one.topic in wanted]
        return ClusterModel(self.cluster_id, brokers, chosen)

    def copied_bytes(self, moves: Sequence[Move]) -> int:
        copied = 0
        for move in moves:
            one = self.partitions[(move.topic, move.index)]
            if not one.moving:
                copied += move.bytes_to_move
            elif not self.dead & set(one.adding):
                started_s = self._started[(move.topic, move.index)]
                copied += int(move.bytes_to_move * min(1.0, (self.time_s - started_s) / self.copy_s))
        return copied

    def reassign(self, targets: Mapping[Key, tuple[int, ...] | None]) -> None:
        self._request()
        for key, replicas in targets.items():
            self._reassign((key[0], key[1]), replicas)
        self.most_at_once = max(self.most_at_once, sum(one.moving for one in self.partitions.values()))
        self._crash_after()

    def elect(self, keys: Sequence[Key]) -> None:
        self._request()
        for key in keys:
            one = self.partitions[key[0], key[1]]
            if one.replicas[0] in one.in_sync:
                self.partitions[key[0], key[1]] = msgspec.structs.replace(one, leader=one.replicas[0])

    def rates(self, brokers: Sequence[int]) -> dict[int, Rates]:
        return {broker: self.broker_rates.get(broker, (None, None)) for broker in brokers if broker not in self.dead}

    def set_rates(self, rates: Mapping[int, Rates]) -> None:
        self._request()
        self.broker_rates.update(rates)
        self._crash_after()

    def throttled(self, topics: Sequence[str]) -> dict[str, Throttled]:
        return {topic: self.topic_throttles.get(topic, Throttled()) for topic in topics}

    def set_throttled(self, topics: Mapping[str, Throttled]) -> None:
        self._request()
        self.topic_throttles.update(topics)
        self._crash_after()

    def latency_ms(self) -> float:
        return self.latency

    def now_s(self) -> float:
        return self.time_s

    def pause(self, seconds: float) -> None:
        self.time_s += seconds

    # ---- what a test looks at

    @property
    def throttles_left(self) -> bool:
        rates = any(pair != (None, None) for pair in self.broker_rates.values())
        return rates or any(one != Throttled() for one in self.topic_throttles.values())

    def settle(self) -> None:
        """Time passes until whatever moves has arrived."""
        self.time_s += 10 * self.copy_s
        self._advance()

    # ---- inside

    def _reassign(self, key: tuple[str, int], replicas: tuple[int, ...] | None) -> None:
        one = self.partitions[key]
        before = tuple(broker for broker in one.replicas if broker not in one.adding)
        self._started.pop(key, None)
        if replicas is None or set(replicas) == set(before):
            after = before if replicas is None else replicas
            in_sync = tuple(broker for broker in one.in_sync if broker in after)
            leader = one.leader if one.leader in after else after[0]
            self.partitions[key] = msgspec.structs.replace(
                one, replicas=after, adding=(), removing=(), in_sync=in_sync, leader=leader
            )
            return
        removing = tuple(broker for broker in before if broker not in replicas)
        adding = tuple(broker for broker in replicas if broker not in before)
        self.partitions[key] = msgspec.structs.replace(
            one, replicas=(*replicas, *removing), adding=adding, removing=removing
        )
        self._started[key] = self.time_s
        entries = self.topic_throttles.get(key[0], Throttled()).followers
        if any(f"{key[1]}:{broker}" not in entries for broker in adding):
            self.unthrottled_copies += 1

    def _advance(self) -> None:
        for key, started_s in list(self._started.items()):
            one = self.partitions[key]
            if self.time_s - started_s >= self.copy_s and not self.dead & set(one.adding):
                after = one.target
                leader = one.leader if one.leader in after else after[0]
                self.partitions[key] = msgspec.structs.replace(
                    one, replicas=after, adding=(), removing=(), in_sync=after, leader=leader
                )
                del self._started[key]

    def _request(self) -> None:
        self.requests += 1
        if self.requests == self.crash_at and not self.crash_after:
            raise Crash

    def _crash_after(self) -> None:
        if self.requests == self.crash_at and self.crash_after:
            raise Crash
