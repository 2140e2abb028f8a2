"""The documents' tables (L3, L4, L10, registry, regions, replication), as data with look-ups.

Where a look-up takes a number, bounds belong to the higher class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from penstock.planning.catalogue import Rule, not_negative, within

VERTICAL_MATRIX: Final = Rule(
    name="vertical-matrix",
    source="002, Scaling Decision Matrix",
    formula="CPU × network, memory × GC pressure → what to scale",
    text="For Penstock's brokers, which have no JVM, the event loop's stall at p99 (20 and 100 ms) stands for GC pressure, and "
    "resident memory for the heap. Network bands are 50 and 70 %.",
)
VERTICAL_SIZES: Final = Rule(
    name="vertical-sizes",
    source="002, Vertical Scaling Guidelines; 001, Vertical Scaling",
    formula="a table: start, increment and maximum for each resource",
    text="001 allows larger machines: 128 cores, 512 GB of memory, 100 Gbps.",
)
HORIZONTAL: Final = Rule(
    name="horizontal-thresholds",
    source="002, Broker Scaling Thresholds",
    formula="a table: warning, scaling, emergency",
    text="Message rate and utilisation in shares of what was tested, partitions per broker, request latency at p95.",
    slip="70 % CPU is both the trigger of 002's metrics table and the warning of this one.",
)
MILESTONES_RULE: Final = Rule(
    name="milestones",
    source="004, Scale Milestones",
    formula="a table: throughput → brokers and partitions per topic",
    text="Where a cluster stands, and what the next step is.",
)
REGISTRY: Final = Rule(
    name="registry-sizing",
    source="002, Schema Registry Sizing Guidelines",
    formula="a table: schemas → instances, memory, cores",
    text="5,000 schemas are in the higher class.",
)
REPLICATION: Final = Rule(
    name="replication-factor",
    source="000, Replication Factor Trade-offs",
    formula="a table: 1, 2, 3, 5",
    text="What each factor survives and costs.",
    slip="'RF 3 survives 2' and 'RF 5 survives 4' are true of the data. With min.insync.replicas=2, acks=all keeps writing through 1 "
    "and 3 failures.",
)
REGIONS_RULE: Final = Rule(
    name="regions",
    source="002, Multi-Region Deployment Models",
    formula="active-passive 2 ×; active-active own + all others; hub the sum of all; mesh own + N − 1 copies",
    text="How much capacity each region needs, in shares of one region's load.",
)
CONSUMERS: Final = Rule(
    name="consumer-scaling",
    source="002, Consumer Scaling Guidelines; 000, Consumer Scaling",
    formula="a table: lag, CPU, throughput → warning and scaling",
    text="Never more consumers than partitions: the rest are idle.",
)


class Level(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Action(StrEnum):
    NONE = "no change"
    CPU = "scale CPU"
    NETWORK = "scale network"
    BOTH = "scale CPU and network"
    MEMORY = "scale memory"


def level(value: float, medium_from: float, high_above: float) -> Level:
    """002's bands: low below the first bound, high above the second."""
    if value > high_above:
        return Level.HIGH
    return Level.LOW if value < medium_from else Level.MEDIUM


_LOW, _MEDIUM, _HIGH = Level.LOW, Level.MEDIUM, Level.HIGH
CPU_NETWORK: Final[dict[tuple[Level, Level], Action]] = {
    # (network, CPU)
    (_LOW, _LOW): Action.NONE, (_LOW, _MEDIUM): Action.NONE, (_LOW, _HIGH): Action.CPU,
    (_MEDIUM, _LOW): Action.NONE, (_MEDIUM, _MEDIUM): Action.NETWORK, (_MEDIUM, _HIGH): Action.BOTH,
    (_HIGH, _LOW): Action.NETWORK, (_HIGH, _MEDIUM): Action.NETWORK, (_HIGH, _HIGH): Action.BOTH,
}  # fmt: skip
MEMORY_STALLS: Final[dict[tuple[Level, Level], Action]] = {
    # (stalls, memory)
    (_LOW, _LOW): Action.NONE, (_LOW, _MEDIUM): Action.NONE, (_LOW, _HIGH): Action.MEMORY,
    (_MEDIUM, _LOW): Action.NONE, (_MEDIUM, _MEDIUM): Action.MEMORY, (_MEDIUM, _HIGH): Action.MEMORY,
    (_HIGH, _LOW): Action.MEMORY, (_HIGH, _MEDIUM): Action.MEMORY, (_HIGH, _HIGH): Action.MEMORY,
}  # fmt: skip


def scale_cpu_or_network(*, cpu: float, network: float) -> Action:
    """Shares of what there is, 0 to 1."""
    within(0, 1, cpu=cpu, network=network)
    return CPU_NETWORK[level(network, 0.5, 0.7), level(cpu, 0.5, 0.7)]


def scale_memory(*, memory: float, stall_p99_ms: float) -> Action:
    within(0, 1, memory=memory)
    not_negative(stall_p99_ms=stall_p99_ms)
    return MEMORY_STALLS[level(stall_p99_ms, 20, 100), level(memory, 0.6, 0.8)]


@dataclass(frozen=True, slots=True)
class Size:
    resource: str
    unit: str
    start: float
    increment: float
    maximum: float
    maximum_large: float
    """001's."""

    def next_size(self, needed: float, *, large: bool = False) -> float | None:
        """The smallest size of the table that has so much; None if the resource must be spread over more brokers."""
        size = self.start
        most = self.maximum_large if large else self.maximum
        while size < needed:
            size += self.increment
        return size if size <= most else None


