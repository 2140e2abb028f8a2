"""What is broken. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock.advise.items import Item, Urgency
from penstock.advise.situation import Situation
from penstock.monitor.observed import Place
from penstock.monitor.samples import Kind

SHOWN_MAX: Final = 5
LEADERS_SHARE: Final = 0.25
"""Advice to elect preferred leaders if more than this share of the partitions has another leader."""


def health(situation: Situation) -> Iterator[Item]:
    shape = situation.observed.shape
    down = shape.down()
    offline, missing = shape.offline(), shape.under_replicated()
    held: Counter[int] = Counter(
        broker for topic in shape.topics.values() for part in topic.partitions for broker in part.replicas
    )
    for broker in down:
        address = shape.brokers[broker].address if broker in shape.brokers else "an unknown address"
        yield Item(
            code="health.broker-down", urgency=Urgency.NOW, subject=f"broker {broker}",
            what=f"start broker {broker} ({address}), or take it out for good",
            evidence=(f"it does not serve; it holds {held[broker]:,} replicas",
                      f"{len(missing):,} partitions lack replicas, {len(offline):,} have no leader"),
            effect="its replicas catch up and join the ISR by themselves",
            risk="none if it is started with its data; taking it out copies its data to the others",
            command=f"penstock server --data DIR --node-id {broker}   # or: penstock brokers drain {broker}",
            source="000, Alerting Rules", weight=1_000 + held[broker],
        )  # fmt: skip
    if offline:
        yield Item(
            code="health.offline-partitions", urgency=Urgency.NOW, subject=_places(offline),
            what="bring back a replica of the partitions that have no leader",
            evidence=(f"{len(offline):,} partitions have no leader: {_places(offline)}",),
            effect="they can be written and read again",
            risk="an unclean election loses what only the missing replicas have",
            command="penstock cluster describe", source="000, Alerting Rules", weight=900 + len(offline),
        )  # fmt: skip
    if shape.under_min_isr:
        yield Item(
            code="health.under-min-isr", urgency=Urgency.NOW, subject=_places(shape.under_min_isr),
            what="restore in-sync replicas: acks=all is refused",
            evidence=(f"{len(shape.under_min_isr):,} partitions are below min.insync.replicas",),
            effect="producers with acks=all can write again", risk="lowering min.insync.replicas instead risks data",
            command="penstock brokers list", source="Penstock", weight=800,
        )  # fmt: skip
    unexplained = [place for place in missing if place not in shape.reassigning]
    if unexplained and not down:
        yield Item(
            code="health.under-replicated", urgency=Urgency.NOW, subject=_places(unexplained),
            what="find out why replicas stay behind although all brokers serve",
            evidence=(f"{len(unexplained):,} partitions lack in-sync replicas: {_places(unexplained)}",
                      *_lags(situation)),
            effect="the partitions survive a failure again", risk="none: it only looks",
            command="penstock brokers list", source="000, Replication Lag Management", weight=700,
        )  # fmt: skip
    yield from _leaders(situation, bool(down))


def _leaders(situation: Situation, is_degraded: bool) -> Iterator[Item]:
    shape = situation.observed.shape
    parts = [part for topic in shape.topics.values() for part in topic.partitions if part.leader >= 0 and part.replicas]
    strayed = [part for part in parts if part.leader != part.replicas[0] and part.replicas[0] in part.in_sync]
    if is_degraded or len(parts) < 4 or len(strayed) <= LEADERS_SHARE * len(parts):
        return
    counts = Counter(part.leader for part in parts)
    yield Item(
        code="health.preferred-leaders", urgency=Urgency.TODAY, subject="cluster",
        what="give leadership back to the preferred replicas",
        evidence=(f"{len(strayed):,} of {len(parts):,} partitions are not led by their first replica",
                  "leaders by broker: " + ", ".join(f"{broker}: {count}" for broker, count in sorted(counts.items()))),
        effect="writes and reads spread over all brokers again", risk="clients reconnect once; no data moves",
        command="penstock leaders elect --all", source="000, Load Balancing", weight=len(strayed),
    )  # fmt: skip


def _lags(situation: Situation) -> list[str]:
    found = []
    for broker in situation.names(Kind.BROKER):
        lag_ms = situation.value(Kind.BROKER, broker, "replica_lag_ms")
        if lag_ms:
            found.append(f"a replica on broker {broker} has been behind for {lag_ms / 1000:,.0f} s")
    return found


def _places(places: list[Place] | tuple[Place, ...]) -> str:
    shown = ", ".join(f"{topic}-{number}" for topic, number in list(places)[:SHOWN_MAX])
    return shown + (f" and {len(places) - SHOWN_MAX:,} more" if len(places) > SHOWN_MAX else "")
