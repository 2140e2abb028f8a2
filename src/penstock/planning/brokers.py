"""How many brokers a load needs (L2), which resource decides it, and whether a failure at peak is survived.

A cluster in which leaders are spread evenly does, for every byte that producers send to a broker,

    network in    1 from producers, and replication factor − 1 as a follower of others
    network out   replication factor − 1 to followers, and one for each consumer group (the fan-out)
    disk writes   replication factor
    disk reads    the share of the fan-out that is no longer in the page cache

so what one broker can take in is the smallest of the resources divided by these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from penstock.planning.catalogue import Answer, Catalogue, PlanError, Rule, not_negative, notes, positive, units, within
from penstock.planning.partitions import ceil_ratio
from penstock.planning.storage import amount

MB: Final = 1_000_000
HOUR_S: Final = 3_600
ZONES_MAX: Final = 100
COPIES_MAX: Final = 100

BROKER_CAPACITY: Final = Rule(
    name="broker-capacity",
    source="000, Throughput Calculation",
    formula="min(disk writes ÷ RF, network ÷ RF, network ÷ (RF − 1 + fan-out), disk reads ÷ cold fan-out)",
    text="What producers may send to one broker, in MB/s. Network counts the protocol's overhead, and TLS what it "
    "costs.",
    inputs=units(
        network_mb_s="MB/s each way",
        disk_write_mb_s="MB/s",
        disk_read_mb_s="MB/s",
        replication_factor="copies",
        fan_out="consumer groups per record",
        cold_share="share of reads",
    ),
    slip="000 arrives at 400 MB/s from the network alone. Its disk of 500 MB/s allows 167 MB/s with three copies: "
    "166,667, "
    "16,667 or 1,667 messages/s of 1, 10 or 100 KB. Its reads of 1 GB/s and 0.83 GB/s of replication exceed its "
    "network.",
    values=("load.protocol_overhead", "brokers.encryption_cost"),
)
BROKER_COUNT: Final = Rule(
    name="broker-count",
    source="002, Broker Scaling Thresholds; 003, Broker Count Calculation",
    formula="the largest of what throughput, message rate, disk, partitions, failures and rebuild time ask for",
    text="Sized for 70 % at peak, and so that the survivors of the loss of a broker or zone stay below 90 %.",
    inputs=units(
        ingest_mb_s="MB/s from all producers, at peak",
        partitions="partitions",
        stored_bytes="bytes, all copies",
        zones="zones",
        rebuild_mb_s="MB/s",
    ),
    slip="003's (500 ÷ 50) × 3 = 30 brokers counts replication twice if 50 MB/s is what producers send: then 10 are "
    "enough. It is right if 50 MB/s is what the disk writes, replicas included. Its other example (3 brokers, 500 "
    "MB/s) "
    "exceeds both.",
    values=(
        "brokers.utilisation",
        "brokers.utilisation_degraded",
        "brokers.rebuild_hours",
        "brokers.minimum",
        "partitions.per_broker",
        "load.audit_share",
    ),
)
BROKERS_BY_RATE: Final = Rule(
    name="brokers-by-rate",
    source="002, Broker Scaling Thresholds",
    formula="⌈messages/s ÷ (tested maximum of one broker × 70 %)⌉",
    text="Small messages cost more per byte, so a message rate is a limit of its own. The maximum must be measured.",
    inputs=units(messages_per_s="messages/s, at peak", tested_messages_per_s="messages/s of one broker"),
    values=("brokers.utilisation",),
)
REBUILD: Final = Rule(
    name="rebuild-time",
    source="001, Recovery Time Objectives",
    formula="data of one broker ÷ rate at which it is copied back",
    text="Until a lost broker's data is copied back, one more failure may lose data or stop writes. Half of the slower "
    "of "
    "network and disk is taken for the copy, unless a rate is given.",
    inputs=units(stored_bytes="bytes, all copies", rebuild_mb_s="MB/s"),
    slip="001 resynchronises replicas in 5 minutes: for its 20 TB that would need 67 GB/s. At 1.25 GB/s it takes 4.4 "
    "h.",
    values=("brokers.rebuild_hours",),
)
CROSS_ZONE: Final = Rule(
    name="cross-zone",
    source="Penstock",
    formula="ingest × ((zones − 1) ÷ zones × (1 + fan-out) + followers in other zones)",
    text="Clients meet a leader of another zone (zones − 1) times in zones. Replicas are spread evenly over the zones. "
    "Consumers that read from the nearest replica save their part.",
    inputs=units(ingest_mb_s="MB/s", zones="zones", replication_factor="copies", fan_out="consumer groups per record"),
)
PAGE_CACHE: Final = Rule(
    name="page-cache",
    source="001, Memory Resources",
    formula="page cache ÷ bytes written per second",
    text="Readers that are less far behind than this read from memory. Others cost disk reads.",
    inputs=units(page_cache_bytes="bytes per broker", reader_lag_s="s behind the end"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpec:
    """One broker process and its share of a machine."""

    network_mb_s: float
    """In each direction."""
    disk_write_mb_s: float
    disk_read_mb_s: float
    disk_bytes: float = inf
    page_cache_bytes: float = 0.0
    tested_messages_per_s: float = inf
    """The most messages that one broker was measured to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity(Answer):
    ingest_mb_s: float
    """What producers may send to one broker, at full use."""
    binding: str
    limits: tuple[tuple[str, float], ...]
    """Each resource and the ingest that it allows."""


