"""Both ways of reading, Penstock's and confluent-kafka's, without Spark around them: the same rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

import pyarrow as pa
from confluent_kafka import KafkaError, Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.client import EARLIEST, LATEST, ConnectionFailed, RangeUnavailable, TopicPartition
from penstock.spark.backend import SourcePartition, open_backend
from penstock.spark.batch_reader import plan
from penstock.spark.confluent import ConfluentReader
from penstock.spark.errors import DataLossError, OptionError, SourceError
from penstock.spark.filters import Bounds
from penstock.spark.lookup import Lookup
from penstock.spark.options import SourceOptions, batch_options, stream_options
from penstock.spark.reading import read_range
from penstock.spark.stream_reader import StreamReader
from penstock.wire.uuids import format_uuid
from support.records import open_transaction
from support.server_process import ServerProcess

pytestmark = pytest.mark.timeout(240)

CLIENTS = ("penstock", "confluent")


def options_of(server: ServerProcess, topic: str, client: str, **given: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic, "penstock.client": client}
    return batch_options(base | {"includeHeaders": "true"} | given)


def rows(options: SourceOptions) -> list[dict[str, object]]:
    """What a batch read with these options gives, in the order of its tasks."""
    lookup = Lookup(options)
    try:
        parts = plan(options, lookup, Bounds())
    finally:
        lookup.close()
    batches = [batch for part in parts for batch in read_range(options, part)]
    found: list[dict[str, object]] = pa.Table.from_batches(batches).to_pylist() if batches else []
    return found


def write(server: ServerProcess, topic: str, count: int, *, partition: int = 0, **properties: object) -> None:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20} | named)
    for number in range(count):
        producer.produce(
            topic,
            None if number % 5 == 0 else b"value %d" % number * (number % 7),
            None if number % 3 == 0 else b"key %d" % (number % 4),
            partition=partition,
            timestamp=1_700_000_000_000 + number,
            headers=[("a", b"1"), ("a", None), ("ü", b"")] if number % 4 == 0 else None,
        )
    assert producer.flush(30) == 0


def test_both_clients_read_the_same_rows(server: ServerProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        write(server, topic, 40, compression_type=codec)
    write(server, topic, 7, partition=2)

    ours, theirs = (rows(options_of(server, topic, client)) for client in CLIENTS)

    assert len(ours) == 207
    assert ours == theirs
    assert ours[0]["key"] is None
    assert ours[0]["value"] is None
    assert ours[0]["headers"] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "ü", "value": b""},
    ]
    assert ours[1]["headers"] is None


@pytest.mark.parametrize("client", CLIENTS)
def test_any_cut_gives_the_same_rows(server: ServerProcess, new_topic: Callable[..., str], client: str) -> None:
    topic = new_topic(2)
    write(server, topic, 50)
    write(server, topic, 3, partition=1)

    assert rows(options_of(server, topic, client, minPartitions="9")) == rows(options_of(server, topic, client))


@pytest.mark.parametrize("client", CLIENTS)
def test_log_append_time_has_its_own_type(server: ServerProcess, new_topic: Callable[..., str], client: str) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    write(server, topic, 3)

    found = rows(options_of(server, topic, client))

    assert [row["timestampType"] for row in found] == [1, 1, 1]
    assert all(str(row["timestamp"]) > "2024" for row in found)


@pytest.mark.parametrize("client", CLIENTS)
def test_questions_have_the_same_answers(server: ServerProcess, new_topic: Callable[..., str], client: str) -> None:
    topic = new_topic(2)
    write(server, topic, 10)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    backend = open_backend(options_of(server, topic, client))
    try:
        described = backend.topics((topic, "not-there"))
        other = open_backend(options_of(server, topic, "penstock"))
        assert described == other.topics((topic,))
        other.close()
        assert described[topic].partitions == (0, 1)
        assert described[topic].topic_id
        assert topic in backend.topics(None)
        assert backend.offsets({first: LATEST, second: LATEST}) == {first: 10, second: 0}
        assert backend.offsets({first: EARLIEST}) == {first: 0}
        assert backend.offsets({first: 1_700_000_000_004, second: 0}) == {first: 4, second: -1}
    finally:
        backend.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_not_there_is_named(server: ServerProcess, new_topic: Callable[..., str], client: str) -> None:
    topic = new_topic()
    write(server, topic, 5)
    options = options_of(server, topic, client, **{"kafkaConsumer.pollTimeoutMs": "1500"})

    with pytest.raises(SourceError, match="there is no topic not-there"):
        rows(options_of(server, "not-there", client))
    with pytest.raises(OptionError, match="start offset 7 is greater than the resolved end offset 5"):
        rows(options_of(server, topic, client, startingOffsets=f'{{"{topic}":{{"0":7}}}}'))
    with pytest.raises(DataLossError, match="offset 7 is not in the log, which holds 0 to 5"):
        list(read_range(options, SourcePartition(topic, 0, 7, 9)))
    with pytest.raises(DataLossError, match="the log ends there"):
        list(read_range(options, SourcePartition(topic, 0, 3, 9)))
    with pytest.raises(DataLossError, match="not-there-0"):
        list(read_range(options, SourcePartition("not-there", 0, 0, 9)))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_of_a_pattern_reads_topics_that_come_while_it_runs(
    server: ServerProcess, new_topic: Callable[..., str], client: str
) -> None:
    prefix = f"p-{uuid.uuid4().hex[:8]}"
    write(server, new_topic(name=f"{prefix}-1"), 5)
    given = {"kafka.bootstrap.servers": server.bootstrap, "penstock.client": client}
    reader = StreamReader(stream_options(given | {"subscribePattern": prefix, "startingOffsets": "earliest"}))
    try:
        first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        write(server, new_topic(name=f"{prefix}-2"), 7)
        second = reader.latestOffset(first, ReadAllAvailable())
        found = [
            (row["topic"], row["offset"])
            for part in reader.partitions(first, second)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
    finally:
        reader.stop()

    assert found == [(f"{prefix}-2", offset) for offset in range(7)]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_was_created_again_is_not_read_as_the_old_one(
    server: ServerProcess, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic()
    write(server, topic, 5)
    options = options_of(server, topic, client)
    another = format_uuid(bytes(range(16)))

    assert list(read_range(options, SourcePartition(topic, 0, 0, 5, topic_id_of(options, topic))))
    with pytest.raises(DataLossError, match="deleted and created again under the same name"):
        list(read_range(options, SourcePartition(topic, 0, 0, 5, another)))


def topic_id_of(options: SourceOptions, topic: str) -> str | None:
    backend = open_backend(options)
    try:
        return backend.topics((topic,))[topic].topic_id
    finally:
        backend.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_an_open_transaction_is_told_apart_from_a_loss(
    transactional_server: ServerProcess, new_topic: Callable[..., str], client: str
) -> None:
    server, topic = transactional_server, new_topic()
    write(server, topic, 5)
    producer = open_transaction(server.bootstrap, topic, 5)
    given = {"kafkaConsumer.pollTimeoutMs": "1500", "kafka.isolation.level": "read_committed"}
    options = options_of(server, topic, client, **given)

    assert len(rows(options)) == 5
    with pytest.raises(SourceError, match="the producer of that transaction has to end it") as held:
        list(read_range(options, SourcePartition(topic, 0, 3, 10)))
    assert not isinstance(held.value, DataLossError)
    with pytest.raises(DataLossError, match="the log ends there"):
        list(read_range(options, SourcePartition(topic, 0, 3, 20)))
    producer.abort_transaction(30)


@pytest.mark.parametrize(("high_watermark", "is_loss"), [(10, False), (9, True)])
def test_librdkafka_says_what_holds_a_range_back(high_watermark: int, is_loss: bool) -> None:
    """Without a broker that has transactions: librdkafka's answers, from one that is open at offset 5."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a", "kafkaConsumer.pollTimeoutMs": "1"}
    reader = ConfluentReader(batch_options(given | {"kafka.isolation.level": "read_committed"}))
    reader._consumer = StuckConsumer(5, high_watermark)  # type: ignore[assignment]

    with pytest.raises(RangeUnavailable) as held:
        list(reader.read(SourcePartition("a", 0, 3, 10), 3))
    assert held.value.open_transaction is not is_loss


class StuckConsumer:
    """One that has come to the last stable offset."""

    def __init__(self, stable: int, high_watermark: int) -> None:
        self._stable = stable
        self._high_watermark = high_watermark

    def assign(self, _: object) -> None: ...

    def unassign(self) -> None: ...

    def consume(self, count: int, timeout_s: float) -> list[StuckConsumer]:
        return [self]

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)

    def offset(self) -> int:
        return self._stable

    def get_watermark_offsets(self, _: object, *, cached: bool) -> tuple[int, int]:
        assert cached, "asked for anew, librdkafka tells the last stable offset"
        return 0, self._high_watermark


def test_a_cluster_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.cluster.FIRST_CONTACT_TIMEOUT_S", 0.3)
    with pytest.raises(ConnectionFailed, match=r"cannot reach a Kafka cluster at 127.0.0.1:1"):
        rows(batch_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}))
