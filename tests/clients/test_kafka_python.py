"""kafka-python: pure Python, with its own idea of which versions to speak."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidRecordError

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
    producer = KafkaProducer(
        bootstrap_servers=server.bootstrap,
        compression_type=codec,
        linger_ms=50,
        acks="all",
        enable_idempotence=idempotent,
    )
    futures = [producer.send(topic, value, key=b"k", headers=[("h", b"1")]) for value in values]
    producer.flush(60)
    assert [future.get(10).offset for future in futures] == list(range(300))
    producer.close()
    assert stored.codecs(server.data_dir, topic) == {codec or "none"}
    assert (stored.producer_ids(server.data_dir, topic) == {-1}) is not idempotent

    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, consumer_timeout_ms=10_000, group_id=None)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    received = [next(consumer) for _ in values]
    consumer.close()
    assert [message.value for message in received] == values
    assert received[0].headers == [("h", b"1")]


@pytest.mark.filterwarnings("ignore")
def test_a_bad_record_is_reported_as_bad(server: PenstockServer, new_topic: Callable[..., str]) -> None:
    topic = new_topic(cleanup_policy="compact")
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, linger_ms=2_000, acks="all")
    futures = [producer.send(topic, b"v", key=None if number % 10 == 4 else b"k") for number in range(100)]
    producer.flush(60)
    producer.close()
    assert all(future.failed() for future in futures)
    assert {type(future.exception) for future in futures[4::10]} == {InvalidRecordError}
