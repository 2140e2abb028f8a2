"""Built-in pipelines between real topics and tables."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.pipeline.builtin import ReplayError, archive_topic, replay, replaying, top_k, topic_as_table
from penstock.pipeline.builtin.replay_plan import Order, PlanFile, ReplayPlan
from penstock.pipeline.builtin.replaying import HEADER, ReplayTask
from support.apache_kafka import ApacheKafka, available
from support.waiting import wait_until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# A timeout in the middle of a call to Spark would leave the session that all tests share out of step.
pytestmark = pytest.mark.timeout(600)

EIGHT_MS = 1_767_600_000_000
MINUTE_MS = 60_000
PARTITIONS = 2


class Copy(NamedTuple):
    """A record as it should arrive."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def create(broker: str, *topics: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    # Records here are older than any retention.
    new = [NewTopic(topic, partitions, 1, config={"retention.ms": "-1"}) for topic in topics]
    for future in admin.create_topics(new).values():
        future.result(20)


def fill(broker: str, topic: str, count: int = 40) -> list[Copy]:
    """A record a minute from eight o'clock on, in turns to each partition; some without a key, some without a value."""
    producer = Producer({"bootstrap.servers": broker})
    sent = []
    for number in range(count):
        copy = Copy(
            number % PARTITIONS,
            None if number % 10 == 7 else f"k{number % 5}".encode(),
            None if number % 10 == 3 else f"v{number}".encode(),
            EIGHT_MS + number * MINUTE_MS,
            (("n", str(number).encode()), ("none", None)) if number % 3 == 0 else (),
        )
        producer.produce(
            topic, copy.value, copy.key, copy.partition, headers=list(copy.headers), timestamp=copy.timestamp_ms
        )
        sent.append(copy)
    assert producer.flush(20) == 0
    return sent


def read(broker: str, topic: str) -> list[Copy]:
    """Everything a topic holds, without the header that a replay adds."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "reader", "enable.partition.eof": True})
    try:
        count = len(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(count)])
        found: list[Copy] = []
        while count:
            message = consumer.poll(20)
            assert message is not None, "the topic does not end"
            if message.error() is not None:
                count -= 1
                continue
            headers: Any = tuple(pair for pair in message.headers() or [] if pair[0] != HEADER)
            partition: Any = message.partition()
            found.append(Copy(partition, message.key(), message.value(), message.timestamp()[1], headers))
        return found
    finally:
        consumer.close()


def by_time(copies: list[Copy]) -> list[Copy]:
    return sorted(copies, key=lambda copy: copy.timestamp_ms)


@pytest.mark.long
def test_a_replay_keeps_everything_and_only_its_range(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path
) -> None:
    create(broker, topic, f"{topic}.again")
    sent = fill(broker, topic)
    done = replay(
        spark, broker, topic, f"{topic}.again", start="2026-01-05T08:10Z", end="2026-01-05T08:30Z",
        progress=tmp_path / "plan.json", keep_partitions=True, records_per_chunk=12,
    )  # fmt: skip
    assert done.records == 20
    assert by_time(read(broker, f"{topic}.again")) == sent[10:30]
    # Run again, it has nothing to do.
    again = replay(
        spark, broker, topic, f"{topic}.again", start="2026-01-05T08:10Z", end="2026-01-05T08:30Z",
        progress=tmp_path / "plan.json", keep_partitions=True,
    )  # fmt: skip
    assert again == done
    assert len(read(broker, f"{topic}.again")) == 20


@pytest.mark.long
def test_a_replay_that_was_stopped_in_the_middle_of_a_chunk_writes_the_rest_and_nothing_twice(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}.again"
    create(broker, topic, target)
    sent = fill(broker, topic)
    # As a crash leaves it: the chunk is noted, some of its records were written, among others of other writers.
    order = Order(topic, target, -2, -1, keep_partitions=True, keep_timestamps=True, trace=True)
    plan = ReplayPlan.new(order, {0: 0, 1: 0}, {0: 20, 1: 20}).next_chunk(24, {0: 0, 1: 0})
    PlanFile(tmp_path / "plan.json").save(plan)
    producer = Producer({"bootstrap.servers": broker})
    for offset in (0, 1, 2, 5):
        copy = sent[offset * 2]
        headers: Any = [*copy.headers, (HEADER, f"{plan.replay_id}/0/{offset}".encode())]
        producer.produce(target, copy.value, copy.key, 0, headers=headers, timestamp=copy.timestamp_ms)
    producer.produce(target, b"another writer", b"x", 1, headers=[(HEADER, b"other/1/3")], timestamp=EIGHT_MS - 1)
    producer.flush(20)
    steps: list[int] = []
    done = replay(
        spark, broker, topic, target, progress=tmp_path / "plan.json", keep_partitions=True, records_per_chunk=24,
        on_chunk=lambda plan: steps.append(plan.written),
    )  # fmt: skip
    assert done.records == 40
    assert steps == [24, 40]
    assert by_time(read(broker, target))[1:] == sent


LEASE_S = 75
"""Shorter than that of a user, who has more time."""


@pytest.mark.long
def test_what_a_task_still_writes_when_another_one_has_failed_is_not_written_again(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends other tasks of a failed job in its own time. This one writes as soon as the target is looked at."""
    target = f"{topic}.again"
    create(broker, topic, target)
    sent = fill(broker, topic)
    begun, alive, failed, looked = (tmp_path / name for name in ("begun", "alive", "failed", "looked"))

    def wait_for(file: Path) -> None:
        while not file.exists():
            time.sleep(0.01)

    class FailsOnce(ReplayTask):
        """Of partition 1, while that of partition 0 has its records before it."""

        def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            first = next(batches, None)
            if first is None:
                return
            if first.column(0)[0].as_py() == 1 and not failed.exists():
                begun.touch()
                wait_for(alive)
                failed.touch()
                raise RuntimeError("this task fails, once")

            def watched() -> Iterator[pa.RecordBatch]:
                wait_for(begun)
                if not failed.exists():
                    alive.touch()
                    wait_for(looked)
                yield from itertools.chain([first], batches)

            yield from ReplayTask.run(self, watched())

    look = replaying._Job._look

    def looking(*arguments: Any) -> set[tuple[int, int]]:
        found = look(*arguments)
        looked.touch()
        return found

    monkeypatch.setattr(replaying._Job, "_look", staticmethod(looking))
    monkeypatch.setattr(replaying, "ReplayTask", FailsOnce)
    monkeypatch.setattr(replaying, "LEASE_S", LEASE_S)
    done = replay(spark, broker, topic, target, progress=tmp_path / "plan.json", keep_partitions=True)
    assert failed.exists()
    assert by_time(read(broker, target)) == sent
    assert done.records == len(sent)


