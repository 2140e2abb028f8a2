"""What a load asks of network, CPU, memory and disk operations (L2), by document 001's factors."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from penstock.planning.catalogue import Answer, Catalogue, PlanError, Rule, not_negative, notes, positive, units, within
from penstock.planning.storage import DAY_S, GB, amount, metadata_bytes, plan_offsets

REFERENCE_MESSAGES_PER_S: Final = 10_000
"""The rate of one broker for which 001 gives two cores for network and two for disk."""

RATES: Final = Rule(
    name="rates",
    source="001, Message Volume; 001, Topic and Partition Scale",
    formula="average × 86,400 s; average × 10 in a burst; rate ÷ partitions",
    text="Storage is computed from the average rate, network and CPU from the peak. A burst is a scenario of its own.",
    inputs=units(average_messages_per_s="messages/s", peak_messages_per_s="messages/s", partitions="partitions"),
    slip="3 M messages/s are 259 billion a day, not 250; a burst of 10 × on them is 30 M, above the stated peak of 10 "
    "M. "
    "1,000 messages/s on each of 1 M partitions would be 1 billion/s: it is 3 on average and 10 at peak, and a "
    "partition "
    "then holds 1.8 to 6 GB in 7 days, not 100 GB.",
    values=("load.burst",),
)
NETWORK: Final = Rule(
    name="network",
    source="001, Network Bandwidth",
    formula="in: bytes × RF; out: bytes × (fan-out + RF − 1); both × (1 + overhead)",
    text="Of the whole cluster, at peak. The fan-out is the number of groups that read a topic.",
    inputs=units(
        messages_per_s="messages/s, at peak",
        message_bytes="bytes",
        replication_factor="copies",
        fan_out="consumer groups per record",
    ),
    slip="001 leaves the overhead of replication out: inbound is 36 GB/s, not 32. It takes 20 consumers per group for "
    "the fan-out; its own counts give 2 readers per partition, so 24 GB/s to consumers, not 240. Its 40 GB/s of "
    "internal "
    "traffic counts each transfer twice: 20.1.",
    values=("load.protocol_overhead", "load.metadata_mb_s"),
)
CPU: Final = Rule(
    name="cpu",
    source="001, CPU Resources",
    formula="messages/s × (0.1 ms + 0.5 ms compression + 0.2 ms replication) + 2 cores network + 2 cores disk",
    text="The document's factors, for brokers that handle messages one by one. Batches cost far less per message: "
    "measure your own.",
    inputs=units(messages_per_s="messages/s of one broker"),
    slip="At 100 K messages/s per broker (10 M ÷ 100; the document computes with 10 K) that is 84 cores, and 120 if "
    "network and disk grow with the rate.",
    values=("cpu.processing_ms", "cpu.compression_ms", "cpu.replication_ms", "cpu.network_cores", "cpu.disk_cores"),
)
MEMORY: Final = Rule(
    name="memory",
    source="001, Memory Resources; 002, Vertical Scaling Guidelines",
    formula="page cache + producers × 10 MB + consumers × 10 MB + metadata + heap",
    text="Of one broker. Penstock has no heap of a fixed size: set memory.heap_gb to what a broker process takes.",
    inputs=units(producers="connected to one broker", consumers="connected to one broker"),
    slip="Heap is 13 % of the memory in 001 and 50 to 70 % in 002, whose own example has a 24 GB heap in 32 Gi: 75 % "
    "of "
    "the request and 50 % of the limit (48 Gi).",
    values=(
        "memory.page_cache_gb",
        "memory.producer_mb",
        "memory.consumer_mb",
        "memory.metadata_gb",
        "memory.heap_gb",
    ),
)
IOPS: Final = Rule(
    name="iops",
    source="001, Disk I/O",
    formula="messages/s × RF ÷ messages per batch, and cold reads/s ÷ messages per batch",
    text="One write per batch and replica. 002 provisions 3,000 to 10,000.",
    inputs=units(
        messages_per_s="messages/s of one broker",
        replication_factor="copies",
        read_messages_per_s="messages/s from disk",
        messages_per_batch="messages",
    ),
    slip="001 counts one operation per message, which ignores batches: 30 K + 20 K become 5 with its own batches of "
    "10,000. Those would be of 10 MB, where 000 recommends 16 to 64 KB. Its 10 and 20 GB/s of disk are cluster-wide.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePlan(Answer):
    messages_per_day: float
    burst_messages_per_s: float
    average_per_partition: float
    peak_per_partition: float


def plan_rates(
    catalogue: Catalogue, *, average_messages_per_s: float, peak_messages_per_s: float, partitions: int
) -> RatePlan:
    """What a message rate means for a day, a burst and a partition."""
    not_negative(average_messages_per_s=average_messages_per_s, peak_messages_per_s=peak_messages_per_s)
    positive(partitions=partitions)
    per_day, burst = average_messages_per_s * DAY_S, average_messages_per_s * catalogue["load.burst"]
    return RatePlan(
        messages_per_day=per_day,
        burst_messages_per_s=burst,
        average_per_partition=average_messages_per_s / partitions,
        peak_per_partition=peak_messages_per_s / partitions,
        reasons=(
            f"{average_messages_per_s:,.0f} messages/s × 86,400 s = {per_day:,.0f} a day",
            f"× {catalogue['load.burst']:g} in a burst = {burst:,.0f} messages/s",
            f"÷ {partitions:,} partitions = {average_messages_per_s / partitions:,.3g} messages/s each, "
            f"{peak_messages_per_s / partitions:,.3g} at peak",
        ),
        notes=notes(
            "The burst exceeds the stated peak: is the peak a longer average?" if burst > peak_messages_per_s else None
        ),
        rules=("rates",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan(Answer):
    """Of the whole cluster, in bytes per second."""

    inbound_bytes_per_s: float
    outbound_bytes_per_s: float
    """To consumers and followers."""
    consumer_bytes_per_s: float
    """The part of it that goes to consumers."""
    internal_bytes_per_s: float
    """Between brokers, each transfer counted once, without protocol overhead."""


def plan_network(
    catalogue: Catalogue,
    *,
    messages_per_s: float,
    message_bytes: float,
    replication_factor: float = 3,
    fan_out: float = 1.0,
    compression_ratio: float = 1.0,
) -> NetworkPlan:
    """Traffic at peak."""
    not_negative(messages_per_s=messages_per_s, fan_out=fan_out)
    positive(message_bytes=message_bytes, replication_factor=replication_factor, compression_ratio=compression_ratio)
    data = messages_per_s * message_bytes / compression_ratio
    wire = data * (1 + catalogue["load.protocol_overhead"])
    inbound, consumed = wire * replication_factor, wire * fan_out
    outbound = consumed + wire * (replication_factor - 1)
    internal = data * (replication_factor - 1) + catalogue["load.metadata_mb_s"] * 1e6
    overhead = f"{catalogue['load.protocol_overhead']:.0%} of protocol"
    return NetworkPlan(
        inbound_bytes_per_s=inbound,
        outbound_bytes_per_s=outbound,
        consumer_bytes_per_s=consumed,
        internal_bytes_per_s=internal,
        reasons=(
            f"in: {amount(data)}/s × {replication_factor:g} copies, and {overhead} = {amount(inbound)}/s",
            f"out: × {fan_out:g} to consumers, {amount(consumed)}/s; "
            f"with followers {amount(outbound)}/s, {overhead} included",
            f"between brokers: {amount(data)}/s × {replication_factor - 1:g} followers, and metadata "
            f"= {amount(internal)}/s",
        ),
        rules=("network",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan(Answer):
    """Of one broker, in bytes."""

    page_cache_bytes: float
    buffer_bytes: float
    metadata_bytes: float
    heap_bytes: float
    total_bytes: float
    heap_share: float


def plan_memory(catalogue: Catalogue, *, producers: int, consumers: int) -> MemoryPlan:
    """The memory of one broker with so many connected clients."""
    not_negative(producers=producers, consumers=consumers)
    cache, heap = catalogue["memory.page_cache_gb"] * GB, catalogue["memory.heap_gb"] * GB
    buffers = (producers * catalogue["memory.producer_mb"] + consumers * catalogue["memory.consumer_mb"]) * 1e6
    metadata = catalogue["memory.metadata_gb"] * GB
    total = cache + buffers + metadata + heap
    return MemoryPlan(
        page_cache_bytes=cache,
        buffer_bytes=buffers,
        metadata_bytes=metadata,
        heap_bytes=heap,
        total_bytes=total,
        heap_share=heap / total if total else 0.0,
        reasons=(
            f"page cache {amount(cache)}, buffers of {producers:,} producers and {consumers:,} consumers "
            f"{amount(buffers)}, metadata {amount(metadata)}, heap {amount(heap)}: {amount(total)}",
        ),
        rules=("memory",),
    )


def cores(
    catalogue: Catalogue,
    *,
    messages_per_s: float,
    compression: bool = True,
    replication: bool = True,
    io_scales: bool = False,
) -> float:
    """001's factors for one broker; with `io_scales` network and disk grow with the rate."""
    not_negative(messages_per_s=messages_per_s)
    per_message_ms = (
        catalogue["cpu.processing_ms"]
        + catalogue["cpu.compression_ms"] * compression
        + catalogue["cpu.replication_ms"] * replication
    )
    io = catalogue["cpu.network_cores"] + catalogue["cpu.disk_cores"]
    return messages_per_s * per_message_ms / 1000 + io * (messages_per_s / REFERENCE_MESSAGES_PER_S if io_scales else 1)


