"""All records of a topic, read with confluent-kafka: for tests of what was written."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

READ_TIMEOUT_S = 60


class Written(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    topic: str


def create_topic(bootstrap: str, name: str, partitions: int = 1) -> str:
    """A topic that clients can use right away."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(READ_TIMEOUT_S)
    return name


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
            headers = message.headers()
            found.append(Written(message.partition(), message.key(), message.value(), headers, topic))
        return sorted(found, key=lambda one: one.partition)
    finally:
        consumer.close()
