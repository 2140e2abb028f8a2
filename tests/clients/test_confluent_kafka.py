"""librdkafka, through confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from clients import stored
from support.penstock import PenstockServer


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> list[Message]:
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failed.append(error)

    config = {"bootstrap.servers": bootstrap, **{key.replace("_", "."): value for key, value in settings.items()}}
    producer = Producer(config)
    for number, value in enumerate(values):
        producer.produce(topic, value=value, key=b"k%d" % number, headers=[("n", b"%d" % number)], on_delivery=report)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed
    return delivered


def consume(bootstrap: str, topic: str, count: int, partitions: int = 1, **settings: object) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    found: list[Message] = []
    try:
        while len(found) < count:
            batch = consumer.consume(count - len(found), timeout=60)
            assert batch, f"only {len(found)} of {count} arrived"
            for message in batch:
                assert message.error() is None
                found.append(message)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", stored.CODECS)
def test_every_codec_arrives_as_sent_and_is_stored_compressed(
    server: PenstockServer, new_topic: Callable[..., str], codec: str, idempotent: bool
) -> None:
    topic = new_topic()
    values = [b'{"sensor": "s-%d", "reading": %d}' % (n % 7, n) for n in range(500)]
    # One batch: a small one that does not get smaller is left as it is.
    settings = {"compression_type": codec, "enable_idempotence": idempotent, "linger_ms": 2000}
    sent = produce(server.bootstrap, topic, values, **settings)
    assert [message.offset() for message in sent] == list(range(500))
    assert stored.codecs(server.data_dir, topic) == {codec}
    assert (stored.producer_ids(server.data_dir, topic) == {-1}) is not idempotent
    received = consume(server.bootstrap, topic, 500)
    assert [message.value() for message in received] == values
    assert received[3].key() == b"k3"
    assert received[3].headers() == [("n", b"3")]


def test_acks_zero_and_one_store_everything(server: PenstockServer, new_topic: Callable[..., str]) -> None:
    for acks in ("0", "1"):
        topic = new_topic()
        produce(server.bootstrap, topic, [b"%d" % n for n in range(100)], acks=acks)
        assert len(consume(server.bootstrap, topic, 100)) == 100


def test_a_message_over_the_limit_is_refused_and_one_of_10_mb_passes_where_allowed(
    server: PenstockServer, new_topic: Callable[..., str]
) -> None:
    small, large = new_topic(), new_topic(max_message_bytes="10485760")
    config = {"bootstrap.servers": server.bootstrap, "message.max.bytes": 20_000_000}
    producer = Producer(config)
    outcomes: dict[str, KafkaError | None] = {}
    for topic in (small, large):
        producer.produce(
            topic, b"x" * 10_000_000, on_delivery=lambda error, message, name=topic: outcomes.__setitem__(name, error)
        )
    producer.flush(30)
    refused = outcomes[small]
    assert refused is not None
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert outcomes[large] is None
    (message,) = consume(server.bootstrap, large, 1, **{"fetch.message.max.bytes": 1000})
    assert len(message.value() or b"") == 10_000_000


def test_offsets_by_time_and_ends(server: PenstockServer, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for n in range(10):
        producer.produce(topic, b"%d" % n, timestamp=1_700_000_000_000 + n * 1000)
        producer.flush(60)
    partition = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})

    def offset(spec: OffsetSpec) -> int:
        return int(admin.list_offsets({partition: spec})[partition].result(60).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.for_timestamp(1_700_000_004_500)) == 5
    assert offset(OffsetSpec.max_timestamp()) == 9


@pytest.mark.parametrize(("reset", "first"), [("earliest", b"0"), ("latest", b"new")])
def test_offset_reset(server: PenstockServer, new_topic: Callable[..., str], reset: str, first: bytes) -> None:
    topic = new_topic()
    produce(server.bootstrap, topic, [b"%d" % n for n in range(5)])
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused", "auto.offset.reset": reset})
    consumer.assign([TopicPartition(topic, 0, 1000)])
    producer = Producer({"bootstrap.servers": server.bootstrap})
    try:
        message = None
        while message is None or message.error():
            message = consumer.poll(0.5)
            if reset == "latest" and message is None:
                producer.produce(topic, b"new")
                producer.flush(60)
        assert message.value() == first
    finally:
        consumer.close()


def test_reset_none_reports_the_offset_out_of_range(server: PenstockServer, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    produce(server.bootstrap, topic, [b"a"])
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 1000)])
    try:
        message = consumer.poll(10)
        assert message is not None
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        consumer.close()


def test_topics_are_created_described_grown_and_deleted(server: PenstockServer) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("life", 2, 1, config={"retention.ms": "1234567"})])["life"].result(60)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("life", 2, 1)])["life"].result(60)
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        admin.create_topics([NewTopic("bad", 2, 1, config={"retention.ms": "soon"})])["bad"].result(60)
    admin.create_partitions([NewPartitions("life", 5)])["life"].result(60)
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions("life", 3)])["life"].result(60)
    assert len(admin.list_topics("life", timeout=60).topics["life"].partitions) == 5
    resource = ConfigResource(ResourceType.TOPIC, "life")
    described = admin.describe_configs([resource])[resource].result(60)
    assert described["retention.ms"].value == "1234567"
    assert described["segment.bytes"].value == "1073741824"
    admin.delete_topics(["life"])["life"].result(60)
    assert "life" not in admin.list_topics(timeout=60).topics


def test_topics_are_created_by_use(server: PenstockServer) -> None:
    produce(server.bootstrap, "made-by-use", [b"hello"])
    topics = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60).topics
    assert len(topics["made-by-use"].partitions) == 3


def test_delete_records_moves_the_start(server: PenstockServer, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    produce(server.bootstrap, topic, [b"%d" % n for n in range(10)])
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    partition = TopicPartition(topic, 0, 7)
    result = admin.delete_records([partition])[partition].result(60)
    assert result.low_watermark == 7
    assert [message.value() for message in consume(server.bootstrap, topic, 3)] == [b"7", b"8", b"9"]


@pytest.mark.parametrize("stored_as", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_a_topic_that_chooses_its_codec_gets_it_whatever_the_producer_sends(
    server: PenstockServer, new_topic: Callable[..., str], stored_as: str, idempotent: bool
) -> None:
    topic = new_topic(compression_type=stored_as)
    values: list[bytes] = []
    for sent_as in ("none", "gzip", "zstd"):
        batch = [b'{"sensor": "s-%d", "sent": "%s"}' % (n, sent_as.encode()) for n in range(200)]
        produce(server.bootstrap, topic, batch, compression_type=sent_as, linger_ms=50, enable_idempotence=idempotent)
        values += batch
    assert stored.codecs(server.data_dir, topic) == {"none" if stored_as == "uncompressed" else stored_as}
    assert [message.value() for message in consume(server.bootstrap, topic, 600)] == values


def test_only_the_bad_records_of_a_batch_are_reported_as_bad(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(cleanup_policy="compact")
    reports: dict[int, KafkaError | None] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2000})
    for number in range(100):
        key = None if number % 10 == 4 else b"k"
        producer.produce(
            topic, b"%d" % number, key, on_delivery=lambda error, _, number=number: reports.update({number: error})
        )
    assert producer.flush(60) == 0
    codes = {number: error.code() for number, error in reports.items() if error is not None}
    assert [number for number, code in codes.items() if code == KafkaError.INVALID_RECORD] == list(range(4, 100, 10))
    assert sum(code == KafkaError._INVALID_DIFFERENT_RECORD for code in codes.values()) == 90
