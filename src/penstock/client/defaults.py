"""Default settings of `Producer` and `Consumer`, each with its reason.

The values are those of Kafka's documentation and ours. librdkafka's differ in places (batches of 1 MB, a queue of 1 GB,
keys partitioned by crc32), so all of them are set explicitly. `docs/reference/client.md` shows these tables; a test
checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

KIB: Final = 1024
MIB: Final = 1024 * 1024


class Default(NamedTuple):
    value: str
    why: str


PRODUCER: Final[Mapping[str, Default]] = {
    "acks": Default("all", "a record is stored when all in-sync replicas have it"),
    "enable.idempotence": Default("true", "retries neither duplicate nor reorder records"),
    "batch.size": Default(str(16 * KIB), "bytes of one batch; raise it to 1000000 for bulk loads"),
    "linger.ms": Default("10", "how long a batch waits for more records; 0 for the lowest latency"),
    "buffer.memory": Default(str(32 * MIB), "bytes of records that may wait to be sent"),
    "max.block.ms": Default("60000", "how long `send` waits for room in the buffer before BufferExhausted"),
    "retries": Default("2147483647", "as many as `delivery.timeout.ms` allows"),
    "retry.backoff.ms": Default("100", "before the first retry; doubled for each one after it"),
    "retry.backoff.max.ms": Default("1000", "the longest wait between two retries"),
    "delivery.timeout.ms": Default("120000", "after this time a record has failed"),
    "request.timeout.ms": Default("30000", "how long one request may take"),
    "max.in.flight.requests.per.connection": Default("5", "the most that idempotence can keep in order"),
    "compression.type": Default("none", "lz4 or zstd are worth a try; `penstock perf codecs` measures them"),
    "partitioner": Default("murmur2_random", "places keys like Java's producers; without a key, sticky batches"),
    "queue.buffering.max.messages": Default("500000", "bounds librdkafka's per-record overhead with tiny records"),
    "statistics.interval.ms": Default("5000", "how often metrics are collected; 0 turns them off"),
}

TRANSACTION_TIMEOUT_MS: Final = "60000"
"""`transaction.timeout.ms`, if there is a `transactional.id`; also the default of `delivery.timeout.ms` then."""

CONSUMER: Final[Mapping[str, Default]] = {
    "auto.offset.reset": Default("latest", "where a group without committed offsets starts"),
    "enable.auto.commit": Default("true", "commits the records your loop has finished, never the current one"),
    "auto.commit.interval.ms": Default("5000", "how often they are committed"),
    "max.poll.records": Default("500", "maximum records per poll"),
    "fetch.min.bytes": Default("1", "a fetch is answered as soon as there is any data"),
    "fetch.max.wait.ms": Default("500", "how long it may wait for `fetch.min.bytes`"),
    "max.partition.fetch.bytes": Default(str(MIB), "maximum bytes per partition in a fetch"),
    "fetch.max.bytes": Default(str(50 * MIB), "maximum bytes of a fetch"),
    "isolation.level": Default("read_committed", "records of aborted transactions are never seen"),
    "session.timeout.ms": Default("45000", "a member without a heartbeat for this long has failed"),
    "heartbeat.interval.ms": Default("3000", "how often a member sends a heartbeat"),
    "max.poll.interval.ms": Default("300000", "a member that does not poll for this long is stuck"),
    "partition.assignment.strategy": Default("cooperative-sticky", "partitions that stay are not interrupted"),
    "request.timeout.ms": Default("30000", "how long one request may take"),
    "default.api.timeout.ms": Default("60000", "how long `commit` and offset lookups retry"),
    "statistics.interval.ms": Default("5000", "how often metrics are collected; 0 turns them off"),
}

PROMPT: Final[Mapping[str, str]] = {
    "session.timeout.ms": "10000",
    "heartbeat.interval.ms": "3000",
    "max.poll.interval.ms": "300000",
}
"""Detects a failed member in ten seconds; a long pause of the machine may look like a failure."""

PATIENT: Final[Mapping[str, str]] = {
    "session.timeout.ms": "45000",
    "heartbeat.interval.ms": "15000",
    "max.poll.interval.ms": "600000",
}
"""For members that take long per record, or run on machines that pause."""

CLASSIC_ONLY: Final = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""Set by the broker in the consumer group protocol (KIP-848); librdkafka refuses them there."""
