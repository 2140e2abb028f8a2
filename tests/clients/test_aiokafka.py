"""aiokafka: asyncio, and strict about what it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from clients import stored
from support.penstock import PenstockServer

CODECS = (None, "gzip", "snappy", "lz4", "zstd")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS, ids=[codec or "none" for codec in CODECS])
def test_every_codec_arrives_as_sent_and_is_stored_compressed(
    server: PenstockServer, new_topic: Callable[..., str], codec: str | None, idempotent: bool
) -> None:
    topic = new_topic()
    values = [b'{"sensor": "s-%d", "reading": %d}' % (n % 7, n) for n in range(300)]

    async def run() -> list[bytes | None]:
        producer = AIOKafkaProducer(
            bootstrap_servers=server.bootstrap,
            compression_type=codec,
            linger_ms=50,
            enable_idempotence=idempotent,
            acks="all",
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, value, partition=0) for value in values]
            assert [(await delivered).offset for delivered in sent] == list(range(300))
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None, enable_auto_commit=False)
        await consumer.start()
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in values]
        finally:
            await consumer.stop()

    assert asyncio.run(run()) == values
    assert stored.codecs(server.data_dir, topic) == {codec or "none"}
    assert (stored.producer_ids(server.data_dir, topic) == {-1}) is not idempotent
