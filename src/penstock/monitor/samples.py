"""The records of `penstock.metrics` and `penstock.metrics.rollups`: the contract with everything that reads them.

A raw record is one JSON object, flat, with the same fields in every record, so that Spark reads the topic with one
schema (`SPARK_SCHEMA`):

    {"time_ms": 1763430000000, "cluster": "5L6g3nShT-eMCtK--X86sw", "kind": "topic", "name": "orders",
     "metric": "bytes_in_per_s", "value": 1048576.0, "unit": "bytes/s", "interval_ms": 10000,
     "broker": null, "topic": "orders", "partition": null, "group": null}

A **series** is (cluster, kind, name, metric). `name` identifies the resource within its kind: a broker's id, a topic's
name, `orders-0` for a partition, the group's name, a pipeline's name, and "" for the cluster itself. `broker`, `topic`,
`partition` and `group` repeat its parts as columns. `interval_ms` is the time that a rate or quantile covers; 0 for a
value of the moment. The unit of a metric never changes (`METRICS`); shares are from 0 to 1.

The key of a raw record is `kind/name/metric`, so the samples of a series are in one partition and in order. A sample
that was taken twice, because a write was retried, has the same key and time: readers keep one.

A roll-up record has the same identity and, instead of `time_ms`, `value` and `interval_ms`: `start_ms`, `width_ms`
(an hour or a day), `count`, `mean`, `minimum`, `maximum` and `last`. Its key is `kind/name/metric/width_ms/start_ms`:
in a compacted topic the complete roll-up replaces the partial ones that were written before it.
"""

from __future__ import annotations

from enum import StrEnum
from math import isfinite
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

RAW_TOPIC: Final = "penstock.metrics"
ROLLUP_TOPIC: Final = "penstock.metrics.rollups"
RAW_RETENTION_MS: Final = 14 * 86_400_000
ROLLUP_RETENTION_MS: Final = 800 * 86_400_000
"""A little more than two years: a yearly season needs two."""
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
WIDTHS_MS: Final = (HOUR_MS, DAY_MS)
RECORD_BYTES_MAX: Final = 16_384
"""A longer record was not written by a monitor."""


class Kind(StrEnum):
    """What a sample is about."""

    CLUSTER = "cluster"
    BROKER = "broker"
    TOPIC = "topic"
    PARTITION = "partition"
    GROUP = "group"
    PIPELINE = "pipeline"


class Metric(NamedTuple):
    """A metric of a kind of resource."""

    kind: Kind
    name: str
    unit: str
    text: str


_CLUSTER = (
    ("brokers", "brokers", "Brokers that serve"),
    ("brokers_down", "brokers", "Brokers that are registered or hold replicas, and do not serve"),
    ("topics", "topics", "Topics"),
    ("partitions", "partitions", "Partitions"),
    ("offline_partitions", "partitions", "Partitions without a leader"),
    ("under_replicated_partitions", "partitions", "Partitions with replicas outside the ISR"),
    ("under_replicated_unexplained", "partitions", "Of these, those that no reassignment explains"),
    ("under_min_isr_partitions", "partitions", "Partitions below min.insync.replicas: acks=all fails"),
    ("reassigning_partitions", "partitions", "Partitions whose replicas are being moved"),
    ("active_controllers", "controllers", "Active controllers; 1 in a healthy cluster"),
    ("messages_in_per_s", "records/s", "Records written"),
    ("bytes_in_per_s", "bytes/s", "Bytes written, before replication"),
    ("size_bytes", "bytes", "Bytes of all replicas on disk"),
    ("unassessed", "resources", "Brokers, topics or groups that could not be sampled"),
)
_BROKER = (
    ("up", "boolean", "1 while the broker serves"),
    ("partitions", "replicas", "Replicas that the broker holds"),
    ("leaders", "partitions", "Partitions that the broker leads"),
    ("size_bytes", "bytes", "Bytes of its replicas"),
    ("messages_in_per_s", "records/s", "Records written to the partitions that it leads"),
    ("bytes_in_per_s", "bytes/s", "Bytes that producers wrote"),
    ("bytes_out_per_s", "bytes/s", "Bytes that consumers read"),
    ("produce_per_s", "requests/s", "Produce requests"),
    ("bytes_per_produce", "bytes", "Bytes of records in one Produce request"),
    ("request_p95_ms", "ms", "Time of a Produce request, 95th percentile"),
    ("request_p99_ms", "ms", "Time of a Produce request, 99th percentile"),
    ("queue_p99_ms", "ms", "Time that a Produce request waited in the queue, 99th percentile"),
    ("answer_ms", "ms", "Time to answer a small request of the monitor"),
    ("stall_p99_ms", "ms", "Delay of the event loop, 99th percentile; stands for GC pauses"),
    ("connections", "connections", "Open connections"),
    ("replica_lag_messages", "records", "Committed records that its worst replica lacks"),
    ("replica_lag_ms", "ms", "How long its worst replica has been behind"),
    ("cpu_share", "share", "CPU time of the broker's process, as a share of one core"),
    ("host_cpu_share", "share", "CPU time used on its host"),
    ("memory_share", "share", "Memory used on its host, without page cache"),
    ("resident_bytes", "bytes", "Resident memory of the broker's process"),
    ("disk_total_bytes", "bytes", "Size of the data volume"),
    ("disk_used_bytes", "bytes", "Used bytes of the data volume"),
    ("disk_used_share", "share", "Used part of the data volume"),
    ("disk_busy_share", "share", "Part of the time in which the data disk was busy"),
    ("disk_iops", "operations/s", "Reads and writes of the data disk"),
    ("disk_read_bytes_per_s", "bytes/s", "Bytes read from the data disk"),
    ("disk_write_bytes_per_s", "bytes/s", "Bytes written to the data disk"),
    ("network_in_bytes_per_s", "bytes/s", "Bytes received by its host"),
    ("network_out_bytes_per_s", "bytes/s", "Bytes sent by its host"),
    ("network_share", "share", "The busier direction, as a share of the interface"),
)
_TOPIC = (
    ("partitions", "partitions", "Partitions"),
    ("messages_in_per_s", "records/s", "Records written"),
    ("bytes_in_per_s", "bytes/s", "Bytes written, before replication"),
    ("size_bytes", "bytes", "Bytes of all replicas"),
    ("skew", "ratio", "Rate of the busiest partition, as a multiple of the mean"),
    ("under_replicated_partitions", "partitions", "Partitions with replicas outside the ISR"),
    ("offline_partitions", "partitions", "Partitions without a leader"),
)
_PARTITION = (
    ("messages_in_per_s", "records/s", "Records written"),
    ("size_bytes", "bytes", "Bytes of the leader's log"),
    ("end_offset", "records", "High watermark"),
)
_GROUP = (
    ("lag_records", "records", "Records not yet committed, all partitions"),
    ("lag_records_max", "records", "Records not yet committed, worst partition"),
    ("lag_s", "s", "Age of the oldest unread record"),
    ("consume_per_s", "records/s", "Committed offsets per second"),
    ("produce_per_s", "records/s", "Records written to what the group reads"),
    ("members", "consumers", "Members"),
    ("partitions", "partitions", "Partitions with a committed offset"),
    ("verdict", "level", "0 OK, 1 WARN, 2 ERR (see penstock.lag)"),
)
_PIPELINE = (
    ("up", "boolean", "1 while its endpoint answers"),
    ("records_per_s", "records/s", "Records processed"),
    ("lag_records", "records", "Records not yet processed"),
    ("batch_ms", "ms", "Time of the last micro-batch"),
)


