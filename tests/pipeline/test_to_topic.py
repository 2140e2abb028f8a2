"""Exactly once, with a real Spark and a real Kafka: the short version. The matrix of deaths is in a file of its own."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipeline.markers import Marker, MarkerTopic, _read_with_librdkafka
from penstock.pipeline.to_topic import TopicWriter, _SparkBatch, to_topic
from penstock.pipeline.topic_errors import (
    BatchTooLarge,
    DriverFenced,
    MarkerError,
    TopicSinkError,
    TransactionFailed,
    UnknownQuery,
)
from penstock.pipeline.transactions import Step
from support.committed import CommittedReader
from support.either import EITHER, server_of
from support.server_process import ServerProcess, admin_client
from support.topic_driver import Plan, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# A timeout in the middle of a call to Spark would leave the session that all tests share out of step.
pytestmark = pytest.mark.timeout(600)

ROWS = 30
PARTITIONS = 3


@pytest.fixture(scope="module", params=EITHER)
def kafka(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with server_of(request.param, {}) as server:
        yield server


@pytest.fixture
def topic(kafka: ServerProcess) -> str:
    name = f"out-{uuid.uuid4().hex[:8]}"
    admin = admin_client(kafka.bootstrap)
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
    return name


def query_of(
    spark: SparkSession, checkpoint: Path, writer: Callable[[DataFrame, int], None], batches: int
) -> StreamingQuery:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 3).load()

    def write(batch: DataFrame, batch_id: int) -> None:
        if batch_id < batches:
            writer(numbered(batch, batch_id, Plan("", "", "", batches)), batch_id)

    return frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint)).start()


def run_until(query: StreamingQuery, checkpoint: Path, batches: int) -> None:
    done = checkpoint / "commits" / str(batches - 1)
    while query.isActive and not done.exists():
        query.awaitTermination(cast(int, 0.05))
    query.stop()
    assert done.exists(), query.exception()


def test_batches_are_whole_and_once_through_failures_and_restarts(
    spark: SparkSession, kafka: ServerProcess, topic: str, tmp_path: Path
) -> None:
    # What is stopped here fails in order, with an abort; the long tests kill the process at every step.
    failures = [(0, Step.INITIALISED), (0, Step.EVALUATED), (1, Step.FLUSHED), (2, Step.MARKED), (3, Step.COMMITTED)]
    batches = 5
    seen: list[tuple[int, Step]] = []

    def watch(step: Step, batch_id: int) -> None:
        seen.append((batch_id, step))
        if failures and failures[0] == (batch_id, step):
            del failures[0]
            raise RuntimeError(f"stopped at {step}")

    with (
        CommittedReader(kafka.bootstrap, topic, PARTITIONS, ROWS) as reader,
        to_topic(kafka.bootstrap, topic=topic, watch=watch) as writer,
    ):
        while failures:
            query = query_of(spark, tmp_path, writer, batches)
            with pytest.raises(Exception, match="stopped at"):
                query.awaitTermination(60)
            reader.check()
        run_until(query_of(spark, tmp_path, writer, batches), tmp_path, batches)
        reader.wait_for(batches)
    assert [batch_id for batch_id, step in seen if step is Step.COMMITTED] == list(range(batches))
    assert (3, Step.PASSED_OVER) in seen, "stopped after its commit, it is passed over, not skipped"


@pytest.mark.long
def test_from_topic_to_topic_with_a_cap_and_not_without(
    spark: SparkSession, kafka: ServerProcess, topic: str, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    admin = admin_client(kafka.bootstrap)
    admin.create_topics([NewTopic(source, 2, 1)])[source].result()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(100):
        producer.produce(source, f"{number}", f"{number}")
    producer.flush(30)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    frame = spark.readStream.format("penstock").options(**options)
    with to_topic(kafka.bootstrap, topic=topic) as writer:

        def run(rows: DataFrame) -> None:
            query = rows.select("key", "value").writeStream.foreachBatch(writer).trigger(availableNow=True)
            query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)

        with pytest.raises(Exception, match=r'no cap per trigger.*\.option\("maxOffsetsPerTrigger"'):
            run(frame.load())
        assert committed(kafka.bootstrap, topic) == []
        run(frame.option("maxOffsetsPerTrigger", 40).load())
    found = committed(kafka.bootstrap, topic)
    assert sorted(int(value) for _, _, value, _ in found) == list(range(100))  # type: ignore[call-overload]
    assert all(partition == murmur2(key) % PARTITIONS for partition, key, _, _ in found)  # type: ignore[arg-type]


def writer_for(kafka: ServerProcess, topic: str | None, query_id: str, **more: object) -> TopicWriter:
    return to_topic(kafka.bootstrap, topic=topic, query_id=query_id, **more)  # type: ignore[arg-type]


def rows(spark: SparkSession, count: int, text: str = "row") -> DataFrame:
    return spark.range(count).selectExpr("CAST(id AS STRING) AS key", f"concat('{text} ', id) AS value")


def committed(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[tuple[object, ...]]:
    """All that a read_committed reader finds: (partition, key, value, headers), by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "look",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: list[tuple[Any, ...]] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ended += 1
        else:
            found.append((message.partition(), message.key(), message.value(), message.headers()))
    consumer.close()
    return sorted(found, key=lambda one: one[0])


