"""A larger machine or one more, by 002's matrices and thresholds. Pure: `penstock.planning` has the tables."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.advise.items import Item, Urgency
from penstock.advise.situation import Situation
from penstock.monitor.samples import Kind
from penstock.planning.scaling import advise_scaling
from penstock.planning.tables import Urgency as Level

_URGENCIES = {Level.EMERGENCY: Urgency.NOW, Level.SCALE: Urgency.TODAY, Level.WARNING: Urgency.PLAN}


def brokers(situation: Situation) -> Iterator[Item]:
    for broker in situation.names(Kind.BROKER):
        yield from _machine(situation, broker)
        yield from _disk(situation, broker)


def _machine(situation: Situation, broker: str) -> Iterator[Item]:
    def share(metric: str) -> float | None:
        found = situation.sustained(Kind.BROKER, broker, metric)
        return None if found is None else min(1.0, max(0.0, found))

    cpu, network, memory = share("host_cpu_share"), share("network_share"), share("memory_share")
    stall = situation.sustained(Kind.BROKER, broker, "stall_p99_ms")
    rate = situation.sustained(Kind.BROKER, broker, "messages_in_per_s")
    partitions = situation.value(Kind.BROKER, broker, "partitions")
    if partitions is None:
        return
    # Where one of a pair is unknown, a matrix cannot be used; the thresholds of the other still can.
    paired = cpu is not None and network is not None
    stalled = memory is not None and stall is not None
    found = advise_scaling(
        situation.catalogue,
        cpu=cpu if paired else None,
        network=network if paired else None,
        memory=memory if stalled else None,
        stall_p99_ms=stall if stalled else None,
        message_rate=rate / situation.message_rate_max if rate is not None and situation.message_rate_max else None,
        partitions=partitions,
        request_p95_ms=situation.sustained(Kind.BROKER, broker, "request_p95_ms"),
    )
    worst = Level(found.worst)
    vertical = [one for one in (found.vertical, found.memory) if one not in ("no change", "not judged")]
    # The matrices alone are no reason to act: "medium and medium" says "scale network" of a machine with room.
    if worst not in _URGENCIES:
        return
    what = f"broker {broker}: {' and '.join(vertical)}" if vertical else f"broker {broker}: add a broker"
    yield Item(
        code="brokers.vertical" if vertical else "brokers.horizontal", urgency=_URGENCIES[worst],
        subject=f"broker {broker}", what=what, evidence=found.reasons,
        effect="room for bursts and for the load of a failed neighbour",
        risk="a larger machine needs a restart; a new broker copies data",
        command=f"penstock plan sizes   # the next size; or: penstock brokers add {_next_id(situation)}",
        source="002, Scaling Decision Matrix; 002, Broker Scaling Thresholds", weight=list(Level).index(worst),
    )  # fmt: skip


def _disk(situation: Situation, broker: str) -> Iterator[Item]:
    used = situation.value(Kind.BROKER, broker, "disk_used_share")
    total = situation.value(Kind.BROKER, broker, "disk_total_bytes")
    size = situation.value(Kind.BROKER, broker, "size_bytes") or 0.0
    bound = situation.catalogue["alert.disk_used"]
    # A disk that others have filled is no reason to change the cluster.
    if used is None or not total or used <= bound or size < 0.1 * used * total:
        return
    yield Item(
        code="brokers.disk", urgency=Urgency.NOW if used > 0.9 else Urgency.TODAY, subject=f"broker {broker}",
        what=f"make room on the disk of broker {broker}",
        evidence=(f"{used:.0%} of {total / 1e9:,.0f} GB used, {size / 1e9:,.1f} GB by its partitions",
                  *_largest(situation)),
        effect=f"below {bound:.0%}", risk="shorter retention deletes the oldest records for good",
        command="penstock cluster balance --goals size   # or shorten retention.ms of the largest topics",
        source="000, Alerting Rules; 002, Metrics for Capacity Planning", weight=used,
    )  # fmt: skip


def _largest(situation: Situation) -> list[str]:
    sizes = {name: situation.value(Kind.TOPIC, name, "size_bytes") or 0.0 for name in situation.names(Kind.TOPIC)}
    top = sorted(sizes, key=lambda name: -sizes[name])[:3]
    return [f"{name}: {sizes[name] / 1e9:,.1f} GB, all replicas" for name in top if sizes[name]]


def _next_id(situation: Situation) -> int:
    return max(situation.observed.shape.brokers, default=0) + 1
