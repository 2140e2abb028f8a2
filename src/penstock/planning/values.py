"""All values of the catalogue: thresholds, factors and prices, with unit and source. A user may replace each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.planning.catalogue import Value

_METRICS_002: Final = "002, Metrics for Capacity Planning"
_SIZES_002: Final = "002, Vertical Scaling Guidelines"
_THRESHOLDS_002: Final = "002, Broker Scaling Thresholds"
_CONSUMERS_002: Final = "002, Consumer Scaling Guidelines"
_CPU_001: Final = "001, CPU Resources"
_MEMORY_001: Final = "001, Memory Resources"
_METADATA_001: Final = "001, Metadata Storage"
_COST_001: Final = "001, Infrastructure Costs"
_PEOPLE_001: Final = "001, Operational Costs"
_STORAGE_000: Final = "000, Storage Optimization"


def _partitions() -> Iterator[Value]:
    yield Value(
        name="partitions.minimum", value=6, unit="partitions", minimum=1, whole=True,
        source="002, Partition Count Calculation", text="No topic gets fewer.",
    )  # fmt: skip
    yield Value(
        name="partitions.multiple", value=6, unit="partitions", minimum=1, whole=True,
        source="002, Topic Scaling Example",
        text="Counts are rounded up to a multiple of this: 6 divides evenly among 2, 3 and 6 consumers.",
    )  # fmt: skip
    yield Value(
        name="partitions.consumer_multiple", value=2, unit="×", minimum=1,
        source="002, Topic Scaling Example",
        text="Partitions per planned consumer, so that a group can grow. 002 calls it Consumer_Replication_Factor.",
    )  # fmt: skip
    yield Value(
        name="partitions.headroom_low", value=2, unit="×", minimum=1,
        source="000, Partition Scaling",
        text="A current load is multiplied by at least this; a peak load is taken as it is.",
    )  # fmt: skip
    yield Value(
        name="partitions.headroom_high", value=3, unit="×", minimum=1,
        source="000, Partition Scaling", text="The generous end of the headroom for a current load.",
    )  # fmt: skip
    yield Value(
        name="partitions.simple_mb_s", value=100, unit="MB/s", minimum=0.001,
        source="000, Partition Scaling; 004, Partition Strategy", text="One partition, in 000's quick estimate.",
    )  # fmt: skip
    yield Value(
        name="partitions.diminishing", value=50, unit="partitions", minimum=1,
        source="004, Partition Strategy", text="Beyond this a topic gains little from more partitions.",
    )  # fmt: skip
    yield Value(
        name="partitions.maximum", value=1000, unit="partitions", minimum=1,
        source="000, Partition Scaling", text="The most that a topic should have.",
    )  # fmt: skip
    yield Value(
        name="partitions.per_broker", value=2000, unit="replicas per broker", minimum=1,
        source=_METRICS_002, text="Beyond this, brokers are added. Counted per broker process.",
    )  # fmt: skip


def _storage() -> Iterator[Value]:
    yield Value(
        name="storage.headroom", value=0.3, unit="share of the disk", maximum=0.9,
        source=_SIZES_002, text="Kept free. 30 % means ÷ 0.7, which meets 002's 70 % trigger.",
    )  # fmt: skip
    yield Value(
        name="storage.index_share", value=0.1, unit="share of the data", maximum=1.0,
        source="001, Message Storage", text="Offset and time indexes beside the data.",
    )  # fmt: skip
    yield Value(
        name="storage.segment_bytes", value=1_073_741_824, unit="bytes", minimum=1,
        source="Kafka, segment.bytes",
        text="An active segment is not deleted until it is closed and its newest record has expired.",
    )  # fmt: skip
    yield Value(
        name="storage.segment_days", value=7, unit="days", minimum=0.001,
        source="Kafka, segment.ms", text="An active segment is closed after this time, however small it is.",
    )  # fmt: skip
    yield Value(
        name="storage.offset_bytes", value=100, unit="bytes", source="001, Offset Storage", text="One committed offset."
    )
    for name, size, text in (
        ("topic", 10_000, "One topic."),
        ("partition", 5_000, "One partition."),
        ("group", 50_000, "One consumer group."),
        ("broker", 1_000_000, "One broker."),
    ):
        yield Value(name=f"metadata.{name}_bytes", value=size, unit="bytes", source=_METADATA_001, text=text)
    for name, days in (("logs", 1), ("events", 3), ("default", 7), ("critical", 30)):
        yield Value(
            name=f"retention.{name}_days", value=days, unit="days", source=_STORAGE_000,
            text=f"How long {'data without a class' if name == 'default' else name + ' data'} is kept.",
        )  # fmt: skip
    for codec, ratio in (("snappy", 2), ("lz4", 2), ("gzip", 3), ("zstd", 3)):
        yield Value(
            name=f"compression.{codec}", value=ratio, unit=": 1", minimum=1, maximum=1000,
            source="000, Producer Optimization", text="Compression ratio. `penstock perf codecs` measures your data.",
        )  # fmt: skip
    yield Value(
        name="tiers.hot_days", value=7, unit="days", source="000, Tiered Storage", text="Age up to which data is hot."
    )
    yield Value(
        name="tiers.warm_days", value=30, unit="days", source="000, Tiered Storage",
        text="Age up to which data is warm; older data is cold.",
    )  # fmt: skip


def _brokers() -> Iterator[Value]:
    yield Value(
        name="brokers.utilisation", value=0.7, unit="share", minimum=0.05, maximum=1.0,
        source=_METRICS_002, text="The load at peak that a broker is sized for.",
    )  # fmt: skip
    yield Value(
        name="brokers.utilisation_degraded", value=0.9, unit="share", minimum=0.05, maximum=1.0,
        source=f"{_THRESHOLDS_002} (emergency)", text="The load at peak that the survivors of a failure may carry.",
    )  # fmt: skip
    yield Value(
        name="brokers.rebuild_hours", value=8, unit="h", minimum=0.01,
        source="Penstock", text="The longest time that copying a lost broker's data back may take.",
    )  # fmt: skip
    yield Value(
        name="brokers.minimum", value=3, unit="brokers", minimum=1, whole=True,
        source="004, Scale Milestones", text="The smallest cluster for production.",
    )  # fmt: skip
    yield Value(
        name="brokers.encryption_cost", value=0, unit="share", maximum=0.9, source="002, Compliance-Driven Workloads",
        text="Throughput of a broker that TLS costs. 002 gives no figure: measure it on your machines.",
    )  # fmt: skip
    yield Value(
        name="load.audit_share", value=0, unit="share", maximum=10, source="002, Compliance-Driven Workloads",
        text="Audit records, as a share of all bytes written. 002 gives no figure.",
    )  # fmt: skip
    yield Value(
        name="load.protocol_overhead", value=0.2, unit="share", maximum=5,
        source="001, Inbound Traffic", text="Bytes on the wire beyond the records.",
    )  # fmt: skip
    yield Value(
        name="load.metadata_mb_s", value=100, unit="MB/s",
        source="001, Internal Traffic", text="Metadata traffic between the nodes of 001's cluster.",
    )  # fmt: skip
    yield Value(
        name="load.burst", value=10, unit="×", minimum=1,
        source="001, Message Volume", text="A burst over the average rate.",
    )  # fmt: skip
    for name, cost, text in (
        ("processing", 0.1, "Handling one message."),
        ("compression", 0.5, "Compressing and decompressing one message."),
        ("replication", 0.2, "Replicating one message."),
    ):
        yield Value(name=f"cpu.{name}_ms", value=cost, unit="ms of one core", source=_CPU_001, text=text)
    for name in ("network", "disk"):
        yield Value(
            name=f"cpu.{name}_cores", value=2, unit="cores", source=_CPU_001,
            text=f"For {name} I/O at 001's reference rate of 10,000 messages/s per broker.",
        )  # fmt: skip
    yield Value(name="memory.page_cache_gb", value=64, unit="GB", source=_MEMORY_001, text="For recent messages.")
    for name in ("producer", "consumer"):
        yield Value(name=f"memory.{name}_mb", value=10, unit="MB", source=_MEMORY_001, text=f"Buffers for one {name}.")
    yield Value(name="memory.metadata_gb", value=10, unit="GB", source=_MEMORY_001, text="Metadata cache.")
    yield Value(
        name="memory.heap_gb", value=16, unit="GB", source=_MEMORY_001,
        text="JVM heap, for Apache Kafka. Penstock has no heap of a fixed size.",
    )  # fmt: skip
    yield Value(
        name="durability.failures_per_year", value=0.05, unit="per broker", maximum=100,
        source="Penstock", text="How often a broker loses its data for good.",
    )  # fmt: skip
    yield Value(
        name="durability.repair_hours", value=1, unit="h", minimum=0.001,
        source="Penstock", text="From the failure until the copy is complete again.",
    )  # fmt: skip


def _thresholds() -> Iterator[Value]:
    """002's tables of thresholds, one value per cell."""
    for name, unit, levels in (
        ("message_rate", "share of the tested maximum", (0.7, 0.8, 0.9)),
        ("partitions", "replicas per broker", (1_500, 2_000, 2_500)),
        ("request_p95_ms", "ms", (10, 20, 50)),
        ("utilisation", "share, sustained", (0.7, 0.8, 0.9)),
    ):
        for level, bound in zip(("warning", "scale", "emergency"), levels, strict=True):
            yield Value(
                name=f"threshold.{name}_{level}", value=bound, unit=unit, source=_THRESHOLDS_002,
                text=f"Above this the {level} level is reached.",
            )  # fmt: skip
    for name, unit, warning, scale in (
        ("lag_records", "records, sustained", 10_000, 50_000),
        ("lag_s", "s behind", 30, 120),
        ("cpu", "share, sustained", 0.7, 0.8),
        ("throughput", "share of the benchmark", 0.7, 0.8),
    ):
        for level, bound in (("warning", warning), ("scale", scale)):
            yield Value(
                name=f"consumer.{name}_{level}", value=bound, unit=unit, source=_CONSUMERS_002,
                text=f"Above this the {level} level is reached.",
            )  # fmt: skip
    for name, unit, low, high, source in (
        ("cpu", "share", 0.5, 0.7, "002, Scaling Decision Matrix"),
        ("memory", "share", 0.6, 0.8, "002, Scaling Decision Matrix"),
        ("network", "share", 0.5, 0.7, "Penstock: 002 gives no numbers"),
        ("stall_p99_ms", "ms", 20, 100, "Penstock: stands for 002's GC pressure"),
    ):
        yield Value(name=f"band.{name}_medium", value=low, unit=unit, source=source, text="Medium from here on.")
        yield Value(name=f"band.{name}_high", value=high, unit=unit, source=source, text="High above this.")


