"""The writer's tasks and their producers, without Spark and without a broker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.spark import sink
from penstock.spark.producing import Deliveries, RecordColumns
from penstock.spark.sink import IDLE_S_MAX, PRODUCERS_MAX, Kept, Producers, WriteFailed, WriteTask, batch_writer
from penstock.spark.sink_options import SinkOptions
from support.server_process import free_ports

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"}
SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
ROWS = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": [b"1", b"2"]})


class FakeProducer:
    """Takes everything; can be told to fail what it took."""

    def __init__(self, deliveries: Deliveries, fails: bool = False) -> None:
        self.taken: list[tuple[object, ...]] = []
        self.purged = False
        self._deliveries = deliveries
        self._fails = fails

    def produce(self, topic: str, value: object = None, key: object = None, partition: int = -1) -> None:
        self.taken.append((topic, key, value))

    def poll(self, timeout: float = -1) -> int:
        return 0

    def flush(self, timeout: float = -1) -> int:
        if self._fails and not self.purged:
            self._deliveries(KafkaError(KafkaError._MSG_TIMED_OUT), None)
        return 0

    def purge(self) -> None:
        self.purged = True


class Opened:
    """Opens producers and remembers them."""

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.fails = False

    def __call__(self, options: SinkOptions) -> Kept:
        deliveries = Deliveries()
        self.kept.append(Kept(FakeProducer(deliveries, self.fails), deliveries))  # type: ignore[arg-type]
        return self.kept[-1]

    @property
    def purged(self) -> list[bool]:
        return [one.producer.purged for one in self.kept]  # type: ignore[attr-defined]


def task(**properties: str) -> WriteTask:
    given = {f"kafka.{name}": value for name, value in properties.items()}
    return WriteTask(SinkOptions.parse({**OPTIONS, **given}), RecordColumns.of(SCHEMA, topic="orders"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    opening = Opened()
    monkeypatch.setattr(sink, "producers", Producers(opening))
    return opening


def test_a_worker_keeps_its_producer_for_the_next_task(opened: Opened) -> None:
    assert task().run(iter([ROWS, ROWS])).record_count == 4
    assert task().run(iter([ROWS])).record_count == 2
    assert len(opened.kept) == 1
    assert opened.purged == [False]


def test_tasks_with_other_settings_have_another_producer(opened: Opened) -> None:
    for acks in ("all", "1", "all"):
        task(acks=acks).run(iter([ROWS]))
    assert len(opened.kept) == 2


def test_a_producer_that_failed_is_thrown_away_with_what_it_holds(opened: Opened) -> None:
    opened.fails = True
    with pytest.raises(WriteFailed, match="topic"):
        task().run(iter([ROWS]))
    opened.fails = False
    task().run(iter([ROWS]))
    assert opened.purged == [True, False]


def test_rows_that_fail_to_arrive_from_spark_leave_nothing_behind(opened: Opened) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield ROWS
        raise OSError("the executor is gone")

    with pytest.raises(OSError, match="gone"):
        task().run(broken())
    assert opened.purged == [True]


def test_few_producers_wait_and_none_for_long() -> None:
    now_s, opening = [0.0], Opened()
    producers = Producers(opening, lambda: now_s[0])
    options = [SinkOptions(None, {"bootstrap.servers": str(number)}) for number in range(PRODUCERS_MAX + 1)]
    for one in options:
        producers.keep(one, producers.take(one))
    assert opening.purged == [True] + [False] * PRODUCERS_MAX
    now_s[0] = IDLE_S_MAX + 1
    producers.take(options[0])
    assert opening.purged == [True] * (PRODUCERS_MAX + 1) + [False]


def test_the_writer_travels_to_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "ensure_reachable", lambda _: None)
    writer = batch_writer(OPTIONS, SCHEMA, overwrite=False)
    assert pickle.loads(pickle.dumps(writer))._task == writer._task


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(WriteFailed, match=r"Save mode Overwrite not allowed .*append"):
        batch_writer(OPTIONS, SCHEMA, overwrite=True)


def test_rows_that_are_no_records_are_refused_before_anybody_is_asked() -> None:
    with pytest.raises(WriteFailed, match="Required attribute 'value' not found"):
        batch_writer(OPTIONS, StructType([StructField("name", StringType())]), overwrite=False)


def test_a_cluster_that_is_not_there_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.cluster.FIRST_CONTACT_TIMEOUT_S", 0.1)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(WriteFailed, match=f"cannot write to {address}"):
        batch_writer({**OPTIONS, "kafka.bootstrap.servers": address}, SCHEMA, overwrite=False)
