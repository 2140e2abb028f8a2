"""What a trial is, as data."""

from __future__ import annotations

import math
from enum import StrEnum
from random import Random

import msgspec

from penstock.sim.cluster import BOTH, BROKER, CONTROLLER

__all__ = ["Fault", "Kind", "Schedule", "anything", "generate", "storm"]


class Kind(StrEnum):
    """What can happen to a node, to its disk, to its network, to its clock."""

    CRASH = "crash"
    """kill -9; back after `for_ms`."""
    CRASH_IN_WRITE = "crash in write"
    """Killed inside the `value`-th operation of its disk from now."""
    STOP = "stop"
    """SIGTERM, and a start after `for_ms`."""
    PAUSE = "pause"
    """SIGSTOP for so long."""
    POWER = "power"
    """Power is gone: what was not synced is lost, whole, in part or torn."""
    POWER_ALL = "power everywhere"
    """All at once; only where every append is synced."""
    WIPE = "wipe"
    """Killed, and back with an empty disk."""
    SYNC_ERROR = "sync error"
    """The next sync of a file whose name has `path` in it reports EIO."""
    READ_ERROR = "read error"
    """The next `value` reads of a file whose name has `path` in it report EIO."""
    ROT = "rot"
    """Killed; before it is back, a bit of a file whose name has `path` in it flips."""
    FULL = "full disk"
    """`value` bytes are left, for so long."""
    SLOW_DISK = "slow disk"
    """Everything on its disk takes `value` times as long."""
    DELAY = "delay"
    """Whatever it sends or is sent takes `value` ms longer."""
    REORDER = "reorder"
    """Connections overtake each other by up to `value` ms."""
    RESET = "reset"
    """All its connections are reset."""
    CUT = "cut"
    """Nothing passes between it and `other`."""
    ONE_WAY = "one-way cut"
    """Nothing passes from it to `other`."""
    ISOLATE = "isolate"
    """Nothing passes between it and other nodes; if `value`, nor between it and clients."""
    CLOCK_JUMP = "clock jump"
    """Its wall clock is `value` ms off from now on."""
    CLOCK_RATE = "clock rate"
    """Its clock runs `value` times as fast."""


LEADER, CONTROLLER_NODE, COORDINATOR = "leader", "controller", "coordinator"
"""Who is meant at that moment, where a fault does not name a node by its number."""

METADATA = "__cluster_metadata"
OFFSETS = "__consumer_offsets"
LOAD_TOPIC = "t"


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happens. Times are from the beginning of the load."""

    at_ms: int
    kind: Kind
    node: int | str = 0
    for_ms: int = 0
    other: int = 0
    value: float = 0.0
    path: str = ""

    def __str__(self) -> str:
        told = [f"{self.at_ms:>6} ms  {self.kind.value} {self.node or ''}".rstrip()]
        told += [f"to {self.other}"] if self.other else []
        told += [f"({self.value:g})"] if self.value else []
        told += [f"in {self.path}"] if self.path else []
        told += [f"for {self.for_ms} ms"] if self.for_ms else []
        return " ".join(told)


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A trial. The seed decides all that the faults do not: who is fast, which packets meet, what a disk loses."""

    seed: int
    length_ms: int
    faults: tuple[Fault, ...]
    nodes: int = 3
    roles: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    partitions: int = 2
    groups: bool = True
    topics: bool = True
    moves: bool = False
    """Whether partitions are moved to other brokers all the time."""
    pause_ms: int = 400
    found: str = ""
    """What bug it found, where it is kept for that."""

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Schedule:
        return msgspec.json.decode(data, type=cls)


STORM_EVERY = 5
LENGTHS_MS = (8_000, 12_000, 20_000, 30_000)
FAULTS_PER_10_S = (2, 3, 5)
FAULT_MS_MIN, FAULT_MS_MAX = 30, 15_000
SLOWEST_DISK = 60
WEIGHTS = (
    (Kind.CRASH, 10),
    (Kind.CRASH_IN_WRITE, 4),
    (Kind.STOP, 5),
    (Kind.PAUSE, 7),
    (Kind.POWER, 8),
    (Kind.WIPE, 2),
    (Kind.SYNC_ERROR, 3),
    (Kind.READ_ERROR, 2),
    (Kind.ROT, 2),
    (Kind.FULL, 2),
    (Kind.SLOW_DISK, 3),
    (Kind.DELAY, 4),
    (Kind.REORDER, 3),
    (Kind.RESET, 5),
    (Kind.CUT, 6),
    (Kind.ONE_WAY, 6),
    (Kind.ISOLATE, 9),
    (Kind.CLOCK_JUMP, 2),
    (Kind.CLOCK_RATE, 2),
)


def generate(seed: int) -> Schedule:
    """The schedule that belongs to a seed: mostly anything anywhere, now and then a storm."""
    return storm(seed) if seed % STORM_EVERY == 0 else anything(seed)


