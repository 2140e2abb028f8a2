"""The documents' tables (L3, L4, L10, registry, regions, replication), as data with look-ups.

Where a look-up takes a number, bounds belong to the higher class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final, NamedTuple, TypeVar

from penstock.planning.catalogue import Catalogue, Rule, not_negative, units, within

VERTICAL_MATRIX: Final = Rule(
    name="vertical-matrix",
    source="002, Scaling Decision Matrix",
    formula="CPU × network, memory × GC pressure → what to scale",
    text="For Penstock's brokers, which have no JVM, the event loop's stall at p99 (20 and 100 ms) stands for GC "
    "pressure, and resident memory for the heap. Network bands are 50 and 70 %.",
    inputs=units(cpu="share", network="share", memory="share", stall_p99_ms="ms"),
    values=(
        "band.cpu_medium",
        "band.cpu_high",
        "band.network_medium",
        "band.network_high",
        "band.memory_medium",
        "band.memory_high",
        "band.stall_p99_ms_medium",
        "band.stall_p99_ms_high",
    ),
)
VERTICAL_SIZES: Final = Rule(
    name="vertical-sizes",
    source="002, Vertical Scaling Guidelines; 001, Vertical Scaling",
    formula="a table: start, increment and maximum for each resource",
    text="001 allows larger machines: 128 cores, 512 GB of memory, 100 Gbps, 1 M IOPS per drive.",
    inputs=units(needed="cores, GB, TB, IO/s or Gbps"),
)
HORIZONTAL: Final = Rule(
    name="horizontal-thresholds",
    source="002, Broker Scaling Thresholds",
    formula="a table: warning, scaling, emergency",
    text="Message rate and utilisation in shares of what was tested, partitions per broker, request latency at p95.",
    inputs=units(
        message_rate="share of the tested maximum",
        partitions="replicas per broker",
        request_p95_ms="ms",
        utilisation="share, sustained",
    ),
    slip="70 % CPU is both the trigger of 002's metrics table and the warning of this one. 001's 30,000 replicas and "
    "6,000 connections per broker exceed 002's emergency level of 2,500 and 003's limit of 1,000.",
    values=tuple(
        f"threshold.{metric}_{bound}"
        for metric in ("message_rate", "partitions", "request_p95_ms", "utilisation")
        for bound in ("warning", "scale", "emergency")
    ),
)
CAPACITY_METRICS_RULE: Final = Rule(
    name="capacity-metrics",
    source="002, Metrics for Capacity Planning",
    formula="a table: metric, how it is measured, what triggers scaling",
    text="The nine metrics to watch.",
)
MILESTONES_RULE: Final = Rule(
    name="milestones",
    source="004, Scale Milestones",
    formula="a table: throughput → brokers and partitions per topic",
    text="Where a cluster stands, and what the next step is. Bounds belong to the higher class: 100 MB/s is Large.",
    inputs=units(mb_s="MB/s"),
)
REGISTRY: Final = Rule(
    name="registry-sizing",
    source="002, Schema Registry Sizing Guidelines",
    formula="a table: schemas → instances, memory, cores",
    text="5,000 schemas are in the higher class.",
    inputs=units(schemas="active schemas"),
    slip="5,000 is in two of its classes.",
)
REPLICATION: Final = Rule(
    name="replication-factor",
    source="000, Replication Factor Trade-offs",
    formula="a table: 1, 2, 3, 5",
    text="What each factor survives and costs.",
    inputs=units(replication_factor="copies"),
    slip="'RF 3 survives 2' and 'RF 5 survives 4' are true of the data. With min.insync.replicas=2, acks=all keeps "
    "writing through 1 and 3 failures.",
)
REGIONS_RULE: Final = Rule(
    name="regions",
    source="002, Multi-Region Deployment Models",
    formula="standby: the primary's load; active-active and mesh: own + all others'; hub: the sum; spokes: their own",
    text="The load that each region must be able to take, and what is copied between them. In a mesh each region "
    "copies "
    "to N − 1 others.",
    inputs=units(loads_mb_s="MB/s of each region"),
)
CONSUMERS: Final = Rule(
    name="consumer-scaling",
    source="002, Consumer Scaling Guidelines; 000, Consumer Scaling",
    formula="⌈load ÷ (benchmark of one consumer × 70 %)⌉, at most one per partition; a table: warning and scaling",
    text="A static consumer count. More consumers than partitions are idle.",
    inputs=units(mb_s="MB/s", per_consumer_mb_s="MB/s", partitions="partitions"),
    values=tuple(
        f"consumer.{metric}_{bound}"
        for metric in ("lag_records", "lag_s", "cpu", "throughput")
        for bound in ("warning", "scale")
    ),
)

ALERTING: Final = Rule(
    name="alerting",
    source="000, Alerting Rules; 000, Key Metrics",
    formula="a table: metric, bound, severity",
    text="The bounds of `penstock alerts rules`, beside the thresholds of 002. Values that only mean that a broker is "
    "idle inform and do not alarm.",
    values=tuple(
        f"alert.{name}"
        for name in (
            *("offline_partitions", "under_replicated_partitions", "under_replicated_any", "under_min_isr_partitions"),
            *("active_controllers", "brokers_down", "lag_records_critical", "lag_records_warning", "request_p99_ms"),
            *("replica_lag_ms", "disk_used", "cpu", "messages_in_healthy", "bytes_in_healthy", "bytes_out_healthy"),
            "pipeline_up",
        )
    ),
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


def _band(catalogue: Catalogue, name: str, value: float) -> Level:
    return level(value, catalogue[f"band.{name}_medium"], catalogue[f"band.{name}_high"])


def scale_cpu_or_network(catalogue: Catalogue, *, cpu: float, network: float) -> Action:
    """Which of the two to scale; both are shares of what there is, 0 to 1."""
    within(0, 1, cpu=cpu, network=network)
    return CPU_NETWORK[_band(catalogue, "network", network), _band(catalogue, "cpu", cpu)]


def scale_memory(catalogue: Catalogue, *, memory: float, stall_p99_ms: float) -> Action:
    """Whether to scale memory."""
    within(0, 1, memory=memory)
    not_negative(stall_p99_ms=stall_p99_ms)
    return MEMORY_STALLS[_band(catalogue, "stall_p99_ms", stall_p99_ms), _band(catalogue, "memory", memory)]


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
        most = self.maximum_large if large else self.maximum
        if needed > most:
            return None
        size = self.start + max(0, ceil(round((needed - self.start) / self.increment, 9))) * self.increment
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
    """One row of 002's table; the bounds are values of the catalogue."""

    metric: str
    text: str
    unit: str

    def bounds(self, catalogue: Catalogue) -> tuple[float, float, float]:
        warning, scale, emergency = (
            catalogue[f"threshold.{self.metric}_{bound}"] for bound in ("warning", "scale", "emergency")
        )
        return warning, scale, emergency

    def judge(self, catalogue: Catalogue, value: float) -> Urgency:
        not_negative(**{self.metric: value})
        warning, scale, emergency = self.bounds(catalogue)
        if value > emergency:
            return Urgency.EMERGENCY
        if value > scale:
            return Urgency.SCALE
        return Urgency.WARNING if value > warning else Urgency.HEALTHY


THRESHOLDS: Final = (
    Threshold("message_rate", "message rate", "share of the tested maximum"),
    Threshold("partitions", "partition count", "replicas per broker"),
    Threshold("request_p95_ms", "request latency p95", "ms"),
    Threshold("utilisation", "resource utilisation", "share, sustained"),
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
            # A standby must carry the whole load of the region that it replaces.
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
