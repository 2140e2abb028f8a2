"""How many brokers a load needs (L2), which resource decides it, and whether a failure at peak is survived.

A cluster in which leaders are spread evenly does, for every byte that producers send to a broker,

    network in    1 from producers, and replication factor − 1 as a follower of others
    network out   replication factor − 1 to followers, and one for each consumer group (the fan-out)
    disk writes   replication factor
    disk reads    the share of the fan-out that is no longer in the page cache

so what one broker can take in is the smallest of the resources divided by these.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from penstock.planning.catalogue import Answer, Catalogue, PlanError, Rule, not_negative, notes, positive, within
from penstock.planning.partitions import ceil_ratio
from penstock.planning.storage import amount

MB: Final = 1_000_000
HOUR_S: Final = 3_600

BROKER_CAPACITY: Final = Rule(
    name="broker-capacity",
    source="000, Throughput Calculation",
    formula="min(disk writes ÷ RF, network ÷ RF, network ÷ (RF − 1 + fan-out), disk reads ÷ cold fan-out)",
    text="What producers may send to one broker, in MB/s.",
    slip="000 arrives at 400 MB/s from the network alone. Its disk of 500 MB/s allows 167 MB/s with three copies.",
)
BROKER_COUNT: Final = Rule(
    name="broker-count",
    source="002, Broker Scaling Thresholds; 003, Broker Count Calculation",
    formula="the largest of what throughput, disk, partitions, failures and rebuild time ask for",
    text="Sized for 70 % at peak, and so that the survivors of the loss of a broker or zone stay below 90 %.",
    slip="003's (500 ÷ 50) × 3 = 30 brokers counts replication twice if 50 MB/s is what producers send: then 10 are enough. "
    "It is right if 50 MB/s is what the disk writes, replicas included.",
    values=("brokers.utilisation", "brokers.utilisation_degraded", "brokers.rebuild_hours", "partitions.per_broker"),
)
CPU: Final = Rule(
    name="cpu",
    source="001, CPU Resources",
    formula="messages/s × (0.1 ms + 0.5 ms compression + 0.2 ms replication) + 2 cores network + 2 cores disk",
    text="The document's factors, for brokers on the JVM. A calibration replaces them.",
    slip="At 100 K messages/s per broker (10 M ÷ 100; the document computes with 10 K) that is 84 cores, and 120 if network and "
    "disk grow with the rate.",
)
PAGE_CACHE: Final = Rule(
    name="page-cache",
    source="001, Memory Resources",
    formula="page cache ÷ bytes written per second",
    text="Readers that are less far behind than this read from memory. Others cost disk reads.",
)

PROCESSING_S: Final = 0.0001
COMPRESSION_S: Final = 0.0005
REPLICATION_S: Final = 0.0002
FIXED_CORES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpec:
    """One broker process and its share of a machine."""

    network_mb_s: float
    """In each direction."""
    disk_write_mb_s: float
    disk_read_mb_s: float
    disk_bytes: float = inf
    memory_bytes: float = 0.0
    """For the page cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity(Answer):
    ingest_mb_s: float
    """What producers may send to one broker, at full use."""
    binding: str
    limits: tuple[tuple[str, float], ...]
    """Each resource and the ingest that it allows."""


