"""Records written to topics, and all that a topic holds, with confluent-kafka: for tests of reading and writing."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

READ_TIMEOUT_S = 60


class Written(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    topic: str


def create_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    *,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """A topic that clients can use right away."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
    client.create_topics([topic])[name].result(READ_TIMEOUT_S)
    return name


def write(bootstrap: str, topic: str, count: int, *, partition: int = 0, keys: int = 10**9) -> None:
    """So many records, with so many different keys."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, b"key %d" % (number % keys), partition=partition)
    assert producer.flush(READ_TIMEOUT_S) == 0


def open_transaction(bootstrap: str, topic: str, count: int) -> Producer:
    """A transaction with so many records that is still open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(READ_TIMEOUT_S)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"in a transaction", partition=0)
    assert producer.flush(READ_TIMEOUT_S) == 0
    return producer


def is_decided(bootstrap: str, topic: str) -> bool:
    """Whether no transaction is open in the topic: all that is in its logs is stable.

    A commit or an abort is answered when it is decided; what it decides is marked in the logs a little later.
    """
    ends = []
    for isolation in ("read_uncommitted", "read_committed"):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation})
        try:
            partitions = consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions
            places = [TopicPartition(topic, number) for number in sorted(partitions)]
            ends.append([consumer.get_watermark_offsets(place, READ_TIMEOUT_S, cached=False) for place in places])
        except KafkaException:
            return False  # a broker that has just started does not know yet
        finally:
            consumer.close()
    return ends[0] == ends[1]


def read_topic(bootstrap: str, topic: str, *, isolation: str = "read_uncommitted") -> list[Written]:
    """What a topic holds now, by partition and then by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-of-tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[Written] = []
        unread = set(partitions)
        while unread:
            message = consumer.poll(READ_TIMEOUT_S)
            assert message is not None, f"{topic}: nothing within {READ_TIMEOUT_S} s; unread are partitions {unread}"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                unread.discard(message.partition())
                continue
            headers: Any = message.headers()
            partition: Any = message.partition()
            found.append(Written(partition, message.key(), message.value(), headers, topic))
        return sorted(found, key=lambda one: one.partition)
    finally:
        consumer.close()