@pytest.mark.long
def test_a_replay_that_was_killed_goes_on_and_writes_nothing_twice(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path
) -> None:
    """Driver and JVM are killed; the Python workers find out by themselves, a little later."""
    target = f"{topic}.again"
    create(broker, topic, target)
    sent = fill(broker, topic, 6000)
    settings = {
        "broker": broker, "source": topic, "target": target, "progress": str(tmp_path / "plan.json"),
        "keep_partitions": True, "lease_s": LEASE_S,
        "target_properties": {"queue.buffering.max.messages": "10", "linger.ms": "20"},  # some hundred a second
    }  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("replay_process.py")), json.dumps(settings)],
            stdout=output, stderr=output, env=environment, start_new_session=True,
        )  # fmt: skip
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "watcher"})

    def written() -> int:
        assert process.poll() is None, (tmp_path / "output").read_text()
        return sum(consumer.get_watermark_offsets(TopicPartition(target, number), 20)[1] for number in range(2))

    try:
        wait_until(lambda: written() > 200, timeout_s=300)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        consumer.close()
    before = len(read(broker, target))
    assert before < len(sent)
    done = replay(spark, broker, topic, target, progress=tmp_path / "plan.json", keep_partitions=True)
    assert by_time(read(broker, target)) == sent
    assert done.records == len(sent)


def test_a_replay_without_a_target_says_how_to_make_one(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path
) -> None:
    create(broker, topic)
    with pytest.raises(ReplayError, match=rf"penstock topics create {topic}.again --partitions 2"):
        replay(spark, broker, topic, f"{topic}.again", progress=tmp_path / "plan.json")
    create(broker, f"{topic}.small", partitions=1)
    with pytest.raises(ReplayError, match="has 1 partitions and"):
        replay(spark, broker, topic, f"{topic}.small", progress=tmp_path / "plan.json", keep_partitions=True)