@pytest.mark.long
def test_an_overtaken_driver_is_fenced_and_nothing_of_its_batch_is_seen(
    spark: SparkSession, kafka: ServerProcess, topic: str
) -> None:
    query = uuid.uuid4().hex

    def overtake(step: Step, batch_id: int) -> None:
        if (step, batch_id) == (Step.FLUSHED, 1):
            with writer_for(kafka, topic, query) as other:
                other(rows(spark, 5, "other"), 1)

    with writer_for(kafka, topic, query, watch=overtake) as zombie:
        zombie(rows(spark, 5, "first"), 0)
        with pytest.raises(DriverFenced, match=f"penstock-{query} was taken over: another driver"):
            zombie(rows(spark, 5, "zombie"), 1)
    values = sorted(str(value, "ascii") for _, _, value, _ in committed(kafka.bootstrap, topic))  # type: ignore[call-overload]
    assert values == [f"first {row}" for row in range(5)] + [f"other {row}" for row in range(5)]


@pytest.mark.long
def test_a_batch_at_or_below_the_marker_is_evaluated_and_not_written(
    spark: SparkSession, kafka: ServerProcess, topic: str
) -> None:
    query = uuid.uuid4().hex
    with writer_for(kafka, topic, query) as writer:
        writer(rows(spark, 5), 3)
    evaluated = spark.sparkContext.accumulator(0)

    def counting(batches: Iterator[object]) -> Iterator[object]:
        for batch in batches:
            evaluated.add(batch.num_rows)  # type: ignore[attr-defined]
            yield batch

    frame = rows(spark, 7)
    with writer_for(kafka, topic, query) as writer:
        writer(frame.mapInArrow(counting, frame.schema), 3)  # type: ignore[arg-type]
    assert evaluated.value == 7
    assert len(committed(kafka.bootstrap, topic)) == 5
    assert writer.markers.read(query.encode()) == Marker(3, 5)


@pytest.mark.long
def test_rows_say_their_topic_partition_and_headers_and_keys_lie_where_java_puts_them(
    spark: SparkSession, kafka: ServerProcess, topic: str
) -> None:
    frame = spark.sql(
        f"""SELECT '{topic}' AS topic, key, CAST(value AS BINARY) AS value, partition,
            array(named_struct('key', 'h', 'value', CAST('1' AS BINARY)), named_struct('key', 'n', 'value', NULL))
                AS headers
            FROM VALUES ('a', 'x', 2), ('b', NULL, NULL), ('21', 'y', NULL), (NULL, 'z', 0) AS t(key, value, partition)
        """
    )
    with writer_for(kafka, None, uuid.uuid4().hex) as writer:
        writer(frame, 0)
    found = committed(kafka.bootstrap, topic)
    headers = [("h", b"1"), ("n", None)]
    # Kafka's own partitioner puts the keys "b" and "21" of three partitions in these: murmur2(key) & 0x7fffffff % 3.
    assert sorted(found, key=str) == sorted(
        [(2, b"a", b"x", headers), (murmur2(b"b") % 3, b"b", None, headers), (murmur2(b"21") % 3, b"21", b"y", headers),
         (0, None, b"z", headers)],
        key=str,
    )  # fmt: skip


