"""The asyncio forms: what differs from the others is who waits, and where."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from client.test_consumer import committed, fill, number
from client.test_producer import nobody, read
from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    BufferExhausted,
    DeliveryFailed,
    RateLimit,
    RecordMetadata,
    RoundRobin,
    TopicPartition,
)

TRIES = 8


def run(main: Coroutine[Any, Any, object]) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(within())


def test_a_delivery_can_be_awaited_and_has_callbacks_in_the_loop(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    told: list[tuple[RecordMetadata, object]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with AsyncProducer(bootstrap) as producer:
            delivery = await producer.send(topic, "value", "key")
            delivery.add_callback(lambda where: told.append((where, asyncio.get_running_loop())))
            stored = await delivery
            assert stored == await delivery, "again, once it has arrived"
            assert (stored.topic, stored.partition, stored.offset) == (topic, 0, 0)
            assert (await producer.send_and_wait(topic, "second")).offset == 1
            deliveries = [await producer.send(topic, str(one)) for one in range(500)]
            assert [(await one).offset for one in deliveries] == list(range(2, 502))
        assert told == [(stored, loop)]

    run(main())
    assert len(read(bootstrap, topic, 502)) == 502


def test_failures_are_raised_where_they_are_awaited_or_at_the_end(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(max_message_bytes="1000")

    async def main() -> None:
        async with AsyncProducer(bootstrap) as producer:
            with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
                await producer.send_and_wait(topic, b"v" * 5000)
        with pytest.raises(DeliveryFailed, match="1 record was not stored"):
            async with AsyncProducer(bootstrap) as producer:
                await producer.send(topic, b"v" * 5000)

    run(main())


def test_a_full_buffer_does_not_hold_the_loop() -> None:
    async def main() -> None:
        producer = AsyncProducer(
            nobody(), buffer_memory=50 * 1024, max_block_ms=300, log_level=0, error_cb=lambda _: None
        )
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        for _ in range(50):  # as many as fit
            await producer.send("t", b"v" * 1024)
        # Were the loop held, each of these would leave it one tick; how many there are in one is the machine's affair.
        for _ in range(TRIES):
            with pytest.raises(BufferExhausted):
                await producer.send("t", b"v" * 1024)
            if ticks > 2 * TRIES:
                break
        assert producer.metrics.slowed_records >= 10
        assert ticks > 2 * TRIES
        ticking.cancel()
        producer._sending.stop()

    run(main())


def test_limits_and_partitioners_wait_without_holding_the_loop(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(3)

    async def main() -> None:
        limit = RateLimit(records_per_s=100)
        async with AsyncProducer(bootstrap, rate_limit=limit, partitioner=RoundRobin()) as producer:
            started_s = time.monotonic()
            deliveries = [await producer.send(topic, b"v") for _ in range(30)]
            assert time.monotonic() - started_s >= 0.19
            assert [(await one).partition for one in deliveries] == [0, 1, 2] * 10

    run(main())


def test_an_async_loop_commits_what_it_has_finished(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group = create_topic(), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 10)
    rebalances: list[tuple[str, list[TopicPartition]]] = []

    async def main() -> None:
        async def assigned(partitions: list[TopicPartition]) -> None:
            rebalances.append(("assigned", partitions))

        async def revoked(partitions: list[TopicPartition]) -> None:
            # It asks the consumer while the consumer waits for it.
            rebalances.append(("revoked", await consumer.assignment()))
            await consumer.commit({(topic, 0): 4})

        consumer = AsyncConsumer(
            bootstrap, topic, group, {"auto.offset.reset": "earliest"}, on_assign=assigned, on_revoke=revoked,
            enable_auto_commit=False,
        )  # fmt: skip
        async with consumer:
            async for message in consumer:
                if number(message) == 5:
                    break
            assert await consumer.position((topic, 0)) == 6
            assert await consumer.lag() == {(topic, 0): 4}
            await consumer.seek((topic, 0), 9)
            assert [number(message) for message in await consumer.poll(20)] == [9]
            await consumer.pause()
            assert await consumer.poll(0.05) == []
            await consumer.resume()
        async with AsyncConsumer(bootstrap, topic, group) as after:
            async for message in after:
                assert number(message) == 4
                break

    run(main())
    partition = TopicPartition(topic, 0)
    assert rebalances == [("assigned", [partition]), ("revoked", [partition])]
    assert committed(bootstrap, group, topic) == [4]