def iops(
    *, messages_per_s: float, replication_factor: int, read_messages_per_s: float, messages_per_batch: float = 1
) -> int:
    """Disk operations of one broker; with one message per batch, as 001 counts."""
    not_negative(messages_per_s=messages_per_s, read_messages_per_s=read_messages_per_s)
    positive(replication_factor=replication_factor, messages_per_batch=messages_per_batch)
    return ceil((messages_per_s * replication_factor + read_messages_per_s) / messages_per_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan(Answer):
    """What a load asks of a cluster, and of each of its brokers."""

    messages_per_day: float
    burst_messages_per_s: float
    average_per_partition: float
    peak_per_partition: float
    inbound_bytes_per_s: float
    outbound_bytes_per_s: float
    internal_bytes_per_s: float
    cores_per_broker: float
    """By 001's factors, with fixed cores for network and disk."""
    cores_per_broker_scaled: float
    """With cores for network and disk that grow with the rate."""
    iops_per_broker: int
    memory_bytes_per_broker: float
    offset_bytes: float
    commit_bytes_per_s: float
    metadata_bytes: float


def plan_load(
    catalogue: Catalogue,
    *,
    average_messages_per_s: float,
    peak_messages_per_s: float,
    message_bytes: float,
    brokers: int,
    partitions: int,
    replication_factor: int = 3,
    fan_out: float = 1.0,
    cold_share: float = 0.0,
    messages_per_batch: float = 1.0,
    topics: int = 0,
    groups: int = 0,
    producers: int = 0,
    consumers: int = 0,
    partitions_per_consumer: float = 1.0,
    commits_per_s: float = 0.0,
) -> LoadPlan:
    """All of document 001's figures for one load. Clients are spread evenly over the brokers."""
    positive(brokers=brokers)
    if peak_messages_per_s < average_messages_per_s:
        raise PlanError(
            f"the peak ({peak_messages_per_s:g} messages/s) is below the average ({average_messages_per_s:g})"
        )
    within(0, 1, cold_share=cold_share)
    rates = plan_rates(
        catalogue,
        average_messages_per_s=average_messages_per_s,
        peak_messages_per_s=peak_messages_per_s,
        partitions=partitions,
    )
    network = plan_network(
        catalogue,
        messages_per_s=peak_messages_per_s,
        message_bytes=message_bytes,
        replication_factor=replication_factor,
        fan_out=fan_out,
    )
    memory = plan_memory(catalogue, producers=ceil(producers / brokers), consumers=ceil(consumers / brokers))
    offsets = plan_offsets(
        catalogue,
        consumers=consumers,
        partitions_per_consumer=partitions_per_consumer,
        commits_per_s=commits_per_s,
    )
    each = peak_messages_per_s / brokers
    fixed = cores(catalogue, messages_per_s=each)
    scaled = cores(catalogue, messages_per_s=each, io_scales=True)
    operations = iops(
        messages_per_s=each,
        replication_factor=replication_factor,
        read_messages_per_s=each * fan_out * cold_share,
        messages_per_batch=messages_per_batch,
    )
    metadata = metadata_bytes(catalogue, topics=topics, partitions=partitions, groups=groups, brokers=brokers)
    return LoadPlan(
        messages_per_day=rates.messages_per_day,
        burst_messages_per_s=rates.burst_messages_per_s,
        average_per_partition=rates.average_per_partition,
        peak_per_partition=rates.peak_per_partition,
        inbound_bytes_per_s=network.inbound_bytes_per_s,
        outbound_bytes_per_s=network.outbound_bytes_per_s,
        internal_bytes_per_s=network.internal_bytes_per_s,
        cores_per_broker=fixed,
        cores_per_broker_scaled=scaled,
        iops_per_broker=operations,
        memory_bytes_per_broker=memory.total_bytes,
        offset_bytes=offsets.offset_bytes,
        commit_bytes_per_s=offsets.commit_bytes_per_s,
        metadata_bytes=metadata,
        reasons=(
            *rates.reasons,
            *network.reasons,
            f"CPU of one broker: {each:,.0f} messages/s × 001's factors = {fixed:,.3g} cores, {scaled:,.3g} if network "
            f"and "
            "disk grow with the rate",
            f"disk operations of one broker: {each:,.0f} messages/s × {replication_factor} copies and cold reads, "
            f"÷ {messages_per_batch:g} messages per batch = {operations:,}",
            *memory.reasons,
            *offsets.reasons,
            f"metadata: {amount(metadata)}",
        ),
        notes=notes(
            *rates.notes,
            "One message per batch is 001's way to count, and far more than batches need."
            if messages_per_batch == 1
            else None,
        ),
        rules=("rates", "network", "cpu", "iops", "memory", "offset-storage", "metadata-storage"),
    )
