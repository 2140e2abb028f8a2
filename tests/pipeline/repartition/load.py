"""Producers that write while a topic is repartitioned, and the account of what arrived."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

REFUSALS = {KafkaError.POLICY_VIOLATION, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
READ_TIMEOUT_S = 60.0
WINDOW = 100
"""Records in flight."""


class Seen(NamedTuple):
    partition: int
    offset: int
    key: str
    number: int


def seen(message: Message) -> Seen:
    partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
    assert partition is not None
    assert offset is not None
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    return Seen(partition, offset, key.decode(), int(value))


class Load:
    """Writes numbered records of some keys to a topic until it is told of another one, and then to that.

    What the old topic refuses is kept, and written first to the new one: as an application does that must lose nothing.
    """

    def __init__(self, bootstrap: str, topic: str, *, keys: int = 20, partitioner: str = "murmur2_random") -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "partitioner": partitioner,
            "enable.idempotence": True,
            "delivery.timeout.ms": 300_000,
            "linger.ms": 2,
            "log_level": 0,
        }
        self._topic = topic
        self._keys = keys
        self._stop = threading.Event()
        self._switched = threading.Event()
        self._target = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: dict[str, int] = defaultdict(int)
        """How many records of each key were acknowledged, by either topic."""
        self.refused = 0
        self.error: BaseException | None = None

    def start(self) -> Load:
        self._thread.start()
        return self

    def switch_to(self, target: str) -> None:
        self._target = target
        self._switched.set()

    def stop(self) -> dict[str, int]:
        self._stop.set()
        self._thread.join(300)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return dict(self.sent)

    @property
    def total(self) -> int:
        return sum(self.sent.values())

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error

    def _write(self) -> None:
        numbers: dict[str, int] = defaultdict(int)
        waiting: list[tuple[str, int]] = []
        producer, topic, count = Producer(self._settings), self._topic, 0
        while not self._stop.is_set() or waiting:
            window = list(waiting)
            for _ in range(WINDOW - len(window) if not self._stop.is_set() else 0):
                key = f"key-{count % self._keys}"
                window.append((key, numbers[key]))
                numbers[key] += 1
                count += 1
            waiting = self._write_window(producer, topic, window)
            if waiting:
                # Only when the new topic has all of the old one may it be written to: else a key's order would be lost.
                assert self._switched.wait(300), "it was refused, and nobody said where to write instead"
                producer, topic = Producer(self._settings), self._target
            self._stop.wait(0.2)

    def _write_window(self, producer: Producer, topic: str, window: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those that were refused, in their order."""
        refused: list[tuple[str, int]] = []

        def told(one: tuple[str, int]) -> Callable[[KafkaError | None, object], None]:
            def delivered(error: KafkaError | None, message: object) -> None:
                if error is None:
                    self.sent[one[0]] += 1
                elif error.code() in REFUSALS:
                    self.refused += 1
                    refused.append(one)
                else:
                    self.error = AssertionError(f"{one}: {error}")

            return delivered

        for key, number in window:
            producer.produce(topic, str(number).encode(), key.encode(), on_delivery=told((key, number)))
        while producer.flush(1):
            pass
        if self.error is not None:
            raise self.error
        return sorted(refused, key=window.index)


def read_topic(bootstrap: str, topic: str, starts: dict[int, int] | None = None) -> list[Seen]:
    """All records of a topic, or those from some positions on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "account", "enable.partition.eof": True})
    try:
        count = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        places = [(starts or {}).get(number, OFFSET_BEGINNING) for number in range(count)]
        consumer.assign([TopicPartition(topic, number, place) for number, place in enumerate(places)])
        found: list[Seen] = []
        while count:
            message = consumer.poll(READ_TIMEOUT_S)
            assert message is not None, "the topic does not end"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                count -= 1
                continue
            found.append(seen(message))
        return found
    finally:
        consumer.close()


def account(records: Iterable[Seen], sent: dict[str, int]) -> None:
    """Each key's records are in one partition, all of them, once, in order."""
    numbers: dict[str, list[int]] = defaultdict(list)
    partitions: dict[str, set[int]] = defaultdict(set)
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        numbers[record.key].append(record.number)
        partitions[record.key].add(record.partition)
    assert numbers.keys() == sent.keys()
    for key, found in numbers.items():
        assert len(partitions[key]) == 1, f"{key} is in several partitions: {partitions[key]}"
        assert found == list(range(sent[key])), f"{key}: {len(found)} records in a wrong order, {sent[key]} were sent"


def consume(bootstrap: str, topic: str, group: str, count: int) -> list[Seen]:
    """Reads so many records as a group and commits them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[Seen] = []
        while len(found) < count:
            message = consumer.poll(READ_TIMEOUT_S)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(seen(message))
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()
