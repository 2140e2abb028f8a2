"""Default settings of `Producer` and `Consumer`, each with its reason.

The values are those of Kafka's documentation and ours. librdkafka's differ in places (batches of 1 MB, a queue of 1 GB,
keys partitioned by crc32), so all of them are set explicitly. `docs/client.md` shows these tables, which a test checks.
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
    "enable.idempotence": Default("true", "a retry stores a record once, and in order"),
    "batch.size": Default(str(16 * KIB), "bytes of one batch; raise it to 1000000 for bulk loads"),
    "linger.ms": Default("10", "how long a batch waits for more records; 0 for the lowest latency"),
    "buffer.memory": Default(str(32 * MIB), "bytes of records that may wait to be sent"),
    "max.block.ms": Default("60000", "how long `send` waits for room in the buffer before BufferExhausted"),
    "retries": Default("2147483647", "as many as `delivery.timeout.ms` allows"),
    "retry.backoff.ms": Default("100", "before the first retry; doubled for each one after it"),
    "retry.backoff.max.ms": Default("1000", "the longest wait between two retries"),
    "delivery.timeout.ms": Default("120000", "after that a record has failed"),
    "request.timeout.ms": Default("30000", "how long one request may take"),
    "max.in.flight.requests.per.connection": Default("5", "as many as idempotence can keep in order"),
    "compression.type": Default("none", "lz4 or zstd are worth a try; `penstock perf codecs` measures them"),
    "partitioner": Default("murmur2_random", "keys go where Java's producers put them; without a key, sticky batches"),
    "queue.buffering.max.messages": Default("500000", "librdkafka's own overhead is bounded too, with tiny records"),
    "statistics.interval.ms": Default("5000", "how often metrics are taken; 0 turns them off"),
}

CONSUMER: Final[Mapping[str, Default]] = {
    "auto.offset.reset": Default("latest", "where a group begins that has committed nothing"),
    "enable.auto.commit": Default("true", "what your loop has finished is committed; never what it still works on"),
    "auto.commit.interval.ms": Default("5000", "how often"),
    "max.poll.records": Default("500", "records of one batch"),
    "fetch.min.bytes": Default("1", "a fetch is answered as soon as there is anything"),
    "fetch.max.wait.ms": Default("500", "how long it may wait for that"),
    "max.partition.fetch.bytes": Default(str(MIB), "bytes of one partition in a fetch"),
    "fetch.max.bytes": Default(str(50 * MIB), "bytes of one fetch"),
    "isolation.level": Default("read_committed", "records of aborted transactions are never seen"),
    "session.timeout.ms": Default("45000", "a member that is silent for so long has failed"),
    "heartbeat.interval.ms": Default("3000", "how often a member says that it is alive"),
    "max.poll.interval.ms": Default("300000", "a member that asks for nothing for so long is stuck"),
    "partition.assignment.strategy": Default("cooperative-sticky", "partitions that stay are not stopped"),
    "request.timeout.ms": Default("30000", "how long one request may take"),
    "default.api.timeout.ms": Default("60000", "how long `commit` and questions about offsets try"),
    "statistics.interval.ms": Default("5000", "how often metrics are taken; 0 turns them off"),
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
