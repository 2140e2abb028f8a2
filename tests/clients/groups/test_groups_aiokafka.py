"""What an application does with a group through aiokafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import OffsetAndMetadata

from clients.groups.librdkafka import produce

pytestmark = pytest.mark.filterwarnings("ignore")
WAIT_TIMEOUT_S = 60


@asynccontextmanager
async def consumer(bootstrap: str, group_id: str, *topics: str, **settings: object) -> AsyncIterator[AIOKafkaConsumer]:
    config = {
        "session_timeout_ms": 3_000,
        "heartbeat_interval_ms": 200,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        "metadata_max_age_ms": 300,
    }
    made = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group_id, **{**config, **settings})
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def read_until(reader: AIOKafkaConsumer, condition: Callable[[list[str]], bool | Awaitable[bool]]) -> list[str]:
    values: list[str] = []
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while True:
            answer = condition(values)
            if answer if isinstance(answer, bool) else await answer:
                return values
            for records in (await reader.getmany(timeout_ms=20)).values():
                values += [record.value.decode() for record in records]


def test_auto_commit_lets_the_next_one_go_on(bootstrap: str, new_topic: Callable[..., str], group_id: str) -> None:
    topic = new_topic()
    produce(bootstrap, topic, *(str(n) for n in range(10)))
    auto = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}

    async def run() -> None:
        async with consumer(bootstrap, group_id, topic, **auto) as first:
            await read_until(first, lambda values: len(values) == 10)

            async def committed(_: list[str]) -> bool:
                return bool(await first.committed(TopicPartition(topic, 0)) == 10)

            await read_until(first, committed)
        produce(bootstrap, topic, "next")
        async with consumer(bootstrap, group_id, topic, **auto) as second:
            assert await read_until(second, bool) == ["next"]

    asyncio.run(run())


def test_seek_pause_resume_positions_and_lag(bootstrap: str, new_topic: Callable[..., str], group_id: str) -> None:
    topic = new_topic(2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for partition in (0, 1):
        produce(bootstrap, topic, *(f"{partition}:{n}" for n in range(5)), partition=partition)

    async def run() -> None:
        async with consumer(bootstrap, group_id, topic) as reader:
            await read_until(reader, lambda values: len(values) == 10)
            assert (await reader.position(zero), await reader.position(one)) == (5, 5)
            reader.pause(one)
            for partition in (0, 1):
                produce(bootstrap, topic, f"{partition}:5", partition=partition)
            assert await read_until(reader, bool) == ["0:5"]
            reader.resume(one)
            assert await read_until(reader, bool) == ["1:5"]
            reader.seek(zero, 3)
            assert await read_until(reader, lambda values: len(values) == 3) == ["0:3", "0:4", "0:5"]
            await reader.commit({zero: OffsetAndMetadata(2, "half way")})
            assert await reader.committed(zero) == 2
            assert await reader.committed(one) is None
            assert (await reader.end_offsets([zero]))[zero] - 2 == 4
            assert reader.highwater(zero) == 6

    asyncio.run(run())


def test_a_pattern_picks_up_topics_that_are_created_later(bootstrap: str, group_id: str) -> None:
    prefix = f"orders-{uuid.uuid4().hex[:8]}"

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(f"{prefix}-eu", 1, 1)])
            async with consumer(bootstrap, group_id) as reader:
                reader.subscribe(pattern=f"^{prefix}-.*")
                await read_until(reader, lambda _: reader.assignment() == {TopicPartition(f"{prefix}-eu", 0)})
                await admin.create_topics([NewTopic(f"{prefix}-us", 1, 1)])
                produce(bootstrap, f"{prefix}-us", "hello")
                assert await read_until(reader, bool) == ["hello"]
                assert len(reader.assignment()) == 2
        finally:
            await admin.close()

    asyncio.run(run())


def test_groups_are_listed_and_described(bootstrap: str, new_topic: Callable[..., str], group_id: str) -> None:
    topic = new_topic()
    produce(bootstrap, topic, "a", "b", "c")

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            async with consumer(bootstrap, group_id, topic) as reader:
                await read_until(reader, lambda values: len(values) == 3)
                await reader.commit()
                (response,) = await admin.describe_consumer_groups([group_id])
                (described,) = response.groups
                assert described[1:4] == (group_id, "Stable", "consumer")
            assert (group_id, "consumer") in await admin.list_consumer_groups()
            offsets = await admin.list_consumer_group_offsets(group_id)
            assert offsets[TopicPartition(topic, 0)].offset == 3
        finally:
            await admin.close()

    asyncio.run(run())
