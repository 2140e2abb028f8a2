"""A producer and a group of one consumer that go on while a cluster is changed, and an account of every record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from support.waiting import wait_until


class Load:
    """Numbered records with acks=all and retries, at a steady rate; each is read once by a group that commits."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, per_second: int = 400) -> None:
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[str] = []
        self.read: list[int] = []
        self.positions: dict[int, int] = {}
        """Of the group: the last committed offset of each partition."""
        self.went_back: list[str] = []
        self._latencies: list[float] = []
        self._bootstrap = bootstrap
        self._pause_s = 1 / per_second
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.read, 60)

    def latencies_of(self, action: Callable[[], None]) -> list[float]:
        """How long each acknowledgement took, in ms, while something was done."""
        with self._lock:
            self._latencies.clear()
        action()
        with self._lock:
            return sorted(self._latencies)

    def finish(self) -> None:
        """Ends, and checks: nothing failed, all is there once and in order, and the group read all of it once."""
        self._stop.set()
        self._threads[0].join()
        assert self._producer.flush(120) == 0
        try:
            wait_until(lambda: len(self.read) >= self.sent, 60)
        finally:
            self._done = True
            self._threads[1].join()
        assert self.failures == []
        assert self.acknowledged == self.sent
        assert self.went_back == [], "the group's positions were lost"
        assert sorted(self.read) == list(range(self.sent)), "the group read every record once"
        stored = self._stored()
        for partition in range(self.partitions):
            expected = [number for number in range(self.sent) if number % self.partitions == partition]
            assert stored[partition] == expected, f"partition {partition} lost or doubled records"

    _done = False

    def _produce(self) -> None:
        next_s = time.monotonic()
        while not self._stop.is_set():
            partition = self.sent % self.partitions
            started_s = time.monotonic()
            self._producer.produce(
                self.topic,
                b"%012d" % self.sent + bytes(500),
                partition=partition,
                on_delivery=lambda error, message, started_s=started_s: self._told(error, started_s),
            )
            self.sent += 1
            next_s = max(next_s + self._pause_s, started_s - 1)
            self._producer.poll(max(0.0, next_s - time.monotonic()))

    def _told(self, error: KafkaError | None, started_s: float) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        self.acknowledged += 1
        with self._lock:
            self._latencies.append((time.monotonic() - started_s) * 1000)

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self.topic}-readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.subscribe([self.topic])
        since_commit = 0
        while not self._done:
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            self._take(message)
            since_commit += 1
            if since_commit >= 50:
                consumer.commit(asynchronous=True)
                since_commit = 0
        consumer.close()

    def _take(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        if offset < self.positions.get(partition, 0):
            self.went_back.append(f"partition {partition} from {self.positions[partition]} to {offset}")
        self.positions[partition] = offset + 1
        self.read.append(int(value[:12]))

    def _stored(self) -> dict[int, list[int]]:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "checker", "log_level": 0})
        consumer.assign([TopicPartition(self.topic, one, OFFSET_BEGINNING) for one in range(self.partitions)])
        found: dict[int, list[int]] = {one: [] for one in range(self.partitions)}
        count = 0
        deadline_s = time.monotonic() + 60
        while count < self.sent:
            assert time.monotonic() < deadline_s, f"only {count} of {self.sent} records are there"
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None
                found[message.partition() or 0].append(int((message.value() or b"")[:12]))
                count += 1
        consumer.close()
        return found


def p99(latencies: list[float]) -> float:
    return latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))]
