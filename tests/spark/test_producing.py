"""Rows → records: what is refused, what a producer is given, and what becomes of failures."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from penstock.spark.producing import (
    MUTE_CALLS_MAX,
    BadColumns,
    BadRow,
    Deliveries,
    DeliveryFailed,
    Header,
    Payload,
    RecordColumns,
    RecordSender,
    SinkError,
    open_producer,
    producer_properties,
)

SPARK_HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Recording:
    """A producer that keeps what it is given, and whose queue is as long as it is told."""

    def __init__(self, room: int = 1000) -> None:
        self.produced: list[tuple[object, ...]] = []
        self.room = room
        self.polls: list[float] = []
        self.refusal: KafkaError | None = None
        self.flushes: list[int] = []
        self.flush_calls = 0
        self.end: Exception | None = None

    def produce(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        partition: int = -1,
        *,
        headers: list[Header] | None = None,
    ) -> None:
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        if self.room == 0:
            raise BufferError
        self.room -= 1
        self.produced.append((topic, value, key, partition, headers))

    def poll(self, timeout: float = -1) -> int:
        self.polls.append(timeout)
        if timeout > 0:
            self.room += 1
        return 0

    def flush(self, timeout: float = -1) -> int:
        self.flush_calls += 1
        if self.end is not None:
            raise self.end
        return self.flushes.pop(0) if self.flushes else 0


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_columns_are_found_wherever_they_stand_and_others_are_left_alone() -> None:
    rows = schema(offset=LongType(), key=StringType(), extra=DateType(), value=BinaryType(), partition=IntegerType())
    assert RecordColumns.of(rows, topic="t") == RecordColumns(value=3, key=1, partition=4, fixed_topic="t")
    headers = schema(value=StringType(), topic=StringType(), headers=SPARK_HEADERS)
    assert RecordColumns.of(headers) == RecordColumns(value=0, topic=1, headers=2)


def test_a_topic_that_is_given_overrides_the_column() -> None:
    assert RecordColumns.of(schema(value=StringType(), topic=StringType()), topic="t").topic is None


@pytest.mark.parametrize(
    ("rows", "topic", "message"),
    [
        (schema(key=StringType()), "t", "Required attribute 'value' not found.*columns are key"),
        (schema(value=StringType()), None, "topic option required when no 'topic' attribute is present"),
        (schema(value=LongType()), "t", "value attribute type must be a string or binary, not bigint.*CAST"),
        (schema(value=StringType(), key=IntegerType()), "t", "key attribute type must be a string or binary"),
        (schema(value=StringType(), topic=BinaryType()), None, "topic attribute type must be a string"),
        (schema(value=StringType(), partition=LongType()), "t", "partition attribute type must be a int, not bigint"),
        (schema(value=StringType(), headers=MapType(StringType(), BinaryType())), "t", "headers attribute type must"),
    ],
)
def test_what_spark_refuses_is_refused_in_its_words(rows: StructType, topic: str | None, message: str) -> None:
    with pytest.raises(BadColumns, match=message):
        RecordColumns.of(rows, topic=topic)


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = StructType().add("value", StringType()).add("value", BinaryType()).add("partition", IntegerType())
    with pytest.raises(BadColumns, match="'value' is there twice"):
        RecordColumns.of(twice, topic="t")


def test_keys_values_and_nulls_reach_the_producer_as_they_are() -> None:
    producer = Recording()
    sender = RecordSender(producer, RecordColumns(value=1, key=0, fixed_topic="t"), Deliveries())
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["k", None, "", "é"]), pa.array([b"v", b"", None, b"w"])], ["key", "value"]
    )
    sender.send(batch)
    sender.flush()
    assert [one[1:3] for one in producer.produced] == [(b"v", "k"), (b"", None), (None, ""), (b"w", "é")]
    assert sender.sent_count == 4


def test_rows_may_name_their_topic_partition_and_headers() -> None:
    producer = Recording()
    sender = RecordSender(producer, RecordColumns(value=0, topic=1, partition=2, headers=3), Deliveries())
    headers = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"a", b"b", b"c"]),
            pa.array(["t", "u", "t"]),
            pa.array([3, None, 0], pa.int32()),
            pa.array(headers, HEADERS),
        ],
        ["value", "topic", "partition", "headers"],
    )
    sender.send(batch)
    assert producer.produced == [
        ("t", b"a", None, 3, [("h", b"1"), ("h", None)]),
        ("u", b"b", None, -1, None),
        ("t", b"c", None, 0, []),
    ]


@pytest.mark.parametrize(
    ("topic", "partition", "headers", "message"),
    [
        (None, None, None, "null topic present in the data"),
        ("t", -1, None, "Invalid partition: -1"),
        ("t", None, [None], "a header is null"),
        ("t", None, [{"key": None, "value": b"x"}], "a header has a null key"),
    ],
)
def test_rows_that_cannot_be_records_are_refused(
    topic: str | None, partition: int | None, headers: object, message: str
) -> None:
    sender = RecordSender(Recording(), RecordColumns(value=0, topic=1, partition=2, headers=3), Deliveries())
    columns = [pa.array([b"v"]), pa.array([topic], pa.string()), pa.array([partition], pa.int32())]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array([headers], HEADERS)], ["v", "t", "p", "h"])
    with pytest.raises(BadRow, match=message):
        sender.send(batch)


def test_a_full_queue_is_waited_for_and_no_record_is_lost_or_sent_twice() -> None:
    producer = Recording(room=2)
    sender = RecordSender(producer, RecordColumns(value=0, fixed_topic="t"), Deliveries())
    sender.send(pa.RecordBatch.from_arrays([pa.array([b"%d" % number for number in range(10)])], ["value"]))
    assert [one[1] for one in producer.produced] == [b"%d" % number for number in range(10)]
    assert sum(timeout > 0 for timeout in producer.polls) == 8


def test_flush_waits_until_nothing_is_left() -> None:
    producer = Recording()
    producer.flushes = [3, 1, 0, 99]
    RecordSender(producer, RecordColumns(value=0, fixed_topic="t"), Deliveries()).flush()
    assert producer.flushes == [99]


def test_an_error_that_ends_the_producer_is_a_failure_however_it_is_raised() -> None:
    producer = Recording()
    sender = RecordSender(producer, RecordColumns(value=0, fixed_topic="t"), Deliveries())
    producer.end = KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", True))
    with pytest.raises(DeliveryFailed, match="fenced by a newer instance") as failed:
        sender.flush()
    assert failed.value.code == KafkaError._FENCED
    wrapped = SystemError("returned a result with an exception set")
    wrapped.__cause__, producer.end = producer.end, wrapped
    with pytest.raises(DeliveryFailed, match="fenced by a newer instance"):
        sender.flush()
    producer.end, producer.flush_calls = SystemError("of another kind"), 0
    with pytest.raises(SystemError, match="of another kind"):
        sender.flush()
    assert producer.flush_calls == MUTE_CALLS_MAX, "asked again, but not forever"


def test_the_first_failure_is_told_with_its_fix_and_the_others_are_counted() -> None:
    deliveries = Deliveries()
    sender = RecordSender(Recording(), RecordColumns(value=0, fixed_topic="t"), deliveries)
    deliveries(None, None)
    sender.flush()
    for code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._MSG_TIMED_OUT, KafkaError._MSG_TIMED_OUT):
        deliveries(KafkaError(code), None)
    with pytest.raises(DeliveryFailed, match=r"MSG_SIZE_TOO_LARGE.*raise message\.max\.bytes.*and 2 more") as failed:
        sender.flush()
    assert failed.value.code == KafkaError.MSG_SIZE_TOO_LARGE
    deliveries.reset()
    sender.flush()


def test_a_record_that_the_producer_refuses_at_once_fails_too() -> None:
    producer = Recording()
    producer.refusal = KafkaError(KafkaError._UNKNOWN_PARTITION)
    sender = RecordSender(producer, RecordColumns(value=0, fixed_topic="t"), Deliveries())
    with pytest.raises(DeliveryFailed, match=r"topic t: .*look at the partition column") as failed:
        sender.send(pa.RecordBatch.from_arrays([pa.array([b"v"])], ["value"]))
    assert failed.value.code == KafkaError._UNKNOWN_PARTITION


def test_an_earlier_failure_is_told_rather_than_the_refusal_that_follows_from_it() -> None:
    producer, deliveries = Recording(), Deliveries()
    producer.refusal = KafkaError(KafkaError._STATE)
    deliveries(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None)
    sender = RecordSender(producer, RecordColumns(value=0, fixed_topic="t"), deliveries)
    with pytest.raises(DeliveryFailed, match="may not write"):
        sender.send(pa.RecordBatch.from_arrays([pa.array([b"v"])], ["value"]))


def test_producers_are_idempotent_and_place_keys_as_java_does_unless_told_otherwise() -> None:
    settings = producer_properties({"bootstrap.servers": "localhost:1", "linger.ms": "0"})
    assert settings["partitioner"] == "murmur2_random"
    assert settings["enable.idempotence"] == "true"
    assert settings["linger.ms"] == "0"
    assert producer_properties({"queue.buffering.max.ms": "7"})["linger.ms"] == "7"
    assert producer_properties({"partitioner": "random"})["partitioner"] == "random"


def test_settings_that_librdkafka_refuses_are_told() -> None:
    with pytest.raises(SinkError, match=r"settings are refused: .*no\.such\.thing"):
        open_producer({"bootstrap.servers": "localhost:1", "no.such.thing": "1"}, Deliveries())
