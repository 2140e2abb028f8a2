"""Members of a group in the test's own process, through librdkafka: for tests that steer them closely."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

WAIT_TIMEOUT_S = 60
Owned = set[tuple[str, int]]


class Member:
    """A consumer that remembers what it owns, what it read and how often it was told to change."""

    def __init__(self, bootstrap: str, group_id: str, protocol: str = "classic", **settings: object) -> None:
        self.owned: Owned = set()
        self.read: list[Message] = []
        self.changes = 0
        self.errors: list[KafkaError] = []
        config: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "topic.metadata.refresh.interval.ms": 300,
            "log_level": 0,
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 200}
        self.consumer = Consumer(config | {name.replace("_", "."): value for name, value in settings.items()})

    def subscribe(self, *topics: str) -> None:
        self.consumer.subscribe(list(topics), on_assign=self._gained, on_revoke=self._lost, on_lost=self._lost)

    def poll(self) -> None:
        message = self.consumer.poll(0.01)
        if message is None:
            return
        if (error := message.error()) is not None:
            self.errors.append(error)
        else:
            self.read.append(message)

    def values(self) -> list[str]:
        return [message.value().decode() for message in self.read]

    def close(self) -> None:
        self.consumer.close()

    def _gained(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.changes += 1
        self.owned |= {(partition.topic, partition.partition) for partition in partitions}

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.changes += 1
        self.owned -= {(partition.topic, partition.partition) for partition in partitions}


@contextmanager
def members(*made: Member) -> Iterator[None]:
    """Closes them at the end, whatever happened."""
    try:
        yield
    finally:
        for member in made:
            member.close()


def poll_until(what: str, condition: Callable[[], bool], *polled: Member, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, (what, [(sorted(member.owned), member.errors) for member in polled])
        for member in polled:
            member.poll()


def poll_for(seconds: float, *polled: Member) -> None:
    """Lets members live on, to see that nothing happens."""
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        for member in polled:
            member.poll()


def all_partitions(topic: str, count: int) -> Owned:
    return {(topic, partition) for partition in range(count)}


def produce(
    bootstrap: str, topic: str, *values: str, partition: int = 0, timestamps: tuple[int, ...] | None = None
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    for value, timestamp in zip(values, timestamps or (0,) * len(values), strict=True):
        producer.produce(topic, value, partition=partition, timestamp=timestamp)
    assert producer.flush(60) == 0
