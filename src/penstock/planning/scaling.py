"""Answers from the documents' tables: what to scale, by how much, and where a cluster stands (L3, L4, L10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from penstock.planning.catalogue import Answer, Catalogue, PlanError, not_negative, notes, positive
from penstock.planning.partitions import ceil_ratio
from penstock.planning.tables import (
    REGISTRY_SIZES,
    SIZES,
    THRESHOLDS,
    Region,
    Urgency,
    cross_region_mb_s,
    milestone,
    region_capacity,
    registry_size,
    scale_cpu_or_network,
    scale_memory,
    useful_consumers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryPlan(Answer):
    instances: int
    memory_gb: int
    """Of each instance."""
    cores: int
    """Of each instance."""


def plan_registry(schemas: int) -> RegistryPlan:
    """The size of a schema registry."""
    size = registry_size(schemas)
    last = size is REGISTRY_SIZES[-1]
    return RegistryPlan(
        instances=size.instances,
        memory_gb=size.memory_gb,
        cores=size.cores,
        reasons=(f"{schemas:,} schemas are in the class from {size.from_schemas:,} on",),
        notes=notes("002 says nine or more: measure before you go far beyond 10,000 schemas." if last else None),
        rules=("registry-sizing",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MilestonePlan(Answer):
    scale: str
    brokers: str
    partitions_per_topic: str
    next_scale: str
    next_from_mb_s: float


def plan_milestone(mb_s: float) -> MilestonePlan:
    """Where a load stands in 004's table, and the next step."""
    here, after = milestone(mb_s)
    return MilestonePlan(
        scale=here.name,
        brokers=here.brokers,
        partitions_per_topic=here.partitions,
        next_scale=after.name if after else "none: this is the largest",
        next_from_mb_s=after.from_mb_s if after else inf,
        reasons=notes(
            f"{mb_s:g} MB/s is in the class {here.name}, from {here.from_mb_s:g} MB/s on",
            f"the next, {after.name}, begins at {after.from_mb_s:g} MB/s: {after.brokers} brokers, "
            f"{after.partitions} partitions per topic"
            if after
            else None,
        ),
        notes=notes("A table of rough classes: `penstock plan brokers` computes with your hardware."),
        rules=("milestones",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPlan(Answer):
    consumers: int
    """How many to run."""
    needed: int
    """What the load asks for; more than `consumers` if there are not enough partitions."""
    idle: int


def plan_consumers(catalogue: Catalogue, *, mb_s: float, per_consumer_mb_s: float, partitions: int) -> ConsumerPlan:
    """A static number of consumers (002) that stays below the warning level of the benchmark."""
    not_negative(mb_s=mb_s)
    positive(per_consumer_mb_s=per_consumer_mb_s, partitions=partitions)
    share = catalogue["consumer.throughput_warning"]
    needed = max(1, ceil_ratio(mb_s, per_consumer_mb_s * share))
    busy, idle = useful_consumers(needed, partitions)
    return ConsumerPlan(
        consumers=busy,
        needed=needed,
        idle=idle,
        reasons=(
            f"{mb_s:g} MB/s ÷ ({per_consumer_mb_s:g} MB/s of one consumer × {share:.0%}) = {needed}",
            f"at most one per partition: {partitions}",
        ),
        notes=notes(
            f"{needed} consumers are needed and only {partitions} can work: add partitions." if idle else None,
            "Add consumers when a group stays above "
            f"{catalogue['consumer.lag_records_scale']:,.0f} records or {catalogue['consumer.lag_s_scale']:g} s of "
            f"lag.",
        ),
        rules=("consumer-scaling",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPlan(Answer):
    model: str
    capacity_mb_s: tuple[float, ...]
    """What each region must be able to take."""
    cross_region_mb_s: float


def plan_regions(model: Region, loads_mb_s: Sequence[float]) -> RegionPlan:
    """Capacity of each region; the first is the primary of a standby, or the hub."""
    if len(loads_mb_s) < 2:
        raise PlanError("a model of regions needs the load of at least two")
    capacities, copied = region_capacity(model, loads_mb_s), cross_region_mb_s(model, loads_mb_s)
    return RegionPlan(
        model=str(model),
        capacity_mb_s=tuple(capacities),
        cross_region_mb_s=copied,
        reasons=(
            *(
                f"region {number}: own load {load:g} MB/s, must take {most:g} MB/s"
                for number, (load, most) in enumerate(zip(loads_mb_s, capacities, strict=True), 1)
            ),
            f"copied between regions: {copied:g} MB/s",
        ),
        notes=notes(
            "Regions copy asynchronously: what was not copied yet is lost with a region. 000 accepts 100 to 300 ms.",
        ),
        rules=("regions",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingAdvice(Answer):
    vertical: str
    memory: str
    horizontal: tuple[tuple[str, str], ...]
    """Each metric that was given, and its urgency."""
    worst: str


def advise_scaling(
    catalogue: Catalogue,
    *,
    cpu: float | None = None,
    network: float | None = None,
    memory: float | None = None,
    stall_p99_ms: float | None = None,
    message_rate: float | None = None,
    partitions: float | None = None,
    request_p95_ms: float | None = None,
) -> ScalingAdvice:
    """What 002's matrices and thresholds say about a broker. Measures that are not given are not judged."""
    if (cpu is None) != (network is None):
        raise PlanError("the matrix needs CPU and network utilisation together")
    if (memory is None) != (stall_p99_ms is None):
        raise PlanError("the matrix needs memory utilisation and the p99 of stalls together")
    shares = [share for share in (cpu, network, memory) if share is not None]
    measured = {
        "message_rate": message_rate,
        "partitions": partitions,
        "request_p95_ms": request_p95_ms,
        "utilisation": max(shares) if shares else None,
    }
    judged = []
    reasons = []
    for row in THRESHOLDS:
        value = measured[row.metric]
        if value is None:
            continue
        urgency = row.judge(catalogue, value)
        judged.append((row.text, str(urgency)))
        bounds = " / ".join(f"{bound:g}" for bound in row.bounds(catalogue))
        reasons.append(f"{row.text}: {value:g} {row.unit} ({bounds}): {urgency}")
    vertical = memory_action = "not judged"
    if cpu is not None and network is not None:
        vertical = str(scale_cpu_or_network(catalogue, cpu=cpu, network=network))
        reasons.append(f"CPU {cpu:.0%} and network {network:.0%}: {vertical}")
    if memory is not None and stall_p99_ms is not None:
        memory_action = str(scale_memory(catalogue, memory=memory, stall_p99_ms=stall_p99_ms))
        reasons.append(f"memory {memory:.0%} and stalls of {stall_p99_ms:g} ms at p99: {memory_action}")
    if not reasons:
        raise PlanError("nothing to judge: give at least one measure")
    order = list(Urgency)
    worst = max((urgency for _, urgency in judged), key=lambda one: order.index(Urgency(one)), default=order[0])
    return ScalingAdvice(
        vertical=vertical,
        memory=memory_action,
        horizontal=tuple(judged),
        worst=str(worst),
        reasons=tuple(reasons),
        notes=notes("Utilisation must be sustained: a peak of minutes is not a trigger."),
        rules=("vertical-matrix", "horizontal-thresholds"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePlan(Answer):
    sizes: tuple[tuple[str, float | None], ...]
    """Each resource and the size to take; None where one broker cannot have so much."""
    fits: bool


def plan_sizes(needed: Mapping[str, float], *, large: bool = False) -> SizePlan:
    """The next sizes of a broker in 002's steps; with `large` up to 001's maxima."""
    if not needed:
        raise PlanError("nothing to size: give at least one resource")
    not_negative(**needed)
    rows = {size.resource: size for size in SIZES}
    sizes = tuple((name, rows[name].next_size(amount, large=large)) for name, amount in needed.items())
    reasons = []
    for name, size in sizes:
        row = rows[name]
        most = row.maximum_large if large else row.maximum
        told = f"{size:g} {row.unit}" if size is not None else f"more than {most:g} {row.unit}: add brokers instead"
        reasons.append(
            f"{name}: {needed[name]:g} needed, from {row.start:g} in steps of {row.increment:g} to {most:g}: {told}"
        )
    return SizePlan(
        sizes=sizes,
        fits=all(size is not None for _, size in sizes),
        reasons=tuple(reasons),
        notes=notes("Keep a JVM's heap at 50 to 70 % of the memory (002)." if "heap" in needed else None),
        rules=("vertical-sizes",),
    )
