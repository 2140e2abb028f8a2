"""The source inside a real Spark: reads, streams, crashes, and what happens to topics while a query runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from penstock.spark import LagListener
from support.penstock import PenstockServer
from support.records import write
from support.server_process import ServerProcess
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(300)

Rows = dict[int, list[tuple[int, int]]]
"""By micro-batch: (partition, offset)."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with PenstockServer() as running:
        yield running


def stream_of(spark: SparkSession, server: ServerProcess, topic: str, **options: str) -> DataFrame:
    base = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    return spark.readStream.format("penstock").options(**(base | options)).load()


def run(
    stream: DataFrame,
    checkpoint: Path,
    *,
    during: Callable[[int], None] | None = None,
) -> Rows:
    """Everything there is now. `during` is called in each micro-batch, before its rows are read."""
    taken: Rows = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        if during is not None:
            during(batch_id)
        taken[batch_id] = [(row.partition, row.offset) for row in batch.select("partition", "offset").collect()]

    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    finish(query.trigger(availableNow=True).start())
    return taken


def finish(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(120), "it does not end"
    finally:
        query.stop()


def flat(rows: Rows) -> list[tuple[int, int]]:
    return sorted(row for batch in rows.values() for row in batch)


def everything(**counts: int) -> list[tuple[int, int]]:
    return sorted((int(name[1:]), offset) for name, count in counts.items() for offset in range(count))


# Batches


def test_a_batch_is_read_without_registration(
    spark: SparkSession, server: ServerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    write(server.bootstrap, topic, 30)
    write(server.bootstrap, topic, 20, partition=1)

    frame = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", server.bootstrap)
        .option("subscribe", topic)
        .option("minPartitions", "5")
        .load()
    )

    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert frame.rdd.getNumPartitions() == 5
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == everything(p0=30, p1=20)
    assert (bytes(rows[29].key), bytes(rows[29].value), rows[29].topic) == (b"key 29", b"value 29", topic)


def test_an_empty_topic_is_an_empty_frame(
    spark: SparkSession, server: ServerProcess, new_topic: Callable[..., str]
) -> None:
    frame = spark.read.format("penstock").option("kafka.bootstrap.servers", server.bootstrap)

    assert frame.option("subscribe", new_topic(2)).load().collect() == []


@pytest.mark.long
def test_filters_are_pushed_where_it_was_asked_for(
    spark: SparkSession, server: ServerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        write(server.bootstrap, topic, 10, partition=partition)
    wanted = "partition = 1 and offset >= 4 and offset < 6 and timestamp > '2020-01-01'"
    options = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}

    def load(**more: str) -> DataFrame:
        return spark.read.format("penstock").options(**(options | more)).load()

    asked = {"penstock.pushFilters": "true"}
    off = load(**asked).where(wanted)
    off_tasks, expected = off.rdd.getNumPartitions(), off.collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        on = load(**asked).where(wanted)
        on_tasks, rows = on.rdd.getNumPartitions(), on.collect()
        # Spark keeps the first plan of a DataFrame: one that reads less would lose rows of the next query.
        frame = load()
        narrow, whole = frame.where(wanted).count(), frame.count()
        future = load(**asked).where("timestamp > '2999-01-01'").count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")

    assert [(row.partition, row.offset) for row in rows] == [(1, 4), (1, 5)]
    assert rows == expected
    assert (on_tasks, off_tasks) == (1, 3)
    assert (narrow, whole, future) == (2, 30, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "not-there"}, "SourceError: there is no topic not-there"),
        ({"subscribe": "x", "startingOffset": "earliest"}, "OptionError: unknown option 'startingoffset'"),
    ],
)
def test_bad_input_is_told_without_a_stack_trace(
    spark: SparkSession, server: ServerProcess, options: dict[str, str], message: str
) -> None:
    frame = spark.read.format("penstock").option("kafka.bootstrap.servers", server.bootstrap)

    with pytest.raises(PySparkException) as told:
        frame.options(**options).load().count()
    first_line = str(told.value).splitlines()[0]
    assert message in first_line
    assert "Traceback" not in str(told.value)


