"""`penstock up --brokers 3`: one view, a clean stop, a standstill that nobody minds. Faults are in test_chaos.py."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from support.cluster import PenstockCluster

TOPIC = "orders"
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[PenstockCluster]:
    with PenstockCluster() as running:
        new = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        running.admin.create_topics([new])[TOPIC].result(60)
        yield running


class Load:
    """An idempotent producer with acks=all that numbers its records, and knows which were acknowledged."""

    def __init__(self, cluster: PenstockCluster) -> None:
        self.sent = 0
        self.acknowledged: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.failures: list[str] = []
        self.longest_silence_s = 0.0
        self._last_s = time.monotonic()
        self._stop = threading.Event()
        self._bootstrap = cluster.bootstrap
        self._ends = _ends(cluster.bootstrap)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            partition = self.sent % PARTITIONS
            self._producer.produce(TOPIC, b"%012d" % self.sent, partition=partition, on_delivery=self._told)
            self.sent += 1
            self._producer.poll(0.002)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        now_s = time.monotonic()
        self.longest_silence_s = max(self.longest_silence_s, now_s - self._last_s)
        self._last_s = now_s
        partition, value = message.partition(), message.value()
        assert partition is not None
        assert value is not None
        self.acknowledged[partition].append(int(value))

    def wait_for_more(self, cluster: PenstockCluster, count: int = 200) -> None:
        goal = self.count + count
        cluster.wait(lambda: self.count >= goal or bool(self.failures), f"acknowledge {count} more records")

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def verify(self) -> None:
        """Everything was acknowledged, and is there once, in order."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self.failures == []
        assert self.count == self.sent
        stored = _stored(self._bootstrap, self._ends, self.sent)
        for partition in range(PARTITIONS):
            assert stored[partition] == [number for number in range(self.sent) if number % PARTITIONS == partition]


@pytest.mark.long
def test_a_second_of_standstill_moves_no_leader(cluster: PenstockCluster) -> None:
    before = cluster.leaders(TOPIC)
    load = Load(cluster)
    load.wait_for_more(cluster)
    cluster.signal(before[0], signal.SIGSTOP)
    time.sleep(1)
    cluster.signal(before[0], signal.SIGCONT)
    load.wait_for_more(cluster)
    load.verify()
    assert cluster.leaders(TOPIC) == before


def test_all_stop_in_order() -> None:
    with PenstockCluster(restart=False) as short:
        assert short.stop() == 0
        assert short.log().rstrip().endswith("penstock: stopped")


def _ends(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return {n: consumer.get_watermark_offsets(TopicPartition(TOPIC, n), timeout=30)[1] for n in range(PARTITIONS)}
    finally:
        consumer.close()


def _stored(bootstrap: str, starts: dict[int, int], count: int) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, number, start or OFFSET_BEGINNING) for number, start in starts.items()])
    found: dict[int, list[int]] = {number: [] for number in starts}
    try:
        while sum(map(len, found.values())) < count:
            batch = consumer.consume(5_000, timeout=20)
            assert batch, f"only {sum(map(len, found.values()))} of {count} are there"
            for message in batch:
                assert message.error() is None
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                found[partition].append(int(value))
    finally:
        consumer.close()
    return found