def test_an_archive_holds_every_record_once_and_goes_on_where_it_stopped(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path
) -> None:
    from penstock.pipeline import read_table

    create(broker, topic)
    sent = fill(broker, topic, 30)
    for _ in range(2):
        query = archive_topic(
            spark, broker, topic, str(tmp_path / "lake"), checkpoint=str(tmp_path / "checkpoint"), once=True
        )
        assert query.awaitTermination(300)
    table = read_table(spark, tmp_path / "lake")
    rows = table.selectExpr(
        "partition", "key", "value", "unix_millis(timestamp) AS time_ms", "headers", "offset", "date"
    ).collect()
    found = [
        Copy(
            row.partition,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.time_ms,
            tuple((header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ()),
        )
        for row in rows
    ]
    assert by_time(found) == sent
    assert {str(row.date) for row in rows} == {"2026-01-05"}


class Options(dict[str, str]):
    """A session as far as its options: they are noted, and nothing is read."""

    class Loaded(Exception):
        pass

    @property
    def read(self) -> Self:
        return self

    readStream = read

    def format(self, name: str) -> Self:
        return self

    def option(self, name: str, value: str) -> Self:
        self[name] = value
        return self

    def load(self) -> None:
        raise self.Loaded


@pytest.mark.parametrize("given", [None, "read_uncommitted"])
def test_records_count_when_they_are_committed_unless_others_are_asked_for(given: str | None) -> None:
    properties = {} if given is None else {"isolation.level": given}
    for start in (
        lambda session: archive_topic(session, "b:1", "t", "lake", checkpoint="c", properties=properties),
        lambda session: topic_as_table(session, "b:1", "t", "name STRING", properties=properties),
    ):
        options = Options()
        with pytest.raises(Options.Loaded):
            start(options)
        assert options["kafka.bootstrap.servers"] == "b:1"
        assert options["kafka.isolation.level"] == (given or "read_committed")


@pytest.mark.long
@pytest.mark.needs_maven
def test_what_was_aborted_is_in_no_archive_and_in_no_table(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    from penstock.pipeline import read_table

    if reason := available():
        pytest.skip(reason)
    with ApacheKafka(heap="512M") as kafka:
        broker = kafka.bootstrap
        create(broker, topic)
        producer = Producer({"bootstrap.servers": broker, "transactional.id": topic})
        producer.init_transactions(30)
        for name, end in (("kept", producer.commit_transaction), ("aborted", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(topic, json.dumps({"name": name}), "key")
            assert producer.flush(20) == 0
            end(30)
        query = archive_topic(
            spark, broker, topic, str(tmp_path / "lake"), checkpoint=str(tmp_path / "checkpoint"), once=True
        )
        assert query.awaitTermination(300)
        assert [bytes(row.value) for row in read_table(spark, tmp_path / "lake").collect()] == [b'{"name": "kept"}']
        assert [row.name for row in topic_as_table(spark, broker, topic, "name STRING").collect()] == ["kept"]


@pytest.mark.long
def test_a_stream_of_best_sellers_comes_out_window_by_window(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path
) -> None:
    create(broker, topic, partitions=1)
    producer = Producer({"bootstrap.servers": broker})

    def run(minutes: list[tuple[int, str]]) -> list[tuple[int, int, str, int]]:
        for minute, product in minutes:
            producer.produce(topic, json.dumps({"p": product, "t": (EIGHT_MS + minute * MINUTE_MS) / 1000}))
        producer.flush(20)
        records = (
            spark.readStream.format("penstock").option("kafka.bootstrap.servers", broker)
            .option("subscribe", topic).option("startingOffsets", "earliest").load()
        )  # fmt: skip
        events = records.selectExpr("from_json(CAST(value AS STRING), 'p STRING, t DOUBLE') AS e").selectExpr(
            "e.p AS product", "timestamp_seconds(e.t) AS at"
        )
        best = top_k(events, 2, item="product", time="at", window="1 hour", watermark="10 minutes")
        name = f"best_{topic}"
        query = (
            best.writeStream.format("memory").queryName(name).outputMode("append")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(300)
        rows = spark.table(name).orderBy("window_start", "rank").collect()
        return [
            (int(row.window_start.timestamp() * 1000 - EIGHT_MS) // MINUTE_MS, row.rank, row.product, row["count"])
            for row in rows
        ]

    found = run([(1, "pan"), (2, "pan"), (3, "knife"), (4, "bowl"), (75, "knife"), (76, "apron")])
    assert found == [(0, 1, "pan", 2), (0, 2, "bowl", 1)], "the second hour is not over"


def test_a_compacted_topic_is_a_table(spark: SparkSession, broker: str, topic: str) -> None:
    create(broker, topic)
    producer = Producer({"bootstrap.servers": broker})
    for key, value in (("a", '{"name": "old"}'), ("a", '{"name": "new"}'), ("b", '{"name": "gone"}'), ("b", None)):
        producer.produce(topic, value, key)
    producer.flush(20)
    rows = topic_as_table(spark, broker, topic, "name STRING").collect()
    assert [(row.key, row.name) for row in rows] == [("a", "new")]
