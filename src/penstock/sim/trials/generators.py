"""The schedule of each seed.

| seeds | kind of schedule | purpose |
|---|---|---|
| every 5th (0, 5, …) | `storm` | all faults hit the current leader |
| every 5th (3, 8, …) | `pile_up` | several faults start at the same moment, while partitions are moved |
| every 10th (7, 17, …) | `alone` | one node with damaged files: it serves everything, or refuses and deletes nothing |
| others | `anything` | any faults, anywhere, in a cluster of any shape |

In every other ten seeds (10 … 19, 30 … 39, …) all but `alone` have transactions too (`transactional`).
"""

from __future__ import annotations

import math
from random import Random

from msgspec.structs import replace

from penstock.sim.cluster import BOTH, BROKER, CONTROLLER
from penstock.sim.trials.schedule import (
    CONTROLLER_NODE,
    COORDINATOR,
    FILE_DAMAGE,
    LEADER,
    LOAD_TOPIC,
    METADATA,
    OFFSETS,
    TRANSACTION_COORDINATOR,
    TRANSACTION_LEADER,
    Fault,
    Kind,
    Schedule,
)

__all__ = ["DIRECTORY", "FILES", "alone", "anything", "generate", "pile_up", "plain", "storm", "transactional"]

STORM_EVERY = PILE_UP_EVERY = 5
PILE_UP_AT = 3
ALONE_EVERY, ALONE_AT = 10, 7
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

PILE_UP_WEIGHTS = (
    (Kind.CRASH, 8),
    (Kind.DOUBLE_CRASH, 6),
    (Kind.CRASH_IN_RECOVERY, 8),
    (Kind.POWER_IN_RECOVERY, 8),
    (Kind.CRASH_IN_WRITE, 3),
    (Kind.POWER, 3),
    (Kind.PAUSE, 6),
    (Kind.SLOW_DISK, 3),
    (Kind.DELAY, 3),
    (Kind.RESET, 3),
    (Kind.CUT, 6),
    (Kind.ONE_WAY, 6),
    (Kind.RING, 6),
    (Kind.SPLIT, 3),
    (Kind.FLAP, 6),
    (Kind.ISOLATE, 5),
)
AT_ONCE_MAX = 4
RECOVERY_OPERATIONS_MAX = 30
"""A start does some twenty disk operations, and more if it has many logs to recover."""
RECOVERY_AFTER_MS_MAX = 1_000
FLAP_MS_MIN = 2_000

FILES = {
    "metadata log": f"{METADATA}-0/*.log",
    "metadata snapshot": f"{METADATA}-0/*.checkpoint",
    "quorum-state": f"{METADATA}-0/quorum-state",
    "metadata epochs": f"{METADATA}-0/leader-epoch-checkpoint",
    "synced-end": f"{METADATA}-0/synced-end*",
    "meta.properties": "meta.properties",
    "checkpoints": "*-checkpoint",
    "partition.metadata": f"{LOAD_TOPIC}-*/partition.metadata",
    "segment": f"{LOAD_TOPIC}-*/*.log",
    "offset index": f"{LOAD_TOPIC}-*/*.index",
    "time index": f"{LOAD_TOPIC}-*/*.timeindex",
    "producer snapshot": f"{LOAD_TOPIC}-*/*.snapshot",
    "leader epochs": f"{LOAD_TOPIC}-*/leader-epoch-checkpoint",
}
"""Every kind of file in a data directory, and its path pattern."""
DIRECTORY = "directory"
"""Stands for a partition's directory, which is removed as a whole."""


def generate(seed: int) -> Schedule:
    """The schedule of a seed."""
    if seed % ALONE_EVERY == ALONE_AT:
        return alone(seed)
    return transactional(seed) if seed // 10 % 2 else plain(seed)


def plain(seed: int) -> Schedule:
    """The schedule of a cluster without transactions."""
    if seed % STORM_EVERY == 0:
        return storm(seed)
    if seed % PILE_UP_EVERY == PILE_UP_AT:
        return pile_up(seed)
    return anything(seed)