def test_what_a_task_finds_is_told_in_the_first_two_lines(
    spark: SparkSession, server: ServerProcess, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write(server.bootstrap, topic, 10)
    options = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    frame = spark.read.format("penstock").options(**options).load()
    assert frame.count() == 10
    # Spark keeps the plan of a frame, so that its tasks find out.
    admin.delete_records([Place(topic, 0, 5)])[Place(topic, 0, 5)].result(timeout=20)

    with pytest.raises(Exception, match="failOnDataLoss") as told:
        frame.count()

    first_two = "\n".join(str(told.value).splitlines()[:2])
    assert f"Cannot read offsets 0 to 10 (exclusive) of {topic}-0" in first_two
    assert "offset 0 is not in the log, which holds 5 to 10" in first_two


def test_columns_of_somebody_elses_choice_are_refused(spark: SparkSession, server: ServerProcess) -> None:
    frame = spark.read.format("penstock").option("kafka.bootstrap.servers", server.bootstrap).schema("id INT")

    with pytest.raises(AnalysisException, match="Kafka source has a fixed schema"):
        frame.option("subscribe", "x").load().count()


# Streams


def test_started_at_the_latest_and_stopped_before_the_first_commit_nothing_is_lost(
    spark: SparkSession, server: ServerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    write(server.bootstrap, topic, 100)

    def crash(batch_id: int) -> None:
        write(server.bootstrap, topic, 7)
        raise RuntimeError("pulled the plug")

    # The plug is pulled inside the first micro-batch that is planned, which is after its end was written down.
    stream = stream_of(spark, server, topic)
    with pytest.raises(StreamingQueryException, match="pulled the plug"):
        run(stream, tmp_path / "checkpoint", during=crash)
    write(server.bootstrap, topic, 3, partition=1)
    with pytest.raises(StreamingQueryException, match="pulled the plug"):
        run(stream, tmp_path / "checkpoint", during=crash)

    rows = run(stream, tmp_path / "checkpoint")

    assert flat(rows) == [(0, offset) for offset in range(100, 114)] + [(1, offset) for offset in range(3)]


@pytest.mark.long
def test_progress_and_lag_are_reported(
    spark: SparkSession, server: ServerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    write(server.bootstrap, topic, 60)
    write(server.bootstrap, topic, 30, partition=1)
    lags: list[tuple[int, int, int, int]] = []
    listener = LagListener(lambda lag: lags.append((lag.batch_id, lag.smallest, lag.largest, lag.total)))
    spark.streams.addListener(listener)
    try:
        stream = stream_of(spark, server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="45")
        rows = run(stream, tmp_path / "checkpoint")
        wait_until(lambda: len(lags) == 2)
    finally:
        spark.streams.removeListener(listener)

    assert {batch: len(taken) for batch, taken in rows.items()} == {0: 45, 1: 45}
    assert lags == [(0, 15, 30, 45), (1, 0, 0, 0)]


def test_a_query_goes_on_where_it_stopped(
    spark: SparkSession, server: ServerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    write(server.bootstrap, topic, 40)
    stream = stream_of(spark, server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    second: list[int] = []

    def fail_once(batch_id: int) -> None:
        if batch_id == 2 and not second:
            second.append(batch_id)
            raise RuntimeError("stopped")

    with pytest.raises(StreamingQueryException, match="stopped"):
        run(stream, tmp_path / "checkpoint", during=fail_once)
    write(server.bootstrap, topic, 5)
    rows = run(stream, tmp_path / "checkpoint", during=fail_once)

    assert list(rows) == [2, 3, 4]
    assert rows[2] == [(0, offset) for offset in range(20, 30)], "the same batch again"
    assert flat(rows) == [(0, offset) for offset in range(20, 45)]


# AvailableNow ends, whatever happens meanwhile


@pytest.mark.long
def test_available_now_ends_while_partitions_are_added(
    spark: SparkSession,
    server: ServerProcess,
    admin: AdminClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = new_topic()
    write(server.bootstrap, topic, 30)
    stream = stream_of(spark, server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")

    def add(batch_id: int) -> None:
        if batch_id == 0:
            admin.create_partitions([NewPartitions(topic, 2)])[topic].result(timeout=20)
            wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 2)
            write(server.bootstrap, topic, 8, partition=1)

    assert flat(run(stream, tmp_path / "checkpoint", during=add)) == everything(p0=30)
    assert flat(run(stream, tmp_path / "checkpoint")) == [(1, offset) for offset in range(8)]


@pytest.mark.long
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
def test_available_now_ends_when_a_topic_is_deleted(
    spark: SparkSession,
    server: ServerProcess,
    admin: AdminClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
    again: bool,
) -> None:
    topic, other = new_topic(), new_topic()
    write(server.bootstrap, topic, 30)
    write(server.bootstrap, other, 30)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}

    def delete(batch_id: int) -> None:
        if batch_id == 1:
            admin.delete_topics([topic])[topic].result(timeout=20)
            if again:
                new_topic(name=topic)
                write(server.bootstrap, topic, 50)

    both = f"{topic},{other}"
    with pytest.raises(StreamingQueryException, match="Cannot read offsets 10 to 20") as told:
        run(stream_of(spark, server, both, **options), tmp_path / "checkpoint", during=delete)
    assert 'set the source option "failOnDataLoss" to "false"' in str(told.value)

    lenient = stream_of(spark, server, both, failOnDataLoss="false", **options)
    rows = run(lenient, tmp_path / "checkpoint")
    expected = len(range(10, 30)) + (50 if again else 0)
    assert sum(len(batch) for batch in rows.values()) == expected, "what is left, and the new topic from its beginning"
    assert run(lenient, tmp_path / "checkpoint") == {}


@pytest.mark.long
def test_data_that_is_deleted_while_a_query_stands_still(
    spark: SparkSession,
    server: ServerProcess,
    admin: AdminClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = new_topic()
    write(server.bootstrap, topic, 10)
    options = {"startingOffsets": "earliest"}
    run(stream_of(spark, server, topic, **options), tmp_path / "checkpoint")
    write(server.bootstrap, topic, 10)
    admin.delete_records([Place(topic, 0, 15)])[Place(topic, 0, 15)].result(timeout=20)

    with pytest.raises(StreamingQueryException, match="offset 10 is not in the log, which holds 15 to 20"):
        run(stream_of(spark, server, topic, **options), tmp_path / "checkpoint")
    lenient = stream_of(spark, server, topic, failOnDataLoss="false", **options)
    assert flat(run(lenient, tmp_path / "checkpoint")) == [(0, offset) for offset in range(15, 20)]


@pytest.mark.long
def test_a_checkpoint_of_another_source_is_refused(
    spark: SparkSession, server: ServerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    write(server.bootstrap, topic, 1)
    run(stream_of(spark, server, topic, startingOffsets="earliest"), tmp_path / "checkpoint")
    offsets = tmp_path / "checkpoint" / "offsets" / "0"
    lines = offsets.read_text().splitlines()
    assert json.loads(lines[-1])[topic] == {"0": 1}
    (offsets.parent / ".0.crc").unlink()
    offsets.write_text("\n".join([*lines[:-1], '{"logOffset":0}']))

    with pytest.raises(StreamingQueryException, match="checkpointLocation of its own"):
        run(stream_of(spark, server, topic), tmp_path / "checkpoint")


@pytest.mark.long
def test_a_checkpoint_of_sparks_own_source_is_continued(
    spark: SparkSession, server: ServerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    write(server.bootstrap, topic, 10)
    checkpoint = tmp_path / "checkpoint"
    run(stream_of(spark, server, topic, startingOffsets="earliest"), checkpoint)
    # What Spark's source would have left in its place: its offset, and where it began.
    offsets = checkpoint / "offsets" / "0"
    lines = offsets.read_text().splitlines()
    (offsets.parent / ".0.crc").unlink()
    offsets.write_text("\n".join([*lines[:-1], json.dumps({topic: {"0": 7, "1": 0}})]))
    (checkpoint / "sources" / "0").mkdir(parents=True, exist_ok=True)
    (checkpoint / "sources" / "0" / "0").write_text("\0v1\n" + json.dumps({topic: {"0": 0, "1": 0}}))
    write(server.bootstrap, topic, 3, partition=1)

    rows = run(stream_of(spark, server, topic), checkpoint)

    assert list(rows) == [1]
    assert flat(rows) == [(0, 7), (0, 8), (0, 9), (1, 0), (1, 1), (1, 2)]
    assert run(stream_of(spark, server, topic), checkpoint) == {}
