"""Groups for tests: real consumers, and commits at will."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cli.running import Run
from penstock.cli import exit_codes

WAIT_S = 60


def produce(bootstrap: str, topic: str, partition: int, count: int, *, age_ms: int = 0) -> None:
    """Numbered records, all with the same time."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=partition, timestamp=now_ms() - age_ms)
    assert producer.flush(WAIT_S) == 0


def commit(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """What a consumer that is not a member of the group would commit."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p, offset) for p, offset in offsets.items()])
    deadline_s = time.monotonic() + WAIT_S
    # The first group of a cluster finds a coordinator that is still being set up.
    while any(one.error for one in admin.alter_consumer_group_offsets([wanted])[group].result(60).topic_partitions):
        assert time.monotonic() < deadline_s


@contextmanager
def reading(bootstrap: str, group: str, topic: str, count: int, **settings: str) -> Iterator[Consumer]:
    """A consumer of the group that has read and committed `count` records, and stays in the group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + WAIT_S
    seen = 0
    try:
        while seen < count or not consumer.assignment():
            assert time.monotonic() < deadline_s, f"read {seen} of {count} records"
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                seen += 1
        if count:
            consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


@contextmanager
def polling(consumer: Consumer) -> Iterator[None]:
    """Keeps a consumer alive that the test does not look at, so that it takes part in rebalances."""
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            consumer.poll(0.05)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def read_from(bootstrap: str, group: str, topic: str, count: int, reset: str = "error") -> list[tuple[int, int]]:
    """Partition and offset of the first records that a new consumer of the group gets; it commits nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[int, int]] = []
    deadline_s = time.monotonic() + WAIT_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"read {found}"
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                found.append((partition, offset))
    finally:
        consumer.close()
    return sorted(found)


def described(on: Run, group: str, *options: object) -> dict[str, object]:
    result = on("groups", "describe", group, "--json", *options)
    assert result.code == exit_codes.OK, result.messages
    (one,) = json.loads(result.output)
    assert isinstance(one, dict)
    return one


def partitions(group: dict[str, object]) -> dict[int, dict[str, object]]:
    found = group["partitions"]
    assert isinstance(found, list)
    return {one["partition"]: one for one in found}


def now_ms() -> int:
    return time.time_ns() // 1_000_000