def _table() -> dict[tuple[Kind, str], Metric]:
    groups = (
        (Kind.CLUSTER, _CLUSTER), (Kind.BROKER, _BROKER), (Kind.TOPIC, _TOPIC),
        (Kind.PARTITION, _PARTITION), (Kind.GROUP, _GROUP), (Kind.PIPELINE, _PIPELINE),
    )  # fmt: skip
    return {(kind, row[0]): Metric(kind, *row) for kind, rows in groups for row in rows}


METRICS: Final = MappingProxyType(_table())
"""Every metric of the raw topic, by kind and name."""


class MetricSample(msgspec.Struct, frozen=True, kw_only=True):
    """One raw record."""

    time_ms: int
    cluster: str
    kind: Kind
    name: str
    metric: str
    value: float
    unit: str
    interval_ms: int = 0
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None

    @property
    def key(self) -> bytes:
        return f"{self.kind}/{self.name}/{self.metric}".encode()


class Rollup(msgspec.Struct, frozen=True, kw_only=True):
    """One roll-up record: the samples of a series from `start_ms` up to `start_ms + width_ms`."""

    start_ms: int
    width_ms: int
    cluster: str
    kind: Kind
    name: str
    metric: str
    unit: str
    count: int
    mean: float
    minimum: float
    maximum: float
    last: float
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None

    @property
    def key(self) -> bytes:
        return f"{self.kind}/{self.name}/{self.metric}/{self.width_ms}/{self.start_ms}".encode()


SPARK_SCHEMA: Final = (
    "time_ms BIGINT, cluster STRING, kind STRING, name STRING, metric STRING, value DOUBLE, unit STRING, "
    "interval_ms BIGINT, broker INT, topic STRING, partition INT, `group` STRING"
)
"""The schema of a raw record for Spark's `from_json`."""
ROLLUP_SPARK_SCHEMA: Final = (
    "start_ms BIGINT, width_ms BIGINT, cluster STRING, kind STRING, name STRING, metric STRING, unit STRING, "
    "count BIGINT, mean DOUBLE, minimum DOUBLE, maximum DOUBLE, last DOUBLE, "
    "broker INT, topic STRING, partition INT, `group` STRING"
)

_encoder = msgspec.json.Encoder()
_raw_decoder = msgspec.json.Decoder(MetricSample)
_rollup_decoder = msgspec.json.Decoder(Rollup)


def encode(record: MetricSample | Rollup) -> bytes:
    return _encoder.encode(record)


def decode_sample(value: bytes | None) -> MetricSample | None:
    """The raw sample in a record; None if the record is something else. Unknown metrics are accepted."""
    if value is None or len(value) > RECORD_BYTES_MAX:
        return None
    try:
        found = _raw_decoder.decode(value)
    except msgspec.MsgspecError:
        return None
    return found if isfinite(found.value) else None


def decode_rollup(value: bytes | None) -> Rollup | None:
    """The roll-up in a record; None if the record is something else."""
    if value is None or len(value) > RECORD_BYTES_MAX:
        return None
    try:
        found = _rollup_decoder.decode(value)
    except msgspec.MsgspecError:
        return None
    return found if found.count > 0 and found.width_ms > 0 else None