def _alerts() -> Iterator[Value]:
    """000's alerting rules."""
    alerting = "000, Alerting Rules"
    for name, bound, unit, text in (
        ("offline_partitions", 0, "partitions", "More partitions without a leader are critical."),
        ("under_replicated_partitions", 10, "partitions", "More under-replicated partitions are critical."),
        ("under_replicated_any", 0, "partitions", "More under-replicated partitions are a warning."),
        ("pipeline_up", 1, "boolean", "Less means that a pipeline does not answer."),
        ("under_min_isr_partitions", 0, "partitions", "More partitions below min.insync.replicas are critical."),
        ("active_controllers", 1, "controllers", "Any other number is critical."),
        ("brokers_down", 0, "brokers", "More brokers down for five minutes are critical."),
        ("lag_records_critical", 100_000, "records", "More unread records of a group are critical."),
        ("lag_records_warning", 10_000, "records", "More unread records of a group are a warning."),
        ("request_p99_ms", 20, "ms", "A longer time of Produce requests is a warning."),
        ("replica_lag_ms", 10_000, "ms", "A replica that is behind for longer is a warning."),
        ("disk_used", 0.8, "share", "A fuller disk is a warning."),
        ("cpu", 0.8, "share", "A busier CPU is a warning."),
        ("messages_in_healthy", 10_000, "records/s", "Fewer mean that a broker is idle, not that it is ill."),
        ("bytes_in_healthy", 10_000_000, "bytes/s", "Fewer mean that a broker is idle, not that it is ill."),
        ("bytes_out_healthy", 100_000_000, "bytes/s", "Fewer mean that a broker is idle, not that it is ill."),
    ):
        ours = ("under_min_isr_partitions", "under_replicated_any", "pipeline_up")
        source = "Penstock: added to 000's rules" if name in ours else alerting
        if name.endswith("_healthy"):
            source = "000, Key Metrics"
        yield Value(name=f"alert.{name}", value=bound, unit=unit, source=source, text=text)