def capacity(
    broker: BrokerSpec,
    *,
    replication_factor: float,
    fan_out: float = 1.0,
    cold_share: float = 0.0,
    protocol_overhead: float = 0.0,
    encryption_cost: float = 0.0,
) -> Capacity:
    """What one broker takes in. `replication_factor` may be an average over topics."""
    positive(
        network_mb_s=broker.network_mb_s, disk_write_mb_s=broker.disk_write_mb_s, replication_factor=replication_factor
    )
    not_negative(fan_out=fan_out, disk_read_mb_s=broker.disk_read_mb_s, protocol_overhead=protocol_overhead)
    within(0, 1, cold_share=cold_share)
    within(0, 0.9, encryption_cost=encryption_cost)
    network = broker.network_mb_s / (1 + protocol_overhead) * (1 - encryption_cost)
    outbound = replication_factor - 1 + fan_out
    cold = fan_out * cold_share
    limits = [
        ("disk writes", broker.disk_write_mb_s / replication_factor),
        ("network in", network / replication_factor),
        ("network out", network / outbound if outbound else inf),
        ("disk reads", broker.disk_read_mb_s / cold if cold else inf),
    ]
    binding, ingest = min(limits, key=lambda one: one[1])
    if ingest <= 0:
        raise PlanError(f"a broker with these {binding} can take in nothing: give a number above 0")
    finite = [(name, limit) for name, limit in limits if limit < inf]
    return Capacity(
        ingest_mb_s=ingest,
        binding=binding,
        limits=tuple(finite),
        reasons=tuple(f"{name} allow {limit:,.1f} MB/s of ingest per broker" for name, limit in finite),
        rules=("broker-capacity",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan(Answer):
    brokers: int
    binding: str
    constraints: tuple[tuple[str, int], ...]
    """Each constraint and the number of brokers that it asks for."""
    ingest_mb_s_per_broker: float
    """What one broker could take in at full use."""
    utilisation: float
    """Of the binding resource, at peak."""
    utilisation_degraded: float
    """The same, with one broker or one zone gone."""
    rebuild_hours: float
    cross_zone_mb_s: float
    page_cache_s: float
    """How far behind a reader may be and still be served from memory."""
    cold_share: float
    """Of the reads, from disk."""


def plan_brokers(
    catalogue: Catalogue,
    broker: BrokerSpec,
    *,
    ingest_mb_s: float,
    messages_per_s: float = 0.0,
    replication_factor: float = 3,
    fan_out: float = 1.0,
    cold_share: float = 0.0,
    reader_lags: Sequence[tuple[float, float]] = (),
    zones: int = 1,
    partitions: int = 0,
    replicas: int | None = None,
    replicas_max: int = 1,
    stored_bytes: float = 0.0,
    rebuild_mb_s: float | None = None,
) -> BrokerPlan:
    """How many brokers a load at peak needs.

    `ingest_mb_s` is what all producers send. `stored_bytes` are all copies, without headroom. Where topics differ,
    `replication_factor` is the average by bytes, `replicas` counts all replicas, and `replicas_max` is the largest
    factor. `reader_lags` has pairs
    of fan-out and how many seconds these readers are behind: those that are further behind than the page cache reaches
    read from disk. More brokers have more page cache, so the count is raised until it satisfies itself.
    """
    positive(ingest_mb_s=ingest_mb_s)
    within(1, ZONES_MAX, zones=zones)
    within(1, COPIES_MAX, replication_factor=replication_factor)
    not_negative(partitions=partitions, stored_bytes=stored_bytes, messages_per_s=messages_per_s)
    if reader_lags:
        fan_out = sum(readers for readers, _ in reader_lags)
    ingest_mb_s *= 1 + catalogue["load.audit_share"]
    rate = rebuild_mb_s if rebuild_mb_s is not None else min(broker.network_mb_s, broker.disk_write_mb_s) / 2
    positive(rebuild_mb_s=rate)
    copies = replicas if replicas is not None else ceil(partitions * replication_factor)
    brokers = 1
    while True:
        cached_s = broker.page_cache_bytes * brokers / (ingest_mb_s * replication_factor * MB)
        if reader_lags and fan_out:
            cold_share = sum(readers for readers, lag_s in reader_lags if lag_s > cached_s) / fan_out
        one = capacity(
            broker,
            replication_factor=replication_factor,
            fan_out=fan_out,
            cold_share=cold_share,
            protocol_overhead=catalogue["load.protocol_overhead"],
            encryption_cost=catalogue["brokers.encryption_cost"],
        )
        constraints = {
            "the minimum": max(catalogue.count("brokers.minimum"), ceil(replication_factor), replicas_max),
            **_for_load(catalogue, broker, one, ingest_mb_s, messages_per_s, zones),
            "partitions per broker": ceil_ratio(copies, catalogue["partitions.per_broker"]),
            **_for_data(catalogue, broker, stored_bytes, rate),
        }
        wanted = max(constraints.values())
        if zones > 1:
            wanted = ceil(wanted / zones) * zones
        if wanted <= brokers:
            break
        brokers = wanted
    binding = next(name for name, count in constraints.items() if count == max(constraints.values()))
    lost = ceil(brokers / zones) if zones > 1 else 1
    return BrokerPlan(
        brokers=brokers,
        binding=binding,
        constraints=tuple(constraints.items()),
        ingest_mb_s_per_broker=one.ingest_mb_s,
        utilisation=ingest_mb_s / (one.ingest_mb_s * brokers),
        utilisation_degraded=ingest_mb_s / (one.ingest_mb_s * (brokers - lost)) if brokers > lost else inf,
        rebuild_hours=stored_bytes / brokers / (rate * MB) / HOUR_S,
        cross_zone_mb_s=cross_zone_mb_s(ingest_mb_s, zones, replication_factor, fan_out),
        page_cache_s=cached_s,
        cold_share=cold_share,
        reasons=notes(
            *one.reasons,
            f"one broker takes {one.ingest_mb_s:,.1f} MB/s at most, limited by {one.binding}",
            *(f"{name}: {count:,} brokers" for name, count in constraints.items()),
        ),
        notes=notes(
            f"Rounded up to a multiple of {zones} zones." if zones > 1 else None,
            f"Rebuilding a broker copies {amount(stored_bytes / brokers)} at {rate:,.0f} MB/s."
            if stored_bytes
            else None,
            "Reads that miss the page cache are not counted: give the share of cold reads."
            if not cold_share and not reader_lags
            else None,
            "The message rate is not a limit here: no tested maximum of one broker is given."
            if messages_per_s and broker.tested_messages_per_s == inf
            else None,
        ),
        rules=(
            "broker-capacity",
            "broker-count",
            "page-cache",
            *(("brokers-by-rate",) if broker.tested_messages_per_s < inf else ()),
            *(("rebuild-time",) if stored_bytes else ()),
            *(("cross-zone",) if zones > 1 else ()),
        ),
    )


def _for_load(
    catalogue: Catalogue, broker: BrokerSpec, one: Capacity, ingest_mb_s: float, messages_per_s: float, zones: int
) -> dict[str, int]:
    """Brokers that the traffic asks for: in normal operation, and without one broker or zone."""
    usable, degraded = catalogue["brokers.utilisation"], catalogue["brokers.utilisation_degraded"]
    found = {f"throughput ({one.binding}) at {usable:.0%}": ceil_ratio(ingest_mb_s, one.ingest_mb_s * usable)}
    survivors = ceil_ratio(ingest_mb_s, one.ingest_mb_s * degraded)
    if messages_per_s and broker.tested_messages_per_s < inf:
        tested = broker.tested_messages_per_s
        found[f"message rate at {usable:.0%}"] = brokers_for_rate(
            messages_per_s=messages_per_s, tested_messages_per_s=tested, utilisation=usable
        )
        survivors = max(
            survivors,
            brokers_for_rate(messages_per_s=messages_per_s, tested_messages_per_s=tested, utilisation=degraded),
        )
    found["the loss of a broker at peak"] = survivors + 1
    if zones > 1:
        found["the loss of a zone at peak"] = ceil(survivors / (zones - 1)) * zones
    return found


def _for_data(catalogue: Catalogue, broker: BrokerSpec, stored_bytes: float, rebuild_mb_s: float) -> dict[str, int]:
    """Brokers that the stored data asks for."""
    if not stored_bytes:
        return {}
    if broker.disk_bytes == inf:
        raise PlanError("the data is given, but not the size of a broker's disks: give disk_bytes as well")
    usable = broker.disk_bytes * (1 - catalogue["storage.headroom"])
    rebuilt = rebuild_mb_s * MB * HOUR_S * catalogue["brokers.rebuild_hours"]
    return {
        "disk space": ceil_ratio(stored_bytes, usable),
        "time to rebuild a broker": ceil_ratio(stored_bytes, rebuilt),
    }


def cross_zone_mb_s(ingest_mb_s: float, zones: int, replication_factor: float, fan_out: float) -> float:
    """Traffic between zones, if replicas are spread evenly and clients do not choose by zone."""
    if zones <= 1:
        return 0.0
    away = (zones - 1) / zones
    return ingest_mb_s * (away * (1 + fan_out) + _followers_elsewhere(zones, replication_factor))


def _followers_elsewhere(zones: int, replication_factor: float) -> float:
    """Followers in another zone than their leader, on average over the replicas that may lead.

    A factor with a fraction is an average over topics, and lies between those of the two whole factors around it.
    """
    whole = int(replication_factor)
    if whole != replication_factor:
        part = replication_factor - whole
        return _followers_elsewhere(zones, whole) * (1 - part) + _followers_elsewhere(zones, whole + 1) * part
    if whole == 0:
        return 0.0
    in_zone = [whole // zones + (zone < whole % zones) for zone in range(zones)]
    return sum(count / whole * (whole - count) for count in in_zone)


def brokers_for_rate(*, messages_per_s: float, tested_messages_per_s: float, utilisation: float) -> int:
    """Brokers from a message rate (002): at most `utilisation` of what was tested."""
    positive(tested_messages_per_s=tested_messages_per_s)
    not_negative(messages_per_s=messages_per_s)
    within(0.05, 1, utilisation=utilisation)
    return max(1, ceil_ratio(messages_per_s, tested_messages_per_s * utilisation))