def capacity(broker: BrokerSpec, *, replication_factor: int, fan_out: float = 1.0, cold_share: float = 0.0) -> Capacity:
    positive(
        network_mb_s=broker.network_mb_s, disk_write_mb_s=broker.disk_write_mb_s, replication_factor=replication_factor
    )
    not_negative(fan_out=fan_out, disk_read_mb_s=broker.disk_read_mb_s)
    within(0, 1, cold_share=cold_share)
    outbound = replication_factor - 1 + fan_out
    cold = fan_out * cold_share
    limits = [
        ("disk writes", broker.disk_write_mb_s / replication_factor),
        ("network in", broker.network_mb_s / replication_factor),
        ("network out", broker.network_mb_s / outbound if outbound else inf),
        ("disk reads", broker.disk_read_mb_s / cold if cold else inf),
    ]
    binding, ingest = min(limits, key=lambda one: one[1])
    return Capacity(
        ingest_mb_s=ingest,
        binding=binding,
        limits=tuple((name, limit) for name, limit in limits if limit < inf),
        reasons=tuple(f"{name}: {limit:,.0f} MB/s of ingest" for name, limit in limits if limit < inf),
        rules=("broker-capacity",),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan(Answer):
    brokers: int
    binding: str
    constraints: tuple[tuple[str, int], ...]
    """Each constraint and the number of brokers that it asks for."""
    ingest_mb_s_per_broker: float
    utilisation: float
    """Of the binding resource, at peak."""
    utilisation_degraded: float
    """The same, with one broker or one zone gone."""
    rebuild_hours: float
    cross_zone_mb_s: float
    page_cache_s: float


def plan_brokers(
    catalogue: Catalogue,
    broker: BrokerSpec,
    *,
    ingest_mb_s: float,
    replication_factor: int = 3,
    fan_out: float = 1.0,
    cold_share: float = 0.0,
    zones: int = 1,
    partitions: int = 0,
    stored_bytes: float = 0.0,
    rebuild_mb_s: float | None = None,
) -> BrokerPlan:
    """`ingest_mb_s` is what all producers send at peak. `stored_bytes` are all replicas, without headroom."""
    positive(ingest_mb_s=ingest_mb_s, zones=zones)
    not_negative(partitions=partitions, stored_bytes=stored_bytes)
    one = capacity(broker, replication_factor=replication_factor, fan_out=fan_out, cold_share=cold_share)
    usable = catalogue["brokers.utilisation"]
    degraded = catalogue["brokers.utilisation_degraded"]
    constraints = {
        "the minimum": max(catalogue.count("brokers.minimum"), replication_factor),
        f"throughput ({one.binding}) at {usable:.0%}": ceil_ratio(ingest_mb_s, one.ingest_mb_s * usable),
        "partitions per broker": ceil(partitions * replication_factor / catalogue["partitions.per_broker"]),
    }
    if stored_bytes:
        if broker.disk_bytes == inf:
            raise PlanError("the data is given, but not the size of a broker's disks")
        full = broker.disk_bytes * (1 - catalogue["storage.headroom"])
        constraints["disk space"] = ceil_ratio(stored_bytes, full)
    at_full = ceil_ratio(ingest_mb_s, one.ingest_mb_s * degraded)
    constraints["the loss of a broker at peak"] = at_full + 1
    if zones > 1:
        constraints["the loss of a zone at peak"] = ceil(at_full / (zones - 1)) * zones
    rate = rebuild_mb_s if rebuild_mb_s is not None else min(broker.network_mb_s, broker.disk_write_mb_s) / 2
    positive(rebuild_mb_s=rate)
    if stored_bytes:
        most = rate * MB * HOUR_S * catalogue["brokers.rebuild_hours"]
        constraints["time to rebuild a broker"] = ceil_ratio(stored_bytes, most)
    brokers = max(constraints.values())
    if zones > 1:
        brokers = ceil(brokers / zones) * zones
    binding = next(name for name, count in constraints.items() if count == max(constraints.values()))
    lost = brokers // zones if zones > 1 else 1
    cross_zone = 0.0
    if zones > 1:
        # Producers and consumers meet a leader of another zone (z − 1) times in z; followers are spread over the zones.
        away = (zones - 1) / zones
        cross_zone = ingest_mb_s * (away + min(replication_factor - 1, zones - 1) + fan_out * away)
    written = ingest_mb_s * replication_factor * MB / brokers
    return BrokerPlan(
        brokers=brokers,
        binding=binding,
        constraints=tuple(constraints.items()),
        ingest_mb_s_per_broker=one.ingest_mb_s,
        utilisation=ingest_mb_s / (one.ingest_mb_s * brokers),
        utilisation_degraded=ingest_mb_s / (one.ingest_mb_s * (brokers - lost)) if brokers > lost else inf,
        rebuild_hours=stored_bytes / brokers / (rate * MB) / HOUR_S,
        cross_zone_mb_s=cross_zone,
        page_cache_s=broker.memory_bytes / written,
        reasons=notes(
            *one.reasons,
            f"one broker takes {one.ingest_mb_s:,.0f} MB/s at most, limited by {one.binding}",
            *(f"{name}: {count} brokers" for name, count in constraints.items()),
        ),
        notes=notes(
            f"Rounded up to a multiple of {zones} zones." if zones > 1 else None,
            f"Rebuilding a broker copies {amount(stored_bytes / brokers)} at {rate:,.0f} MB/s." if stored_bytes else None,
            "Reads that miss the page cache are not counted: give the share of cold reads." if not cold_share else None,
        ),
        rules=("broker-capacity", "broker-count", "page-cache"),
    )  # fmt: skip


def cores(*, messages_per_s: float, compression: bool = True, replication: bool = True) -> float:
    """001's factors for one broker."""
    not_negative(messages_per_s=messages_per_s)
    per_message = PROCESSING_S + COMPRESSION_S * compression + REPLICATION_S * replication
    return messages_per_s * per_message + FIXED_CORES


def brokers_for_rate(*, messages_per_s: float, tested_max_per_broker: float, utilisation: float) -> int:
    """Brokers from a message rate (002): at most `utilisation` of what was tested."""
    positive(tested_max_per_broker=tested_max_per_broker)
    not_negative(messages_per_s=messages_per_s)
    within(0.05, 1, utilisation=utilisation)
    return max(1, ceil_ratio(messages_per_s, tested_max_per_broker * utilisation))
