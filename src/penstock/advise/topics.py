"""Topics that deserve another retention, codec or partition count, and what that saves a month. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

from penstock.advise.items import Item, Urgency
from penstock.advise.situation import Situation, TopicFacts
from penstock.monitor.samples import Kind
from penstock.planning.partitions import count_partitions

SIZE_BYTES_MIN: Final = 1_000_000_000
"""Smaller topics are not worth a change."""
RATIO_MIN: Final = 1.3
DAY_MS: Final = 86_400_000
READ_WITHIN: Final = 10
"""Retention is long if every group reads within a tenth of it."""
LOAD_SHARE: Final = 0.7


def topics(situation: Situation) -> Iterator[Item]:
    for name in situation.names(Kind.TOPIC):
        if name.startswith("__"):
            continue
        facts = situation.facts.get(name, TopicFacts())
        yield from _codec(situation, name, facts)
        yield from _retention(situation, name, facts)
        yield from _partitions(situation, name)


def _codec(situation: Situation, name: str, facts: TopicFacts) -> Iterator[Item]:
    size = situation.value(Kind.TOPIC, name, "size_bytes") or 0.0
    if facts.stored_codec not in ("none", "uncompressed") or size < SIZE_BYTES_MIN or not facts.sampled_ratio:
        return
    codec = max(facts.sampled_ratio, key=lambda one: facts.sampled_ratio[one])
    ratio = facts.sampled_ratio[codec]
    if ratio < RATIO_MIN:
        return
    saved = _dollars(situation, size * (1 - 1 / ratio))
    yield Item(
        code="topics.codec", urgency=Urgency.PLAN, subject=f"topic {name}", what=f"compress {name} with {codec}",
        evidence=(f"{size / 1e9:,.1f} GB on disk, stored uncompressed",
                  *(f"{one}: {found:.1f} : 1 on a sample" for one, found in sorted(facts.sampled_ratio.items()))),
        effect=f"{1 - 1 / ratio:.0%} less disk and network", risk="CPU of producers and consumers",
        command=f"penstock configs alter --topic {name} --add compression.type={codec}",
        source="000, Storage Optimization", saves_month=saved, weight=saved,
    )  # fmt: skip


def _retention(situation: Situation, name: str, facts: TopicFacts) -> Iterator[Item]:
    size = situation.value(Kind.TOPIC, name, "size_bytes") or 0.0
    if facts.retention_ms is None or facts.retention_ms <= 0 or "compact" in facts.cleanup_policy:
        return
    every = (situation.observed.groups.value or {}).values()
    groups = [one for one in every if any(topic == name for topic, _ in one.committed)]
    lags = [situation.value(Kind.GROUP, one.name, "lag_s") for one in groups]
    if size < SIZE_BYTES_MIN or not lags or any(lag is None for lag in lags):
        return
    slowest_s = max(lag for lag in lags if lag is not None)
    wanted_ms = int(situation.catalogue["retention.events_days"] * DAY_MS)
    if slowest_s * 1000 * READ_WITHIN > wanted_ms or facts.retention_ms <= wanted_ms:
        return
    share = 1 - wanted_ms / facts.retention_ms
    saved = _dollars(situation, size * share)
    yield Item(
        code="topics.retention", urgency=Urgency.PLAN, subject=f"topic {name}",
        what=f"keep {name} for {wanted_ms // DAY_MS} days instead of {facts.retention_ms / DAY_MS:g}",
        evidence=(f"{size / 1e9:,.1f} GB on disk",
                  f"its {len(groups)} groups read everything within {slowest_s:,.0f} s",
                  "000's class of events: 3 days"),
        effect=f"{share:.0%} less disk", risk="older records are deleted; nobody can read them again",
        command=f"penstock configs alter --topic {name} --add retention.ms={wanted_ms}",
        source="000, Storage Optimization", saves_month=saved, weight=saved,
    )  # fmt: skip


def _partitions(situation: Situation, name: str) -> Iterator[Item]:
    per_partition = situation.per_partition_mb_s
    now = situation.value(Kind.TOPIC, name, "partitions")
    rate = situation.sustained(Kind.TOPIC, name, "bytes_in_per_s")
    if per_partition is None or now is None or not rate:
        return
    mb_s = rate / 1e6
    if mb_s <= now * per_partition * LOAD_SHARE:
        return
    count = count_partitions(
        situation.catalogue, peak_mb_s=mb_s / LOAD_SHARE, per_partition_mb_s=per_partition, consumers=0
    )
    wanted = max(count.partitions, ceil(now) + 1)
    yield Item(
        code="topics.partitions", urgency=Urgency.TODAY, subject=f"topic {name}",
        what=f"give {name} {wanted} partitions instead of {now:g}",
        evidence=(f"{mb_s:,.1f} MB/s on {now:g} partitions of {per_partition:g} MB/s each (calibrated)",),
        effect="more brokers and consumers share the load", risk="new records of a key may go to another partition",
        command=f"penstock topics alter {name} --partitions {wanted}",
        source="002, Partition Count Calculation", weight=mb_s,
    )  # fmt: skip


def _dollars(situation: Situation, saved_bytes: float) -> float:
    return round(saved_bytes / 1e9 * situation.catalogue["price.hot_gb"], 2)
