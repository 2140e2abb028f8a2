"""How much disk the records of a cluster take (L2): data, indexes, slack of open segments, offsets, metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.planning.catalogue import Answer, Catalogue, Rule, not_negative, notes, positive, units, within

DAY_S: Final = 86_400
GB: Final = 1_000_000_000
TB: Final = 1_000 * GB

STORAGE: Final = Rule(
    name="storage",
    source="000, Storage Calculation; 003, Storage Calculation",
    formula="messages/s × bytes × 86,400 × days × replication factor × overhead ÷ compression",
    text="Computed from the average rate. Message size is before compression. 1 KB = 1,000 bytes, as in the documents.",
    inputs=units(
        messages_per_s="messages/s, on average",
        message_bytes="bytes",
        retention_days="days",
        replication_factor="copies",
        overhead="×",
        compression_ratio=": 1",
    ),
    values=("storage.index_share", "compression.snappy", "compression.lz4", "compression.gzip", "compression.zstd"),
    slip="000 reads 86.4 TB a day as 86.4 GB, and so asks for 2.2 TB per broker where 217.7 TB are needed.",
)
STORAGE_HEADROOM: Final = Rule(
    name="storage-headroom",
    source="002, Vertical Scaling Guidelines",
    formula="÷ (1 − headroom)",
    text="Disks are sized so that they are at most 70 % full: 21 TB of data need 30 TB of disk.",
    inputs=units(total_bytes="bytes"),
    values=("storage.headroom",),
)
SEGMENT_SLACK: Final = Rule(
    name="segment-slack",
    source="Penstock",
    formula="min(half a segment, what a partition takes in half of segment.ms) × partitions × replication factor",
    text="Retention removes closed segments only, so each replica keeps about half an active segment beyond its "
    "retention.",
    inputs=units(partitions="partitions", replication_factor="copies"),
    values=("storage.segment_bytes", "storage.segment_days"),
)
OFFSET_STORAGE: Final = Rule(
    name="offset-storage",
    source="001, Offset Storage",
    formula="consumers × partitions each × 100 bytes; commits/s × 100 bytes",
    text="Committed offsets live in a compacted topic: what is kept is one record per group and partition.",
    inputs=units(consumers="consumers", partitions_per_consumer="partitions", commits_per_s="commits/s"),
    values=("storage.offset_bytes",),
    slip="001 counts 6 GB for 30 days of history; 1 M commits/s × 100 bytes are 8.64 TB a day before compaction.",
)
METADATA_STORAGE: Final = Rule(
    name="metadata-storage",
    source="001, Metadata Storage",
    formula="topics × 10 KB + partitions × 5 KB + groups × 50 KB + brokers × 1 MB",
    text="Held in memory by every controller and broker.",
    inputs=units(topics="topics", partitions="partitions", groups="groups", brokers="brokers"),
    values=("metadata.topic_bytes", "metadata.partition_bytes", "metadata.group_bytes", "metadata.broker_bytes"),
    slip="001 also counts 100 GB of metadata per broker; its own sum is 6.6 GB for the whole cluster.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePlan(Answer):
    bytes_per_day: float
    retained_bytes: float
    """One copy."""
    replicated_bytes: float
    index_bytes: float
    slack_bytes: float
    total_bytes: float
    """With overhead: what must fit."""
    disk_bytes: float
    """With headroom: what to buy."""
    bytes_per_broker: float
    disk_bytes_per_broker: float


class StoredBytes(NamedTuple):
    per_day_bytes: float
    retained_bytes: float
    replicated_bytes: float
    index_bytes: float
    slack_bytes: float
    total_bytes: float


def count_bytes(
    catalogue: Catalogue,
    *,
    messages_per_s: float,
    message_bytes: float,
    retention_days: float,
    replication_factor: int,
    compression_ratio: float,
    overhead: float | None,
    partitions: int,
) -> StoredBytes:
    """The bytes alone, for plans of many topics; see `plan_storage`."""
    not_negative(messages_per_s=messages_per_s, retention_days=retention_days, partitions=partitions)
    positive(message_bytes=message_bytes, replication_factor=replication_factor)
    within(1, 1_000, compression_ratio=compression_ratio)
    per_day = messages_per_s * message_bytes * DAY_S / compression_ratio
    retained = per_day * retention_days
    replicated = retained * replication_factor
    index = slack = 0.0
    if overhead is None:
        index = replicated * catalogue["storage.index_share"]
        if partitions:
            by_time = per_day / partitions * catalogue["storage.segment_days"]
            slack = partitions * replication_factor * min(catalogue["storage.segment_bytes"], by_time) / 2
        total = replicated + index + slack
    else:
        within(1, 10, overhead=overhead)
        total = replicated * overhead
    return StoredBytes(per_day, retained, replicated, index, slack, total)


def plan_storage(
    catalogue: Catalogue,
    *,
    messages_per_s: float,
    message_bytes: float,
    retention_days: float,
    replication_factor: int = 3,
    compression_ratio: float = 1.0,
    overhead: float | None = None,
    partitions: int = 0,
    brokers: int = 1,
) -> StoragePlan:
    """`overhead` multiplies literally and stands for indexes and slack; without it both are computed."""
    positive(brokers=brokers)
    per_day, retained, replicated, index, slack, total = count_bytes(
        catalogue,
        messages_per_s=messages_per_s,
        message_bytes=message_bytes,
        retention_days=retention_days,
        replication_factor=replication_factor,
        compression_ratio=compression_ratio,
        overhead=overhead,
        partitions=partitions,
    )
    headroom = catalogue["storage.headroom"]
    disk = total / (1 - headroom)
    return StoragePlan(
        bytes_per_day=per_day,
        retained_bytes=retained,
        replicated_bytes=replicated,
        index_bytes=index,
        slack_bytes=slack,
        total_bytes=total,
        disk_bytes=disk,
        bytes_per_broker=total / brokers,
        disk_bytes_per_broker=disk / brokers,
        reasons=notes(
            f"{messages_per_s:,.0f} messages/s × {message_bytes:,.0f} bytes × 86,400 s"
            + (f" ÷ {compression_ratio:g} (compression)" if compression_ratio != 1 else "")
            + f" = {amount(per_day)} a day",
            f"× {retention_days:g} days = {amount(retained)}",
            f"× {replication_factor} replicas = {amount(replicated)}",
            f"× {overhead:g} (overhead) = {amount(total)}" if overhead is not None else None,
            f"+ {catalogue['storage.index_share']:.0%} for indexes = {amount(index)}" if index else None,
            f"+ half an open segment for each of {partitions * replication_factor:,} replicas = {amount(slack)}"
            if slack
            else None,
            f"÷ {1 - headroom:g} to stay below {1 - headroom:.0%} full = {amount(disk)} of disk",
        ),
        notes=notes(
            "The rate must be the average over the retention, not the peak.",
            "Without the number of partitions the slack of open segments is not counted."
            if not partitions and overhead is None
            else None,
        ),
        rules=("storage", "storage-headroom", *(() if overhead is not None else ("segment-slack",))),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStorage(Answer):
    offset_bytes: float
    """What is kept after compaction, one copy."""
    commit_bytes_per_s: float
    commit_bytes_per_day: float
    """Written before compaction."""


def plan_offsets(
    catalogue: Catalogue, *, consumers: float, partitions_per_consumer: float, commits_per_s: float
) -> OffsetStorage:
    """What the committed offsets of all groups take."""
    not_negative(consumers=consumers, partitions_per_consumer=partitions_per_consumer, commits_per_s=commits_per_s)
    size = catalogue["storage.offset_bytes"]
    kept = consumers * partitions_per_consumer * size
    rate = commits_per_s * size
    return OffsetStorage(
        offset_bytes=kept,
        commit_bytes_per_s=rate,
        commit_bytes_per_day=rate * DAY_S,
        reasons=(
            f"{consumers:,.0f} consumers × {partitions_per_consumer:g} partitions × {size:g} bytes = {amount(kept)}",
            f"{commits_per_s:,.0f} commits/s × {size:g} bytes = {amount(rate)}/s, {amount(rate * DAY_S)} a day "
            "before compaction",
        ),
        rules=("offset-storage",),
    )


def metadata_bytes(catalogue: Catalogue, *, topics: float, partitions: float, groups: float, brokers: float) -> float:
    """The cluster's metadata, which every node holds in memory."""
    not_negative(topics=topics, partitions=partitions, groups=groups, brokers=brokers)
    return (
        topics * catalogue["metadata.topic_bytes"]
        + partitions * catalogue["metadata.partition_bytes"]
        + groups * catalogue["metadata.group_bytes"]
        + brokers * catalogue["metadata.broker_bytes"]
    )


def amount(count: float) -> str:
    """Bytes for people, in powers of a thousand as the documents count."""
    for unit, size in (("PB", 1_000 * TB), ("TB", TB), ("GB", GB), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:,.4g} {unit}"
    return f"{count:,.0f} bytes"
