"""Rebalances that come at awkward moments, which a real group meets once in thousands of runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka import TopicPartition as BarePartition
from confluent_kafka.admin import AdminClient

from client.test_producer import nobody
from penstock.client import AsyncConsumer, Consumer, TopicPartition
from support.waiting import wait_until

GOES, STAYS = TopicPartition("t", 0), TopicPartition("t", 1)
QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}


class Native:
    """librdkafka with one record for `poll` and one for `consume`, and a rebalance between them."""

    def __init__(self, on_consume: Callable[[], object]) -> None:
        self.on_consume = on_consume
        self.assigned = [GOES, STAYS]
        self.committed: dict[TopicPartition, int] = {}

    def poll(self, timeout_s: float) -> Message:
        return Message(GOES.topic, GOES.partition, 5, None, b"first")

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        self.on_consume()
        return [Message(STAYS.topic, STAYS.partition, 8, None, b"second")]

    def assignment(self) -> list[BarePartition]:
        return [BarePartition(*one) for one in self.assigned]

    def position(self, partitions: list[BarePartition]) -> list[BarePartition]:
        # What was given out is what librdkafka takes for read.
        return [BarePartition(one.topic, one.partition, 6 if one.partition == 0 else 8) for one in partitions]

    def commit(self, offsets: list[BarePartition], asynchronous: bool) -> list[BarePartition]:
        self.committed |= {TopicPartition(one.topic, one.partition): one.offset for one in offsets}
        return offsets

    def unsubscribe(self) -> None: ...

    def close(self) -> None: ...


def test_a_partition_that_goes_while_a_batch_is_gathered_takes_its_record_with_it() -> None:
    with Consumer(nobody(), group="g", **QUIET) as consumer:
        consumer.native.close()

        def revoke() -> None:
            consumer._revoked(consumer.native, [BarePartition(*GOES)])
            native.assigned = [STAYS]

        native = Native(revoke)
        consumer.native = native  # type: ignore[assignment]
        assert [message.value() for message in consumer.poll(1)] == [b"second"], "the first has another owner now"
        assert native.committed.get(GOES) == 5, "which reads what was never given out"


def test_a_partition_that_is_paused_meanwhile_keeps_its_record() -> None:
    with Consumer(nobody(), group="g", **QUIET) as consumer:
        consumer.native.close()
        native: Any = Native(lambda: consumer._handed.hold([GOES]))
        consumer.native = native
        assert [message.value() for message in consumer.poll(1)] == [b"second"]
        consumer._handed.release([GOES])
        assert [message.value() for message in consumer.poll(1)] == [b"first"]


CLOSING = """
import random, sys, threading, time
from penstock.client import CommitFailed, Consumer

bootstrap, topic = sys.argv[1:]

def come_and_go(name):
    for number in range(40):
        consumer = Consumer(bootstrap, topic, f"{topic}-{name}-{number}", {"heartbeat.interval.ms": 200})
        try:
            consumer.commit({("there-is-no-such-topic", 0): 5})
        except CommitFailed:
            pass
        time.sleep(random.uniform(0, 0.03))
        consumer.close()

threads = [threading.Thread(target=come_and_go, args=(name,)) for name in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_whoever_leaves_while_it_is_given_its_first_partition_gets_away(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    # In a process of its own: what it is about stops all threads of a process.
    subprocess.run([sys.executable, "-c", CLOSING, bootstrap, create_topic()], check=True, timeout=90)


@pytest.mark.parametrize(
    ("settings", "stays"),
    [({}, False), ({"group.instance.id": "one"}, True), ({"group.protocol": "consumer"}, False)],
    ids=["classic", "static", "consumer"],
)
def test_whoever_closes_has_left_unless_it_is_static(
    bootstrap: str, create_topic: Callable[..., str], settings: dict[str, str], stays: bool
) -> None:
    topic = create_topic()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for number in range(10):
        group = f"{topic}-{number}"
        with Consumer(bootstrap, topic, group, settings) as consumer:
            wait_until(lambda consumer=consumer: consumer.poll(0.01) == [] and consumer.assignment())
        assert len(admin.describe_consumer_groups([group])[group].result(30).members) == stays


@pytest.mark.timeout(60)
def test_what_others_ask_for_while_a_listener_ends_is_answered() -> None:
    async def main() -> None:
        async with AsyncConsumer(nobody(), group="g", **QUIET) as consumer:
            heard = 0

            async def listener(partitions: list[TopicPartition]) -> None:
                nonlocal heard
                heard += await consumer._call(len, partitions)

            rebalance = consumer._in_loop(listener)
            assert rebalance is not None
            ended = False

            async def others() -> None:
                while not ended:
                    assert await consumer._call(int, "1") == 1

            tasks = [asyncio.create_task(others()) for _ in range(3)]
            loop = asyncio.get_running_loop()
            for _ in range(3000):
                await loop.run_in_executor(consumer._thread, rebalance, [GOES])
            ended = True
            await asyncio.gather(*tasks)
            assert heard == 3000

    asyncio.run(main())


def test_a_caller_that_gave_up_disturbs_no_rebalance() -> None:
    async def main() -> None:
        async with AsyncConsumer(nobody(), group="g", **QUIET) as consumer:

            async def listener(partitions: list[TopicPartition]) -> None:
                asked = asyncio.ensure_future(consumer._call(int, "1"))
                await asyncio.sleep(0)
                asked.cancel()
                assert await consumer._call(int, "2") == 2

            rebalance = consumer._in_loop(listener)
            assert rebalance is not None
            for _ in range(200):
                await asyncio.get_running_loop().run_in_executor(consumer._thread, rebalance, [GOES])

    asyncio.run(main())
