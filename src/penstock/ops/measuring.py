"""Unit costs of a cluster, measured through Kafka's protocol: throughput by batch size and codec, reading, replication.

The client sends batches that were built before, several in flight, so that it is the broker that is measured and not
the client's own work. Megabytes are those of the records before compression.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import uuid4

from penstock.client import LATEST, BrokerError, Cluster, Connection, TopicPartition, fetch_range
from penstock.client.connection import Sent
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import build_keyed_batch

IN_FLIGHT: Final = 5
RECORD_BYTES: Final = 1_000
NAMES_UP_TO: Final = 12
DELETE_NAMES_UP_TO: Final = 5
WARM_UP_S: Final = 0.3
ALL_REPLICAS: Final = -1


class Throughput(NamedTuple):
    mb_s: float
    cpu_s_per_gb: float | None
    """CPU time of the brokers; None if they do not tell it."""


@contextmanager
def scratch_topic(cluster: Cluster, partitions: int, replication_factor: int) -> Iterator[str]:
    """A topic that is deleted afterwards."""
    name = f"penstock-calibration-{uuid4().hex[:8]}"
    request = CreateTopicsRequest([CreatableTopic(name, partitions, replication_factor)], timeout_ms=60_000)
    answer = cluster.any_broker().call(request, CreateTopicsResponse)
    for told in answer.topics:
        if told.error_code != ErrorCode.NONE:
            raise BrokerError(told.error_code, told.error_message, topic=name, doing="create the topic")
    try:
        cluster.leader(name, 0)
        yield name
    finally:
        connection = cluster.any_broker()
        version = min(connection.version_of(DeleteTopicsRequest), DELETE_NAMES_UP_TO)
        wanted = DeleteTopicsRequest([DeleteTopicState(name)], topic_names=[name], timeout_ms=60_000)
        connection.call(wanted, DeleteTopicsResponse, version=version)


def write_throughput(
    cluster: Cluster,
    topic: str,
    *,
    batch_bytes: int,
    codec: Codec,
    seconds: float,
    cpu_s: Callable[[], float | None] = lambda: None,
) -> Throughput:
    """What one partition takes with acks=all."""
    batch, plain = sample_batch(batch_bytes, codec)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=ALL_REPLICAS, timeout_ms=30_000, topic_data=[data])
    connection = cluster.leader(topic, 0)
    version = min(connection.version_of(ProduceRequest), NAMES_UP_TO)
    _run(connection, request, version, WARM_UP_S)
    before_s = cpu_s()
    count, took_s = _run(connection, request, version, seconds)
    after_s = cpu_s()
    written = count * plain
    used = None if before_s is None or after_s is None or not written else (after_s - before_s) / (written / 1e9)
    return Throughput(written / took_s / 1e6, used)


def read_throughput(cluster: Cluster, topic: str, bytes_max: int) -> float:
    """What one reader gets of one partition, in MB/s of stored bytes."""
    place = TopicPartition(topic, 0)
    end = cluster.list_offsets({place: LATEST})[place].offset
    began_s, count = time.monotonic(), 0
    for fetched in fetch_range(cluster, topic, 0, 0, end):
        count += len(fetched.records)
        if count >= bytes_max:
            break
    return count / max(1e-9, time.monotonic() - began_s) / 1e6


def sample_batch(batch_bytes: int, codec: Codec) -> tuple[bytes, int]:
    """A batch of JSON-like records, and their size before compression. They compress about as well as events do."""
    rng = random.Random(1)
    pairs: list[tuple[bytes, bytes | None]] = []
    plain = 0
    while not pairs or plain + RECORD_BYTES <= batch_bytes:
        key = b"customer-%05d" % rng.randrange(100_000)
        text = b'{"customer": %d, "item": %d, "note": "' % (rng.randrange(100_000), rng.randrange(1_000))
        noise = rng.randbytes((RECORD_BYTES - len(text)) // 4).hex().encode()
        pairs.append((key, (text + noise + b"x" * RECORD_BYTES)[: RECORD_BYTES - len(key)]))
        plain += RECORD_BYTES
    return bytes(build_keyed_batch(pairs, timestamp=time.time_ns() // 1_000_000, codec=codec)), plain


def _run(connection: Connection, request: ProduceRequest, version: int, seconds: float) -> tuple[int, float]:
    """Sends until the time is over; (answered requests, seconds)."""
    waiting: list[Sent] = []
    done, began_s = 0, time.monotonic()
    end_s = began_s + seconds
    while time.monotonic() < end_s or waiting:
        if time.monotonic() < end_s and len(waiting) < IN_FLIGHT:
            waiting.append(connection.send(request, version=version))
            continue
        answer = connection.receive(waiting.pop(0), ProduceResponse)
        for told in answer.responses:
            for one in told.partition_responses:
                if one.error_code != ErrorCode.NONE:
                    connection.close()
                    raise BrokerError(one.error_code, one.error_message, topic=told.name, doing="write")
        done += 1
    return done, time.monotonic() - began_s
