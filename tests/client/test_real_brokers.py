"""The client and the decoder on real brokers, Penstock and Apache Kafka, beside confluent-kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install penstock-streaming[spark]")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install penstock-streaming[spark]")

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.arrow import RecordDecoder
from penstock.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ClientSettings,
    Cluster,
    IsolationLevel,
    OffsetOutOfRange,
    PartitionRange,
    RangeUnavailable,
    TopicRecreated,
    UnknownTopic,
    fetch_range,
    fetch_ranges,
)
from support import apache_kafka
from support.either import APACHE_KAFKA, PENSTOCK, server_of
from support.retention import KEPT_FOR_EVER
from support.server_process import ServerProcess

pytestmark = pytest.mark.timeout(240)

SETTINGS = {"log.cleaner.backoff.ms": "100", **KEPT_FOR_EVER}
Row = tuple[object, ...]


@pytest.fixture(scope="module", params=[PENSTOCK, pytest.param(APACHE_KAFKA, marks=pytest.mark.needs_maven)])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with server_of(request.param, SETTINGS) as running:
        yield running


@pytest.fixture
def new_topic(server: ServerProcess) -> Callable[..., str]:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})

    def create(partitions: int = 1, *, name: str | None = None, **config: str) -> str:
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(timeout=60)
        return name

    return create


@pytest.fixture
def cluster(server: ServerProcess) -> Iterator[Cluster]:
    with Cluster(settings_of(server)) as cluster:
        yield cluster


def settings_of(server: ServerProcess, **properties: object) -> ClientSettings:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return ClientSettings.from_properties({"bootstrap.servers": server.bootstrap} | named)


def producer_of(server: ServerProcess, **properties: object) -> Producer:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20} | named)


def write(server: ServerProcess, topic: str, count: int, *, partition: int = 0, **properties: object) -> None:
    producer = producer_of(server, **properties)
    for number in range(count):
        producer.produce(topic, b"value %d" % number * (number % 7), b"key %d" % number, partition=partition)
    assert producer.flush(30) == 0


def end_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    return next(iter(cluster.list_offsets({(topic, partition): LATEST}).values())).offset


def read(
    cluster: Cluster,
    topic: str,
    start: int,
    end: int,
    *,
    partition: int = 0,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> list[Row]:
    """(offset, timestamp in ms, timestamp type, key, value, headers), through Arrow."""
    decoder = RecordDecoder(topic, partition, start=start, end=end, include_headers=True)
    found: list[Row] = []
    for piece in fetch_range(cluster, topic, partition, start, end, isolation=isolation):
        for batch in decoder.decode(piece.records, piece.aborted):
            for row in batch.to_pylist():
                headers = row["headers"] and [(one["key"], one["value"]) for one in row["headers"]]
                stamp = round(row["timestamp"].timestamp() * 1000)
                found.append((row["offset"], stamp, row["timestampType"], row["key"], row["value"], headers))
    return found


def consume(
    server: ServerProcess, topic: str, start: int, last_offset: int, isolation: str = "read_uncommitted"
) -> list[Row]:
    """The same with confluent-kafka, up to a record that is known to be there."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "beside",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[Row] = []
    try:
        while not found or found[-1][0] != last_offset:
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None
            kind, stamp = message.timestamp()
            kind = 0 if kind == TIMESTAMP_CREATE_TIME else 1
            found.append((message.offset(), stamp, kind, message.key(), message.value(), message.headers()))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_those_of_confluent_kafka(
    server: ServerProcess, cluster: Cluster, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic()
    producer = producer_of(server, compression_type=codec, batch_num_messages=700)
    for number in range(5000):
        key = None if number % 5 == 0 else b"key %d" % number
        value = None if number % 11 == 0 else b"value " * (number % 50)
        headers: Any = [("n", b"%d" % number), ("null", None)] if number % 3 == 0 else None
        producer.produce(topic, value, key, headers=headers, timestamp=1_700_000_000_000 + number)
    assert producer.flush(30) == 0
    assert end_of(cluster, topic) == 5000
    rows = read(cluster, topic, 0, 5000)
    assert rows == consume(server, topic, 0, 4999)
    assert read(cluster, topic, 1234, 2345) == rows[1234:2345]


def test_log_append_time_is_told(server: ServerProcess, cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    write(server, topic, 100)
    rows = read(cluster, topic, 0, 100)
    assert rows == consume(server, topic, 0, 99)
    assert {row[2] for row in rows} == {1}


def test_offsets_by_time(server: ServerProcess, cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    producer = producer_of(server)
    for number in range(10):
        producer.produce(topic, b"v", partition=0, timestamp=1_000_000 + 10 * number)
    assert producer.flush(30) == 0

    def offset(partition: int, timestamp: int) -> int:
        (found,) = cluster.list_offsets({(topic, partition): timestamp}).values()
        return found.offset

    assert [offset(0, when) for when in (EARLIEST, LATEST, 1_000_000, 1_000_041, MAX_TIMESTAMP)] == [0, 10, 0, 5, 9]
    assert offset(0, 9_000_000) == -1
    assert [offset(1, when) for when in (EARLIEST, LATEST, 5)] == [0, 0, -1]


def test_many_partitions_over_one_connection(
    server: ServerProcess, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(20)
    for partition in range(20):
        write(server, topic, 50 * partition, partition=partition)
    ranges = [PartitionRange(topic, partition, 0, 50 * partition) for partition in range(20)]
    counts = dict.fromkeys(range(20), 0)
    for piece in fetch_ranges(cluster, ranges):
        decoder = RecordDecoder(topic, piece.partition, end=50 * piece.partition)
        counts[piece.partition] += sum(batch.num_rows for batch in decoder.decode(piece.records))
    assert counts == {partition: 50 * partition for partition in range(20)}


def test_records_that_were_deleted_are_out_of_range(
    server: ServerProcess, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write(server, topic, 100)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 40)]).values():
        future.result(timeout=60)
    with pytest.raises(OffsetOutOfRange) as caught:
        read(cluster, topic, 0, 100)
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (40, 100)
    assert len(read(cluster, topic, 40, 100)) == 60


def test_a_compacted_topic_is_read_to_its_end(
    server: ServerProcess, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001", min_compaction_lag_ms="0"
    )
    producer = producer_of(server, linger_ms=0)
    deadline_s = time.monotonic() + 60
    written = 0
    # Until something is gone: segments are closed by what is written after their time.
    while len(rows := read(cluster, topic, 0, end_of(cluster, topic))) >= written - 20 or not rows:
        assert time.monotonic() < deadline_s, "nothing was compacted"
        for _ in range(20):
            producer.produce(topic, b"value", b"key %d" % (written % 3), partition=0)
            producer.flush(30)
            written += 1
    end = end_of(cluster, topic)
    rows = read(cluster, topic, 0, end)
    beside = consume(server, topic, 0, end - 1)
    again = read(cluster, topic, 0, end)
    # Compaction goes on meanwhile: what came last was there before, and nothing is there that was not.
    assert rows[-1] == beside[-1] == again[-1]
    assert [row for row in rows if row in beside] == beside
    assert [row for row in beside if row in again] == again
    first_gap = next(index for index, row in enumerate(rows) if row[0] != index)
    inside = int(str(rows[first_gap][0])) - 1
    assert read(cluster, topic, inside, inside + 1) == []


def test_a_range_beyond_the_end_of_the_log_is_unavailable(server: ServerProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    write(server, topic, 10)
    with Cluster(settings_of(server, default_api_timeout_ms=2_000)) as cluster, pytest.raises(RangeUnavailable):
        read(cluster, topic, 0, 20)


def test_a_topic_that_goes_and_comes_back_is_another(
    server: ServerProcess, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write(server, topic, 100)
    topic_id = cluster.topics([topic])[topic].topic_id
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics([topic])[topic].result(timeout=60)
    deadline_s = time.monotonic() + 20
    while cluster.existing_topics([topic]):
        assert time.monotonic() < deadline_s
    with pytest.raises(UnknownTopic):
        list(fetch_range(cluster, topic, 0, 0, 100, topic_id=topic_id))
    new_topic(name=topic)
    write(server, topic, 100)
    with pytest.raises(TopicRecreated):
        list(fetch_range(cluster, topic, 0, 0, 100, topic_id=topic_id))


def test_a_broker_that_is_killed_and_comes_back_interrupts_nothing(
    server: ServerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write(server, topic, 20_000, batch_num_messages=100)
    settings = settings_of(server, max_partition_fetch_bytes=16_384)
    rows: list[int] = []
    with Cluster(settings) as cluster:
        decoder = RecordDecoder(topic, 0)
        for number, piece in enumerate(fetch_range(cluster, topic, 0, 0, 20_000)):
            for batch in decoder.decode(piece.records):
                rows += batch["offset"].to_pylist()
            if number == 3:
                server.kill()
                server.start()
    assert rows == list(range(20_000))


@pytest.mark.compat
@pytest.mark.needs_maven
def test_committed_readers_see_no_aborted_transaction() -> None:
    if reason := apache_kafka.available():
        pytest.skip(reason)
    with apache_kafka.ApacheKafka(heap="512M") as kafka:
        topic = "transactions"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=60)
        one = producer_of(kafka, transactional_id="one")
        two = producer_of(kafka, transactional_id="two")
        one.init_transactions()
        two.init_transactions()
        for turn in range(30):
            one.begin_transaction()
            two.begin_transaction()
            for number in range(20):
                one.produce(topic, b"one %d %d" % (turn, number), partition=0)
                two.produce(topic, b"two %d %d" % (turn, number), partition=0)
                if number % 5 == 0:
                    one.flush()
                    two.flush()
            (one.abort_transaction if turn % 3 else one.commit_transaction)()
            (two.commit_transaction if turn % 2 else two.abort_transaction)()
        with Cluster(settings_of(kafka, max_partition_fetch_bytes=3000)) as cluster:
            end = end_of(cluster, topic)
            rows = read(cluster, topic, 0, end, isolation=IsolationLevel.READ_COMMITTED)
            assert len(rows) == 20 * 10 + 20 * 15
            everything = read(cluster, topic, 0, end)
            # An abort drops what was not sent yet: the last four of each.
            assert 16 * 35 <= len(everything) - len(rows) <= 20 * 35
            last = int(str(rows[-1][0]))
            assert rows == consume(kafka, topic, 0, last, "read_committed")
            # From the middle of transactions, and ranges that have nothing but aborted ones.
            for start in range(0, end, 97):
                stop = min(start + 50, end)
                inside = [row for row in rows if start <= int(str(row[0])) < stop]
                assert read(cluster, topic, start, stop, isolation=IsolationLevel.READ_COMMITTED) == inside
            two.begin_transaction()
            two.produce(topic, b"open", partition=0)
            two.flush()
            stable = cluster.list_offsets({(topic, 0): LATEST}, isolation=IsolationLevel.READ_COMMITTED)
            assert [found.offset for found in stable.values()] == [end]
            assert end_of(cluster, topic) == end + 1
            two.abort_transaction()