def storm(seed: int) -> Schedule:
    """Everything happens to whoever leads: cut off with its clients, so that it writes what nobody will ever have;
    without power for a moment; killed. Short, busy, and hard on whatever a new leader has to get right."""
    rng = Random(f"storm-{seed}")
    length_ms = rng.choice((15_000, 25_000))
    faults = []
    at_ms = rng.randrange(2_000)
    while at_ms < length_ms:
        match rng.choice((Kind.ISOLATE, Kind.ISOLATE, Kind.POWER, Kind.CRASH)):
            case Kind.ISOLATE:
                fault = Fault(at_ms, Kind.ISOLATE, LEADER, rng.randint(1_000, 12_000))
            case kind:
                fault = Fault(at_ms, kind, LEADER, rng.randint(FAULT_MS_MIN, 2_000))
        faults.append(fault)
        at_ms += rng.randint(500, 6_000)
    settings = {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "offsets.topic.num.partitions": "2",
        "replica.lag.time.max.ms": rng.choice(("1500", "4000")),
    }
    return Schedule(
        seed, length_ms, tuple(faults), settings=settings, partitions=1, groups=False, topics=False, pause_ms=150
    )


def anything(seed: int) -> Schedule:
    """Any few kinds of faults, on any node, under any load, in a cluster of any shape."""
    rng = Random(f"schedule-{seed}")
    nodes, roles = _layout(rng)
    settings = {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "replica.lag.time.max.ms": rng.choice(("1500", "4000", "10000")),
        "metadata.log.max.record.bytes.between.snapshots": rng.choice(("1500", "5000", "20971520")),
        "log.roll.ms": rng.choice(("4000", "604800000")),
    }
    if rng.random() < 0.15:
        settings["log.flush.interval.messages"] = "1"
    length_ms = rng.choice(LENGTHS_MS)
    count = max(1, rng.choice(FAULTS_PER_10_S) * length_ms // 10_000)
    always = settings.get("log.flush.interval.messages") == "1"
    # A few kinds in each trial: they meet more often than if each were one of twenty.
    kinds, weights = zip(*WEIGHTS, strict=True)
    chosen = rng.choices(kinds, weights, k=rng.choice((2, 4, 8)))
    if always:
        chosen.append(Kind.POWER_ALL)
    faults = sorted((_fault(rng, rng.choice(chosen), nodes, length_ms) for _ in range(count)), key=lambda f: f.at_ms)
    return Schedule(
        seed,
        length_ms,
        tuple(faults),
        nodes,
        roles,
        settings,
        partitions=rng.choice((1, 2)),
        groups=rng.random() < 0.7,
        topics=rng.random() < 0.6,
        pause_ms=rng.choice((400, 1000, 2000)),
    )


def _layout(rng: Random) -> tuple[int, tuple[str, ...]]:
    draw = rng.random()
    if draw < 0.75:
        return 3, ()
    if draw < 0.85:
        return 4, (BOTH, BOTH, BOTH, BROKER)
    if draw < 0.93:
        return 5, ()
    return 6, (CONTROLLER,) * 3 + (BROKER,) * 3


def _fault(rng: Random, kind: Kind, nodes: int, length_ms: int) -> Fault:
    node: int | str = rng.randint(1, nodes)
    if rng.random() < 0.5:
        node = rng.choice((LEADER, LEADER, CONTROLLER_NODE, COORDINATOR))
    at_ms = rng.randrange(length_ms)
    for_ms = round(math.exp(rng.uniform(math.log(FAULT_MS_MIN), math.log(FAULT_MS_MAX))))
    other = rng.randint(1, nodes)
    path = rng.choice(("", METADATA, LOAD_TOPIC + "-", OFFSETS))
    match kind:
        case Kind.CRASH_IN_WRITE:
            return Fault(at_ms, kind, node, for_ms, value=rng.randint(1, 40))
        case Kind.SYNC_ERROR | Kind.ROT:
            return Fault(at_ms, kind, node, for_ms, path=path)
        case Kind.READ_ERROR:
            return Fault(at_ms, kind, node, for_ms, value=rng.randint(1, 3), path=path)
        case Kind.FULL:
            return Fault(at_ms, kind, node, for_ms, value=rng.choice((0, 100, 2000)))
        case Kind.SLOW_DISK:
            return Fault(at_ms, kind, node, for_ms, value=rng.randint(5, SLOWEST_DISK))
        case Kind.DELAY | Kind.REORDER:
            return Fault(at_ms, kind, node, for_ms, value=rng.choice((10, 50, 200, 800)))
        case Kind.CUT | Kind.ONE_WAY:
            return Fault(at_ms, kind, node, for_ms, other)
        case Kind.ISOLATE:
            return Fault(at_ms, kind, node, for_ms, value=float(rng.random() < 0.3))
        case Kind.CLOCK_JUMP:
            return Fault(at_ms, kind, node, value=rng.choice((-600_000, -5_000, 5_000, 600_000)))
        case Kind.CLOCK_RATE:
            return Fault(at_ms, kind, node, for_ms, value=rng.choice((0.9, 0.98, 1.02, 1.1)))
        case Kind.RESET:
            return Fault(at_ms, kind, node)
        case Kind.POWER_ALL:
            return Fault(at_ms, kind, for_ms=min(for_ms, 3000))
        case _:
            return Fault(at_ms, kind, node, for_ms)