def _prices() -> Iterator[Value]:
    """In US dollars a month."""
    yield Value(name="price.broker", value=500, unit="$ per broker", source=_COST_001, text="Compute.")
    tiers = "000, Tiered Storage"
    yield Value(name="price.hot_gb", value=0.10, unit="$ per GB", source=tiers, text="Local disk: $100 per TB.")
    yield Value(name="price.warm_gb", value=0.05, unit="$ per GB", source=tiers, text="Slower disk: $50 per TB.")
    yield Value(name="price.cold_gb", value=0.02, unit="$ per GB", source=tiers, text="Object storage: $20 per TB.")
    yield Value(name="price.egress_gb", value=0.05, unit="$ per GB", source=_COST_001, text="Traffic that leaves.")
    yield Value(
        name="price.cross_zone_gb", value=0.02, unit="$ per GB",
        source="Penstock", text="Traffic between zones; clouds charge $0.01 on each side.",
    )  # fmt: skip
    yield Value(name="price.load_balancer", value=50, unit="$ each", source=_COST_001, text="Load balancer.")
    yield Value(
        name="price.load_balancers", value=10, unit="pieces", whole=True, source=_COST_001, text="How many of them."
    )
    yield Value(name="price.monitoring", value=5_000, unit="$", source=_COST_001, text="Monitoring.")
    yield Value(name="price.engineering", value=50_000, unit="$", source=_PEOPLE_001, text="Two engineers.")
    yield Value(name="price.support", value=20_000, unit="$", source=_PEOPLE_001, text="On call.")
    yield Value(name="price.training", value=5_000, unit="$", source=_PEOPLE_001, text="Training.")
    yield Value(
        name="price.spot_discount", value=0.7, unit="share", maximum=1.0,
        source="000, Resource Right-Sizing", text="Saved by spot instances.",
    )  # fmt: skip
    yield Value(
        name="price.reserved_discount", value=0.4, unit="share", maximum=1.0,
        source="000, Resource Right-Sizing", text="Saved by reserved instances.",
    )  # fmt: skip


VALUES: Final[tuple[Value, ...]] = (*_partitions(), *_storage(), *_brokers(), *_thresholds(), *_alerts(), *_prices())