def transactional(seed: int) -> Schedule:
    """The plain schedule of the seed with transactions; many faults hit their leaders and coordinators."""
    rng = Random(f"transactional-{seed}")
    schedule = plain(seed)
    targets = (TRANSACTION_LEADER, TRANSACTION_COORDINATOR, TRANSACTION_COORDINATOR)
    faults = [
        replace(fault, node=rng.choice(targets)) if isinstance(fault.node, str) and rng.random() < 0.7 else fault
        for fault in schedule.faults
    ]
    brokers = sum(role != CONTROLLER for role in schedule.roles) if schedule.roles else schedule.nodes
    settings = {
        **schedule.settings,
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    return replace(
        schedule,
        faults=tuple(faults),
        settings=settings,
        transactions=True,
        pause_ms=rng.choice((100, 200, 400)),
        # The other loads would only take time away from this one.
        groups=schedule.groups and rng.random() < 0.2,
        topics=schedule.topics and rng.random() < 0.2,
    )


def pile_up(seed: int) -> Schedule:
    """Faults in bursts: several start within a moment, and the next ones before those are over. If there are spare
    brokers, partitions are moved meanwhile."""
    rng = Random(f"pile-up-{seed}")
    nodes, roles = rng.choice(((3, ()), (3, ()), (4, (BOTH, BOTH, BOTH, BROKER)), (5, ())))
    length_ms = rng.choice((12_000, 20_000))
    kinds, weights = zip(*PILE_UP_WEIGHTS, strict=True)
    chosen = rng.choices(kinds, weights, k=6)
    faults = []
    burst_ms = rng.randrange(1_500)
    while burst_ms < length_ms:
        at_once = rng.randint(2, AT_ONCE_MAX)
        faults += [_fault(rng, rng.choice(chosen), nodes, burst_ms, 300) for _ in range(at_once)]
        burst_ms += rng.randint(1_000, 6_000)
    settings = {**_settings(rng), "log.roll.ms": rng.choice(("2000", "604800000"))}
    return Schedule(
        seed,
        length_ms,
        tuple(sorted(faults, key=lambda fault: fault.at_ms)),
        nodes,
        roles,
        settings,
        partitions=rng.choice((1, 2)),
        groups=rng.random() < 0.4,
        topics=rng.random() < 0.4,
        moves=nodes > 3,
        pause_ms=rng.choice((200, 400, 1000)),
    )


def alone(seed: int, files: str = "") -> Schedule:
    """One node, which is killed a few times under load; then it ends and one or two files are damaged, of the kind
    `files` if that is given."""
    rng = Random(f"alone-{seed}")
    length_ms = rng.choice((4_000, 8_000))
    settings = {
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "log.roll.ms": rng.choice(("1000", "3000", "604800000")),
        "metadata.log.max.record.bytes.between.snapshots": rng.choice(("1500", "20971520")),
        # A client's request must not recreate a topic that the node has lost.
        "auto.create.topics.enable": "false",
    }
    flushed = rng.random() < 0.3
    if flushed:
        settings["log.flush.interval.messages"] = "1"
    kinds = [Kind.CRASH, Kind.CRASH_IN_WRITE, Kind.CRASH_IN_RECOVERY, Kind.STOP, Kind.PAUSE, Kind.SLOW_DISK]
    kinds += [Kind.POWER_ALL] * flushed
    faults = [_fault(rng, rng.choice(kinds), 1, 0, length_ms) for _ in range(rng.randrange(4))]
    chosen = [files] if files else rng.choices([*FILES, DIRECTORY], k=rng.choice((1, 1, 1, 2)))
    places = [round(rng.choice((0.0, rng.random(), rng.random())), 3) for _ in chosen]
    damage = [
        Fault(length_ms, Kind.REMOVE if name == DIRECTORY else rng.choice(FILE_DAMAGE), 1, value=place, path=name)
        for place, name in zip(places, chosen, strict=True)
    ]
    return Schedule(
        seed,
        length_ms,
        (*sorted(faults, key=lambda fault: fault.at_ms), *damage),
        nodes=1,
        settings=settings,
        partitions=rng.choice((1, 2)),
        groups=False,
        topics=rng.random() < 0.5,
        pause_ms=rng.choice((50, 150)),
        ended_by=rng.choice((Kind.CRASH, Kind.CRASH, Kind.STOP, Kind.POWER_ALL if flushed else Kind.CRASH)),
    )


def storm(seed: int) -> Schedule:
    """All faults hit the current leader: cut off with its clients, so that it writes records that are never replicated;
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
    settings = {**_settings(rng), "log.roll.ms": rng.choice(("4000", "604800000"))}
    if rng.random() < 0.15:
        settings["log.flush.interval.messages"] = "1"
    length_ms = rng.choice(LENGTHS_MS)
    count = max(1, rng.choice(FAULTS_PER_10_S) * length_ms // 10_000)
    always = settings.get("log.flush.interval.messages") == "1"
    # Only a few kinds per trial: they coincide more often than if each were one of twenty.
    kinds, weights = zip(*WEIGHTS, strict=True)
    chosen = rng.choices(kinds, weights, k=rng.choice((2, 4, 8)))
    if always:
        chosen.append(Kind.POWER_ALL)
    faults = sorted((_fault(rng, rng.choice(chosen), nodes, 0, length_ms) for _ in range(count)), key=lambda f: f.at_ms)
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


def _settings(rng: Random) -> dict[str, str]:
    """Settings of a cluster with three replicas of everything."""
    return {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "replica.lag.time.max.ms": rng.choice(("1500", "4000", "10000")),
        "metadata.log.max.record.bytes.between.snapshots": rng.choice(("1500", "5000", "20971520")),
    }


def _layout(rng: Random) -> tuple[int, tuple[str, ...]]:
    draw = rng.random()
    if draw < 0.75:
        return 3, ()
    if draw < 0.85:
        return 4, (BOTH, BOTH, BOTH, BROKER)
    if draw < 0.93:
        return 5, ()
    return 6, (CONTROLLER,) * 3 + (BROKER,) * 3


def _fault(rng: Random, kind: Kind, nodes: int, first_ms: int, within_ms: int = 1) -> Fault:
    """A fault of this kind that starts within `within_ms` after `first_ms`."""
    node: int | str = rng.randint(1, nodes)
    if rng.random() < 0.5:
        node = rng.choice((LEADER, LEADER, CONTROLLER_NODE, COORDINATOR))
    at_ms = first_ms + rng.randrange(within_ms)
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
        case Kind.CRASH_IN_RECOVERY | Kind.POWER_IN_RECOVERY:
            operations = rng.randint(1, RECOVERY_OPERATIONS_MAX)
            return Fault(at_ms, kind, node, min(for_ms, RECOVERY_AFTER_MS_MAX), value=operations)
        case Kind.CUT | Kind.ONE_WAY | Kind.DOUBLE_CRASH:
            return Fault(at_ms, kind, node, for_ms, other)
        case Kind.RING:
            return Fault(at_ms, kind, for_ms=for_ms, value=float(rng.random() < 0.5))
        case Kind.SPLIT:
            return Fault(at_ms, kind, for_ms=for_ms, value=rng.randint(1, nodes - 1))
        case Kind.FLAP:
            return Fault(at_ms, kind, node, max(for_ms, FLAP_MS_MIN), other, value=rng.choice((150, 600, 2_000)))
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