def murmur2(data: bytes) -> int:
    """Kafka's hash of keys, from its definition; positive, as Kafka takes it."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for start in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    if tail := data[len(data) // 4 * 4 :]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF


@pytest.mark.long
def test_a_record_that_is_too_large_fails_the_batch_and_leaves_nothing_of_it(
    spark: SparkSession, kafka: ServerProcess, topic: str
) -> None:
    frame = spark.sql("SELECT 'k' AS key, IF(id = 3, repeat('x', 2000000), 'small') AS value FROM range(5)")
    with writer_for(kafka, topic, uuid.uuid4().hex) as writer:
        with pytest.raises(TransactionFailed, match=r"batch 0 was aborted, nothing of it.*MSG_SIZE_TOO_LARGE"):
            writer(frame, 0)
        assert committed(kafka.bootstrap, topic) == []
        writer(rows(spark, 2), 0)
        assert len(committed(kafka.bootstrap, topic)) == 2


@pytest.mark.long
def test_the_marker_topic_is_created_compacted_and_one_that_would_forget_is_refused(
    spark: SparkSession, kafka: ServerProcess, topic: str
) -> None:
    admin = admin_client(kafka.bootstrap)
    forgetful = f"markers-{uuid.uuid4().hex[:8]}"
    config = {"cleanup.policy": "delete"}
    admin.create_topics([NewTopic(forgetful, 1, 1, config=config)])[forgetful].result()
    with writer_for(kafka, topic, "q", marker_topic=forgetful) as writer, pytest.raises(MarkerError) as refused:
        writer(rows(spark, 1), 0)
    assert f"{forgetful} has cleanup.policy=delete" in str(refused.value)
    assert committed(kafka.bootstrap, topic) == []


@pytest.mark.long
def test_markers_are_read_committed_from_every_partition_with_either_client(kafka: ServerProcess) -> None:
    name = f"markers-{uuid.uuid4().hex[:8]}"
    admin = admin_client(kafka.bootstrap)
    admin.create_topics([NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})])[name].result()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for number, (batch_id, partition, commit) in enumerate([(1, 0, True), (2, 0, True), (5, 1, True), (9, 1, False)]):
        producer.begin_transaction()
        producer.produce(name, Marker(batch_id, number).encode(), b"q", partition)
        producer.produce(name, Marker(77, 0).encode(), b"another", partition)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    markers = MarkerTopic({"bootstrap.servers": kafka.bootstrap}, name)
    assert markers.read(b"q") == Marker(5, 2)
    assert markers.read(b"nobody") is None
    by_librdkafka = list(_read_with_librdkafka(markers, b"q"))
    assert [(partition, Marker.decode(b"q", value or b"").batch_id) for partition, value in by_librdkafka] == [
        (0, 1),
        (0, 2),
        (1, 5),
    ]
    producer.begin_transaction()
    producer.produce(name, Marker(10, 0).encode(), b"another", 0)
    producer.flush(30)
    hurried = MarkerTopic({"bootstrap.servers": kafka.bootstrap}, name, timeout_s=1.0)
    with pytest.raises(MarkerError, match="undecided records of another query"):
        hurried.read(b"q")
    with pytest.raises(MarkerError, match="undecided records of another query"):
        list(_read_with_librdkafka(hurried, b"q"))
    producer.abort_transaction(30)
    assert hurried.read(b"q") == Marker(5, 2)


@pytest.mark.long
def test_two_writers_of_one_query_need_names_and_then_do_not_disturb_each_other(
    spark: SparkSession, kafka: ServerProcess, topic: str
) -> None:
    query = uuid.uuid4().hex
    with writer_for(kafka, topic, query, name="a") as one, writer_for(kafka, topic, query, name="b") as other:
        for batch_id in range(2):
            one(rows(spark, 1, "a"), batch_id)
            other(rows(spark, 1, "b"), batch_id)
    assert len(committed(kafka.bootstrap, topic)) == 4


def test_brokers_that_are_not_there_are_told(spark: SparkSession) -> None:
    with (
        to_topic("127.0.0.1:1", topic="t", query_id="q", properties={"default.api.timeout.ms": "200"}) as writer,
        pytest.raises(TopicSinkError, match=r"cannot reach a Kafka cluster at 127\.0\.0\.1:1"),
    ):
        writer(rows(spark, 1), 0)


def test_a_batch_of_no_query_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UnknownQuery, match=r"foreachBatch\(to_topic"):
        to_topic("127.0.0.1:1", topic="t")(rows(spark, 1), 0)


def test_a_query_without_a_cap_is_refused_and_told_the_option(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\n")
    frame = spark.readStream.text(str(tmp_path / "in"))
    writer = to_topic("127.0.0.1:1", topic="t")
    query = frame.writeStream.foreachBatch(writer).option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match=r'no cap per trigger.*\.option\("maxFilesPerTrigger"'):
        query.awaitTermination(60)


def test_a_batch_that_the_driver_may_not_hold_is_told_with_the_cap() -> None:
    class Large:
        schema = StructType([StructField("value", StringType())])
        columns: ClassVar = ["value"]

        def select(self, *columns: str) -> Large:
            return self

        def toArrow(self) -> None:
            raise RuntimeError("Total size of serialized results of 4 tasks is bigger than spark.driver.maxResultSize")

    with pytest.raises(BatchTooLarge, match="lower the source's cap per trigger"):
        _SparkBatch(Large(), "t").evaluate()  # type: ignore[arg-type]


def test_a_writer_can_be_sent_to_another_process() -> None:
    writer = pickle.loads(pickle.dumps(to_topic("localhost:9092", topic="t", query_id="q")))
    assert writer.topic == "t"
    writer.close()
