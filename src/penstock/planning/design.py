"""A whole cluster planned: topics, brokers, disks, network and cost, with alternatives and sensitivity.

`plan_cluster` adds up the topics of a spec and asks the single rules about the sums. What follows from a change is not
estimated: the changed spec is planned again, and the difference is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

from penstock.planning.brokers import MB, BrokerPlan, cross_zone_mb_s, plan_brokers
from penstock.planning.catalogue import Answer, Catalogue, PlanError, joined, notes
from penstock.planning.cost import MONTH_S, CostPlan, plan_cost
from penstock.planning.partitions import count_partitions
from penstock.planning.spec import ClusterSpec, TopicSpec
from penstock.planning.storage import DAY_S, amount, count_bytes, metadata_bytes

NOTES_PER_KIND_MAX = 5
"""Topics that a note names, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The plan of one topic, or of `count` topics that are alike; rates and sizes are those of all of them."""

    name: str
    count: int
    needed: int
    """Partitions of each, before rounding."""
    partitions: int
    """Of each."""
    decided_by: str
    replication_factor: int
    peak_mb_s: float
    stored_bytes: float
    """All copies on the brokers, without headroom."""
    cold_bytes: float
    """In object storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The same cluster with something changed."""

    name: str
    brokers: int
    brokers_more: int
    """Than in the plan; negative if fewer."""
    cost: float
    cost_more: float
    binding: str

    @property
    def sentence(self) -> str:
        """`twice the retention adds 3 brokers and $1,500 a month`"""
        parts = []
        if self.brokers_more:
            count = abs(self.brokers_more)
            parts.append(
                f"{'adds' if self.brokers_more > 0 else 'saves'} {count} {'broker' if count == 1 else 'brokers'}"
            )
        money = round(self.cost_more)
        if money:
            verb = "adds" if money > 0 else "saves"
            parts.append(
                f"${abs(money):,} a month" if parts and parts[0].startswith(verb) else f"{verb} ${abs(money):,} a month"
            )
        return f"{self.name} {' and '.join(parts) or 'changes nothing'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan(Answer):
    name: str
    brokers: int
    binding: str
    """The constraint that decided the number of brokers."""
    constraints: tuple[tuple[str, int], ...]
    partitions: int
    replicas: int
    replicas_per_broker: float
    peak_mb_s: float
    peak_messages_per_s: float
    average_messages_per_s: float
    network_in_mb_s: float
    """Of one broker at peak, with protocol overhead."""
    network_out_mb_s: float
    disk_write_mb_s: float
    """Of one broker at peak."""
    utilisation: float
    """Of the resource that limits throughput, at peak."""
    utilisation_degraded: float
    rebuild_hours: float
    page_cache_s: float
    cold_share: float
    stored_bytes: float
    disk_bytes: float
    """To buy, with headroom."""
    disk_bytes_per_broker: float
    cold_bytes: float
    metadata_bytes: float
    cross_zone_mb_s: float
    """On average."""
    cost: CostPlan
    topics: tuple[TopicPlan, ...]
    alternatives: tuple[Variant, ...] = ()
    sensitivity: tuple[Variant, ...] = ()


def plan_cluster(catalogue: Catalogue, spec: ClusterSpec) -> ClusterPlan:
    """The plan with alternatives and sensitivity."""
    plan = _plan(catalogue, spec)
    return replace(
        plan,
        alternatives=tuple(
            sorted(
                _variants(catalogue, spec, plan, _alternatives(catalogue, spec)), key=lambda one: (one.cost, one.name)
            )
        ),
        sensitivity=tuple(_variants(catalogue, spec, plan, _sensitivities(catalogue, spec))),
    )


def _plan(catalogue: Catalogue, spec: ClusterSpec, topics: tuple[TopicPlan, ...] | None = None) -> ClusterPlan:
    """`topics`: their plans, if they are known."""
    if topics is None:
        topics = tuple(_topic(catalogue, topic, spec.local_days) for topic in spec.topics)
    sums = _Sums(spec, topics)
    found = plan_brokers(
        catalogue,
        spec.broker,
        ingest_mb_s=sums.peak_mb_s,
        messages_per_s=sums.peak_messages_per_s,
        replication_factor=sums.replication_factor,
        reader_lags=sums.reader_lags,
        zones=spec.zones,
        replicas=sums.replicas,
        replicas_max=max(topic.replication_factor for topic in spec.topics),
        stored_bytes=sums.stored_bytes,
        rebuild_mb_s=spec.rebuild_mb_s,
    )
    crossing = cross_zone_mb_s(
        sums.average_mb_s, spec.zones, sums.replication_factor, 0.0 if spec.nearest_reads else sums.fan_out
    )
    disk = sums.stored_bytes / (1 - catalogue["storage.headroom"])
    cost = _cost(catalogue, spec, sums, found.brokers, disk, crossing)
    on_wire = 1 + catalogue["load.protocol_overhead"]
    written = sums.peak_mb_s * sums.replication_factor / found.brokers
    sent = sums.peak_mb_s * (sums.replication_factor - 1 + sums.fan_out) / found.brokers
    return ClusterPlan(
        name=spec.name,
        brokers=found.brokers,
        binding=found.binding,
        constraints=found.constraints,
        partitions=sums.partitions,
        replicas=sums.replicas,
        replicas_per_broker=sums.replicas / found.brokers,
        peak_mb_s=sums.peak_mb_s,
        peak_messages_per_s=sums.peak_messages_per_s,
        average_messages_per_s=sums.average_messages_per_s,
        network_in_mb_s=written * on_wire,
        network_out_mb_s=sent * on_wire,
        disk_write_mb_s=written,
        utilisation=found.utilisation,
        utilisation_degraded=found.utilisation_degraded,
        rebuild_hours=found.rebuild_hours,
        page_cache_s=found.page_cache_s,
        cold_share=found.cold_share,
        stored_bytes=sums.stored_bytes,
        disk_bytes=disk,
        disk_bytes_per_broker=disk / found.brokers,
        cold_bytes=sums.cold_bytes,
        metadata_bytes=metadata_bytes(
            catalogue, topics=sums.topics, partitions=sums.partitions, groups=sums.groups, brokers=found.brokers
        ),
        cross_zone_mb_s=crossing,
        cost=cost,
        topics=topics,
        reasons=(
            f"peak: {sums.peak_messages_per_s:,.0f} messages/s, {sums.peak_mb_s:,.1f} MB/s after compression, "
            f"in {sums.replication_factor:.3g} copies, read {sums.fan_out:.3g} times",
            f"stored: {amount(sums.stored_bytes)} in all copies, {amount(disk)} of disk with headroom",
            *found.reasons,
            *cost.reasons,
        ),
        notes=notes(*found.notes, *_cluster_notes(catalogue, spec, found), *_topic_notes(spec, topics)),
        rules=joined(found.rules, cost.rules, ("partition-count", "storage", "storage-headroom", "segment-slack")),
    )


class _Sums:
    """What all topics ask for together."""

    def __init__(self, spec: ClusterSpec, plans: tuple[TopicPlan, ...]) -> None:
        pairs = list(zip(spec.topics, plans, strict=True))
        self.topics = sum(topic.count for topic in spec.topics)
        self.groups = max((topic.fan_out for topic in spec.topics), default=0.0)
        self.partitions = sum(plan.partitions * plan.count for plan in plans)
        self.replicas = sum(plan.partitions * plan.count * plan.replication_factor for plan in plans)
        self.stored_bytes = sum(plan.stored_bytes for plan in plans)
        self.cold_bytes = sum(plan.cold_bytes for plan in plans)
        self.peak_mb_s = sum(plan.peak_mb_s for plan in plans)
        self.peak_messages_per_s = sum(topic.peak_messages_per_s * topic.count for topic in spec.topics)
        self.average_messages_per_s = sum(topic.average_messages_per_s * topic.count for topic in spec.topics)
        average = [
            topic.average_messages_per_s * topic.count * topic.message_bytes / topic.compression_ratio / MB
            for topic in spec.topics
        ]
        self.average_mb_s = sum(average)
        self.read_mb_s = sum(mb_s * topic.fan_out for mb_s, topic in zip(average, spec.topics, strict=True))
        if self.peak_mb_s <= 0:
            raise PlanError("no topic has any traffic: give rates above 0")
        shares = [(topic, plan.peak_mb_s / self.peak_mb_s) for topic, plan in pairs]
        # Rounded: shares of a thousand topics may add up to a little less than one.
        self.replication_factor = round(sum(topic.replication_factor * share for topic, share in shares), 9)
        self.fan_out = sum(topic.fan_out * share for topic, share in shares)
        lags: dict[float, float] = {}
        for topic, share in shares:
            lags[topic.reader_lag_s] = lags.get(topic.reader_lag_s, 0.0) + topic.groups * share
            # A group that replays is on average half the retention behind; data of any age costs a disk read.
            behind_s = topic.retention_days * DAY_S / 2
            lags[behind_s] = lags.get(behind_s, 0.0) + topic.replaying_groups * share
        self.reader_lags = [(readers, lag_s) for lag_s, readers in lags.items()]


def _topic(catalogue: Catalogue, topic: TopicSpec, local_days: float) -> TopicPlan:
    needed, partitions, _, _, binding = count_partitions(
        catalogue,
        peak_mb_s=topic.peak_mb_s,
        per_partition_mb_s=topic.per_partition_mb_s,
        consumers=topic.consumers,
    )
    if topic.partitions is not None:
        partitions, binding = topic.partitions, "the spec"
    local = min(topic.retention_days, local_days)
    stored = count_bytes(
        catalogue,
        messages_per_s=topic.average_messages_per_s,
        message_bytes=topic.message_bytes,
        retention_days=local,
        replication_factor=topic.replication_factor,
        compression_ratio=topic.compression_ratio,
        overhead=None,
        partitions=partitions,
    )
    return TopicPlan(
        name=topic.name,
        count=topic.count,
        needed=needed,
        partitions=partitions,
        decided_by=binding,
        replication_factor=topic.replication_factor,
        peak_mb_s=topic.peak_mb_s * topic.count,
        stored_bytes=stored.total_bytes * topic.count,
        # Tiered storage copies a segment as soon as it is closed, so object storage holds the local days as well.
        cold_bytes=stored.per_day_bytes * topic.retention_days * topic.count if local < topic.retention_days else 0.0,
    )


def _cost(
    catalogue: Catalogue, spec: ClusterSpec, sums: _Sums, brokers: int, disk_bytes: float, crossing_mb_s: float
) -> CostPlan:
    return plan_cost(
        catalogue,
        brokers=brokers,
        stored_bytes=disk_bytes,
        cold_bytes=sums.cold_bytes,
        messages_per_s=sums.average_messages_per_s,
        egress_bytes=sums.read_mb_s * MB * MONTH_S * spec.egress_share,
        cross_zone_mb_s=crossing_mb_s,
        reserved=spec.reserved,
        people=spec.people,
    )


def _cluster_notes(catalogue: Catalogue, spec: ClusterSpec, found: BrokerPlan) -> Iterator[str | None]:
    yield "Storage is billed for the disk to buy: the data and its headroom."
    prices = sorted(name for name in catalogue.values if name.startswith("price."))
    if not any(name in catalogue.replaced for name in prices):
        yield "All prices are the documents': put yours under [values.price]."
    if spec.egress_share == 1:
        yield "All reads are billed as egress: set egress_share under [cost] if readers are inside."
    if spec.brokers_now is not None:
        more = found.brokers - spec.brokers_now
        yield (
            f"The cluster has {spec.brokers_now} brokers: {more} more are needed."
            if more > 0
            else f"The cluster has {spec.brokers_now} brokers, which is enough; {-more} could go."
            if more < 0
            else f"The cluster has {spec.brokers_now} brokers, as many as are needed."
        )
    if spec.zones == 2:
        yield "With two zones the quorum of controllers does not survive the loss of the wrong one: use three."
    if found.utilisation < 0.2:
        yield (
            f"At peak a broker is used to {found.utilisation:.0%} of its throughput: {found.binding} decides. "
            "Smaller brokers may be cheaper."
        )


def _topic_notes(spec: ClusterSpec, plans: tuple[TopicPlan, ...]) -> Iterator[str]:
    short = [plan for plan in plans if plan.partitions < plan.needed]
    for plan in short[:NOTES_PER_KIND_MAX]:
        yield f"{plan.name} has {plan.partitions} partitions, and {plan.needed} are needed."
    if len(short) > NOTES_PER_KIND_MAX:
        yield f"{len(short) - NOTES_PER_KIND_MAX} more topics have fewer partitions than needed."
    risky = [topic.name for topic in spec.topics if topic.replication_factor < 2]
    if risky:
        more = "" if len(risky) <= NOTES_PER_KIND_MAX else f" and {len(risky) - NOTES_PER_KIND_MAX} more"
        yield f"One copy only, so any failure loses data: {', '.join(risky[:NOTES_PER_KIND_MAX])}{more}."


Change = Callable[[ClusterSpec], ClusterSpec]


def _variants(
    catalogue: Catalogue, spec: ClusterSpec, plan: ClusterPlan, changes: Iterator[tuple[str, Change]]
) -> Iterator[Variant]:
    for name, change in changes:
        changed = change(spec)
        same = changed.topics is spec.topics and changed.local_days == spec.local_days
        other = _plan(catalogue, changed, plan.topics if same else None)
        yield Variant(
            name=name,
            brokers=other.brokers,
            brokers_more=other.brokers - plan.brokers,
            cost=other.cost.total,
            cost_more=other.cost.total - plan.cost.total,
            binding=other.binding,
        )


def _alternatives(catalogue: Catalogue, spec: ClusterSpec) -> Iterator[tuple[str, Change]]:
    yield "doubling the size of the disks", lambda one: _broker(one, disk_bytes=one.broker.disk_bytes * 2)
    yield (
        "doubling the speed of the disks",
        lambda one: _broker(
            one, disk_write_mb_s=one.broker.disk_write_mb_s * 2, disk_read_mb_s=one.broker.disk_read_mb_s * 2
        ),
    )
    yield "doubling the network", lambda one: _broker(one, network_mb_s=one.broker.network_mb_s * 2)
    if any(topic.compression_ratio == 1 for topic in spec.topics):
        ratio = catalogue["compression.zstd"]
        yield (
            f"compressing {ratio:g} : 1 (zstd) what is not compressed",
            lambda one: _topics(
                one, lambda topic: replace(topic, compression_ratio=ratio) if topic.compression_ratio == 1 else topic
            ),
        )
    if any(topic.retention_days > 1 for topic in spec.topics) and spec.local_days == inf:
        yield "keeping one day on local disks (tiered storage)", lambda one: replace(one, local_days=1.0)
    if not spec.reserved:
        yield "reserving instances", lambda one: replace(one, reserved=True)
    if spec.zones > 1 and not spec.nearest_reads:
        yield "reading from the nearest replica", lambda one: replace(one, nearest_reads=True)


def _sensitivities(catalogue: Catalogue, spec: ClusterSpec) -> Iterator[tuple[str, Change]]:
    burst = catalogue["load.burst"]
    yield (
        "twice the retention",
        lambda one: _topics(one, lambda topic: replace(topic, retention_days=topic.retention_days * 2)),
    )
    yield (
        "twice the load",
        lambda one: _topics(
            one,
            lambda topic: replace(
                topic,
                average_messages_per_s=topic.average_messages_per_s * 2,
                peak_messages_per_s=topic.peak_messages_per_s * 2,
            ),
        ),
    )
    yield (
        "one more consumer group on every topic",
        lambda one: _topics(one, lambda topic: replace(topic, groups=topic.groups + 1)),
    )
    yield (
        f"a burst of {burst:g} × the average",
        lambda one: _topics(
            one,
            lambda topic: replace(
                topic, peak_messages_per_s=max(topic.peak_messages_per_s, topic.average_messages_per_s * burst)
            ),
        ),
    )
    if spec.zones > 1:
        yield "using one zone", lambda one: replace(one, zones=1)


def _broker(spec: ClusterSpec, **changes: float) -> ClusterSpec:
    return replace(spec, broker=replace(spec.broker, **changes))


def _topics(spec: ClusterSpec, change: Callable[[TopicSpec], TopicSpec]) -> ClusterSpec:
    return replace(spec, topics=tuple(change(topic) for topic in spec.topics))
