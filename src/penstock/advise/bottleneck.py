"""What limits the cluster (L7): broker CPU, disk, network, replication, producers or consumers. Pure.

The evidence is weighed in this order, because each explains the ones after it: a broker without CPU also answers
slowly, lets its replicas fall behind and makes its consumers late. The cures follow 004's order of tuning: partitions,
batching, compression, and hardware last. Consumer lag on brokers that have room is the consumers' own (`consumers`),
and uneven partitions are named by `hot`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.advise.items import Item, Urgency
from penstock.advise.situation import Situation
from penstock.monitor.samples import Kind

SMALL_BATCH_BYTES: Final = 1_024
"""000's optimum begins at 16 KB; below this, most of the work is per request."""
PRODUCE_PER_S_MIN: Final = 200.0
"""Fewer requests per second cost nothing worth saving."""
TUNING_ORDER: Final = "first partitions, then batching, then compression, then hardware (004)"
CHECKLIST: Final = (
    "before scaling (002): is the load sustained, is it spread over all brokers, are clients batching and compressing, "
    "is a reassignment or a recovery running?"
)


def bottleneck(situation: Situation) -> Iterator[Item]:
    for broker in situation.names(Kind.BROKER):
        found = _limit(situation, broker)
        if found is not None:
            yield found
    yield from _small_batches(situation)


def _limit(situation: Situation, broker: str) -> Item | None:
    catalogue = situation.catalogue

    def figure(metric: str) -> float | None:
        return situation.sustained(Kind.BROKER, broker, metric)

    cpu, host_cpu, stall = figure("cpu_share"), figure("host_cpu_share"), figure("stall_p99_ms")
    busy, network, p99 = figure("disk_busy_share"), figure("network_share"), figure("request_p99_ms")
    scale = catalogue["threshold.utilisation_scale"]
    shown = _shown(cpu=cpu, host_cpu=host_cpu, disk=busy, network=network)
    if stall is not None:
        shown.append(f"event-loop stall p99 {stall:,.0f} ms")
    if p99 is not None:
        shown.append(f"Produce p99 {p99:,.0f} ms")
    high_cpu = max(cpu or 0.0, host_cpu or 0.0)
    if high_cpu > scale or (stall is not None and stall > catalogue["band.stall_p99_ms_high"] and high_cpu > 0.5):
        return _item(
            broker, "cpu", f"broker {broker} is out of CPU", shown,
            "requests are served in time again", "moving leaders reconnects clients; one more broker copies data",
            "penstock cluster balance --goals leaders,traffic", max(high_cpu, 0.5),
        )  # fmt: skip
    if busy is not None and busy > scale:
        return _item(
            broker, "disk", f"the disk of broker {broker} is the limit", shown,
            "writes no longer wait for the disk", "moving partitions reads and writes the same disk: use a throttle",
            f"penstock brokers describe {broker}", busy,
        )  # fmt: skip
    if network is not None and network > catalogue["band.network_high"]:
        return _item(
            broker, "network", f"the network of broker {broker} is the limit", shown,
            "compression alone saves half to two thirds", "compression costs the clients CPU",
            "penstock perf codecs TOPIC   # then set compression.type in the producers", network,
        )  # fmt: skip
    lag_ms = situation.value(Kind.BROKER, broker, "replica_lag_ms") or 0.0
    if lag_ms > catalogue["alert.replica_lag_ms"]:
        records = situation.value(Kind.BROKER, broker, "replica_lag_messages") or 0.0
        return _item(
            broker, "replication", f"replicas on broker {broker} do not keep up",
            [f"behind for {lag_ms / 1000:,.0f} s, by up to {records:,.0f} records", *shown,
             "causes (000): slow disk, network, CPU, stalls, overload; none of the first four is high here"],
            "the replicas catch up and stay in the ISR", "larger fetches take memory on both brokers",
            f"penstock configs alter --broker {broker} --add replica.fetch.max.bytes=10485760", lag_ms / 60_000,
        )  # fmt: skip
    return None


def _item(
    broker: str, kind: str, what: str, evidence: list[str], effect: str, risk: str, command: str, weight: float
) -> Item:
    return Item(
        code=f"bottleneck.{kind}", urgency=Urgency.NOW, subject=f"broker {broker}", what=what,
        evidence=(*evidence, TUNING_ORDER, CHECKLIST), effect=effect, risk=risk, command=command,
        source="000, Replication Lag Management; 002, Pre-scaling Assessment; 004, Tuning", weight=weight,
    )  # fmt: skip


def _small_batches(situation: Situation) -> Iterator[Item]:
    """Producers that send one record at a time make the broker work per record."""
    for broker in situation.names(Kind.BROKER):
        per_request = situation.sustained(Kind.BROKER, broker, "bytes_per_produce")
        requests = situation.sustained(Kind.BROKER, broker, "produce_per_s")
        cpu = situation.sustained(Kind.BROKER, broker, "cpu_share") or 0.0
        if per_request is None or requests is None or requests < PRODUCE_PER_S_MIN or per_request >= SMALL_BATCH_BYTES:
            continue
        if cpu < situation.catalogue["band.cpu_medium"]:
            continue
        yield Item(
            code="bottleneck.producer", urgency=Urgency.TODAY, subject=f"broker {broker}",
            what="let producers send larger batches",
            evidence=(f"{requests:,.0f} Produce requests/s of {per_request:,.0f} bytes each on broker {broker}",
                      f"CPU {cpu:.0%}: most of it is spent per request", TUNING_ORDER),
            effect="several times the throughput for the same CPU", risk="up to linger.ms more latency",
            command="penstock plan preset high-throughput   # linger.ms and batch.size for your client",
            source="000, Producer Optimization", weight=cpu,
        )  # fmt: skip


def _shown(**shares: float | None) -> list[str]:
    return [f"{name.replace('_', ' ')} {share:.0%}" for name, share in shares.items() if share is not None]