SIZES: Final = (
    Size("cpu", "cores", 8, 4, 32, 128),
    Size("memory", "GB", 32, 16, 128, 512),
    Size("heap", "GB (JVM)", 16, 8, 64, 64),
    Size("disk", "TB", 1, 0.5, 5, 5),
    Size("iops", "IO/s", 3_000, 1_000, 10_000, 1_000_000),
    Size("network", "Gbps", 10, 10, 40, 100),
)


class Urgency(StrEnum):
    HEALTHY = "healthy"
    WARNING = "warning"
    SCALE = "scale"
    EMERGENCY = "emergency"


class Threshold(NamedTuple):
    metric: str
    unit: str
    warning: float
    scale: float
    emergency: float

    def judge(self, value: float) -> Urgency:
        if value > self.emergency:
            return Urgency.EMERGENCY
        if value > self.scale:
            return Urgency.SCALE
        return Urgency.WARNING if value > self.warning else Urgency.HEALTHY


THRESHOLDS: Final = (
    Threshold("message rate", "share of the tested maximum", 0.7, 0.8, 0.9),
    Threshold("partitions", "replicas per broker", 1_500, 2_000, 2_500),
    Threshold("request latency p95", "ms", 10, 20, 50),
    Threshold("utilisation", "share, sustained", 0.7, 0.8, 0.9),
)


class CapacityMetric(NamedTuple):
    metric: str
    measured: str
    trigger: str


CAPACITY_METRICS: Final = (
    CapacityMetric("CPU utilisation", "average and peak", "> 70 % sustained"),
    CapacityMetric("memory usage", "share, stalls of the event loop (GC pauses on a JVM)", "> 80 % or growing stalls"),
    CapacityMetric("disk utilisation", "share, growth", "> 70 %"),
    CapacityMetric("disk IOPS", "reads and writes per second", "near the provisioned limit"),
    CapacityMetric("network throughput", "MB/s in and out", "> 70 % of the interface"),
    CapacityMetric("message rate", "messages per second", "near the tested limit"),
    CapacityMetric("partition count", "replicas per broker", "> 2,000"),
    CapacityMetric("request queue time", "p95 and p99", "growing"),
    CapacityMetric("consumer lag", "records, seconds", "persistent or growing"),
)


class Milestone(NamedTuple):
    name: str
    from_mb_s: float
    brokers: str
    brokers_min: int
    partitions: str


MILESTONES: Final = (
    Milestone("small", 0, "3", 3, "3–6"),
    Milestone("medium", 10, "5–7", 5, "10–20"),
    Milestone("large", 100, "10+", 10, "30–50"),
    Milestone("enterprise", 1_000, "20+", 20, "100+"),
)


class RegistrySize(NamedTuple):
    from_schemas: int
    instances: int
    memory_gb: int
    cores: int


REGISTRY_SIZES: Final = (
    RegistrySize(0, 3, 2, 2),
    RegistrySize(1_000, 5, 4, 4),
    RegistrySize(5_000, 7, 8, 4),
    RegistrySize(10_001, 9, 16, 8),
)


class ReplicationTradeOff(NamedTuple):
    factor: int
    storage: str
    data_survives: int
    advantages: str
    drawbacks: str


REPLICATION_FACTORS: Final = (
    ReplicationTradeOff(1, "1 ×", 0, "highest throughput, lowest latency and cost", "any failure loses data"),
    ReplicationTradeOff(2, "2 ×", 1, "good throughput, low latency", "no safety during maintenance"),
    ReplicationTradeOff(3, "3 ×", 2, "safe for production: recommended", "three times the disk"),
    ReplicationTradeOff(5, "5 ×", 4, "maximum durability", "lower throughput, higher latency, five times the disk"),
)


class Region(StrEnum):
    STANDBY = "active-passive"
    ACTIVE = "active-active"
    HUB = "hub"
    MESH = "mesh"


def region_capacity(model: Region, loads_mb_s: Sequence[float]) -> list[float]:
    """What each region must be able to take, in MB/s; for a hub the first one is the hub."""
    not_negative(**{f"load of region {number}": load for number, load in enumerate(loads_mb_s, 1)})
    total = sum(loads_mb_s)
    match model:
        case Region.STANDBY:
            # Every region can take over the first one's load.
            return [max(loads_mb_s)] * len(loads_mb_s)
        case Region.ACTIVE | Region.MESH:
            # Own load, and a copy of everyone else's.
            return [total] * len(loads_mb_s)
        case Region.HUB:
            return [total, *loads_mb_s[1:]]


def cross_region_mb_s(model: Region, loads_mb_s: Sequence[float]) -> float:
    """What is copied between regions."""
    match model:
        case Region.STANDBY:
            return loads_mb_s[0] * (len(loads_mb_s) - 1) if loads_mb_s else 0.0
        case Region.HUB:
            return sum(loads_mb_s[1:])
        case Region.ACTIVE | Region.MESH:
            return sum(loads_mb_s) * (len(loads_mb_s) - 1)


T = TypeVar("T")


def row_for(rows: Sequence[T], value: float, starts: Sequence[float]) -> T:
    """The last row that begins at or below the value."""
    not_negative(value=value)
    return [row for row, start in zip(rows, starts, strict=True) if value >= start][-1]


def milestone(mb_s: float) -> tuple[Milestone, Milestone | None]:
    """Where a cluster stands, and the next step."""
    here = row_for(MILESTONES, mb_s, [one.from_mb_s for one in MILESTONES])
    place = MILESTONES.index(here)
    return here, MILESTONES[place + 1] if place + 1 < len(MILESTONES) else None


def registry_size(schemas: int) -> RegistrySize:
    return row_for(REGISTRY_SIZES, schemas, [one.from_schemas for one in REGISTRY_SIZES])


def useful_consumers(consumers: int, partitions: int) -> tuple[int, int]:
    """(busy, idle)"""
    busy = min(consumers, partitions)
    return busy, consumers - busy
