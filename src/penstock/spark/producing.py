"""Rows of a DataFrame → records of topics, through one librdkafka producer. Both sinks write with this module.

    columns = RecordColumns.of(frame.schema, topic="orders")
    deliveries = Deliveries()
    sender = RecordSender(open_producer({"bootstrap.servers": "localhost:9092"}, deliveries), columns, deliveries)
    for batch in batches:           # pyarrow.RecordBatch
        sender.send(batch)
    sender.flush()                  # raises DeliveryFailed for what did not arrive

Columns are those of Spark's Kafka sink: `value` must be there, `key`, `topic`, `partition` and `headers` may be; a
topic that is given to `RecordColumns` overrides the column. What Spark refuses is refused in Spark's words.

Keys are placed by `murmur2_random`, as Kafka's Java producer places them, so that Java and Python writers of one topic
agree on where a key lives. Delivery is asynchronous and failures are collected: only the first is kept, and the number
of the others, because a broker that refuses one record of a batch often refuses a hundred thousand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.client import librdkafka_properties

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
COLUMN_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
}

PRODUCER_DEFAULTS: Final[Mapping[str, str]] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": "true",
    # A flush does not linger, so this costs no time at the end of a batch, and it fills requests within one.
    "linger.ms": "20",
    "batch.size": str(1024 * 1024),
    # librdkafka would keep up to a gigabyte; several tasks share an executor, and a full queue only makes them wait.
    "queue.buffering.max.kbytes": str(64 * 1024),
    "queue.buffering.max.messages": "500000",
}
"""What a producer has unless the user says otherwise."""

ANY_PARTITION: Final = -1
QUEUE_FULL_WAIT_S: Final = 0.05
FLUSH_STEP_S: Final = 1.0
MUTE_CALLS_MAX: Final = 5
"""So often a call is made that fails and does not say why."""

R = TypeVar("R")

Header = tuple[str, str | bytes | None]
Payload = bytes | str | None


class SinkError(Exception):
    """What a sink refuses or cannot do; the message names the thing and the fix."""


class BadColumns(SinkError):
    """The rows are not records: a column is missing or has the wrong type."""


class BadRow(SinkError):
    """One row cannot be a record."""


class DeliveryFailed(SinkError):
    """Records did not reach their topic."""

    code: int | None = None
    """librdkafka's code of the first failure."""

    @classmethod
    def of(cls, text: str, error: KafkaError) -> Self:
        failed = cls(text)
        failed.code = error.code()
        return failed


class ProducerLike(Protocol):
    """The part of confluent-kafka's Producer that is used here."""

    def produce(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        partition: int = ANY_PARTITION,
        *,
        headers: list[Header] | None = None,
    ) -> None: ...

    def poll(self, timeout: float = -1) -> int: ...

    def flush(self, timeout: float = -1) -> int: ...


@dataclass(frozen=True)
class RecordColumns:
    """Where in a row each part of a record is; None for a part that the rows do not have."""

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None
    fixed_topic: str | None = None

    @classmethod
    def of(cls, schema: StructType, *, topic: str | None = None) -> Self:
        """The columns of rows with this schema; `topic` overrides that column. BadColumns says what is wrong."""
        found: dict[str, int] = {}
        for index, field in enumerate(schema.fields):
            types = COLUMN_TYPES.get(field.name)
            if types is None:
                continue
            if field.name in found:
                raise BadColumns(f"column '{field.name}' is there twice: select each column once")
            if field.dataType.simpleString() not in types:
                raise BadColumns(
                    f"{field.name} attribute type must be a {' or '.join(types)}, not {field.dataType.simpleString()}: "
                    f"cast the column, e.g. CAST({field.name} AS {types[-1].upper()})"
                )
            found[field.name] = index
        if "value" not in found:
            names = ", ".join(schema.names) or "none"
            raise BadColumns(f"Required attribute 'value' not found: name a column `value` (the columns are {names})")
        if topic is None and "topic" not in found:
            raise BadColumns(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
        if topic is not None:
            found.pop("topic", None)
        return cls(**found, fixed_topic=topic)


class Deliveries:
    """What became of the records: librdkafka calls it with each failure, and the sender asks it now and then."""

    def __init__(self) -> None:
        self.failed_count = 0
        self.first: str | None = None
        self.first_error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            return
        self.failed_count += 1
        if self.first is None:
            self.first_error = error
            topic, partition = _where(message)
            self.first = f"topic {topic} partition {partition}: {_reason(error)}"

    def reset(self) -> None:
        """Forgets the failures, before the records are sent again."""
        self.failed_count = 0
        self.first = None
        self.first_error = None

    def check(self) -> None:
        """Raises DeliveryFailed if any record failed."""
        if self.first_error is not None:
            others = "" if self.failed_count == 1 else f" (and {self.failed_count - 1} more records)"
            raise DeliveryFailed.of(f"{self.first}{others}", self.first_error)


class RecordSender:
    """Hands rows to a producer, and waits where its queue is full: memory stays bounded by the producer's settings."""

    def __init__(self, producer: ProducerLike, columns: RecordColumns, deliveries: Deliveries) -> None:
        self._producer = producer
        self._columns = columns
        self._deliveries = deliveries
        self.sent_count = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Every row of an Arrow batch, in order. Delivery is known only after `flush`."""
        columns = self._columns
        values = batch.column(columns.value).to_pylist()
        count = len(values)
        nothing: Sequence[None] = (None,) * count

        def cells(index: int | None) -> Sequence[object]:
            return nothing if index is None else batch.column(index).to_pylist()

        if columns.topic is columns.partition is columns.headers is None:
            assert columns.fixed_topic is not None
            self._send_plain(columns.fixed_topic, cells(columns.key), values)
        else:
            topics = [columns.fixed_topic] * count if columns.topic is None else cells(columns.topic)
            partitions, headers = cells(columns.partition), cells(columns.headers)
            self._send_records(zip(topics, cells(columns.key), values, partitions, headers, strict=True))
        self._look(lambda: self._producer.poll(0))
        self._deliveries.check()

    def flush(self) -> None:
        """Waits until every record is delivered or has failed; raises DeliveryFailed for those that failed.

        It ends: each record that cannot be delivered fails after `delivery.timeout.ms`.
        """
        while self._look(lambda: self._producer.flush(FLUSH_STEP_S)):
            self._deliveries.check()
        self._deliveries.check()

    def _look(self, call: Callable[[], int]) -> int:
        """A call that tells what happened meanwhile; the first of them tells what ended the producer, too."""
        try:
            return telling(call)
        except (KafkaException, SystemError) as error:
            told = told_by_librdkafka(error)
            if told is None:
                raise
            raise DeliveryFailed.of(_reason(told.args[0]), told.args[0]) from told

    def _send_plain(self, topic: str, keys: Sequence[object], values: Sequence[object]) -> None:
        """The common case, without a check per row: nothing in these rows can be wrong."""
        produce = self._producer.produce
        try:
            for key, value in zip(keys, values, strict=True):
                try:
                    produce(topic, value, key)  # type: ignore[arg-type]  # the columns' types were checked
                except (BufferError, KafkaException) as error:
                    self._again(error, topic, key, value, ANY_PARTITION, None)
            self.sent_count += len(values)
        finally:
            del produce  # an error that is kept would keep the producer alive through this frame

    def _send_records(self, records: Iterable[tuple[object, ...]]) -> None:
        for topic, key, value, partition, headers in records:
            if topic is None:
                raise BadRow("null topic present in the data. Use the topic option for setting a topic.")
            partition = ANY_PARTITION if partition is None else partition_number(partition)
            pairs = None if headers is None else header_pairs(headers)
            try:
                if pairs is None:
                    self._producer.produce(topic, value, key, partition)  # type: ignore[arg-type]
                else:
                    self._producer.produce(topic, value, key, partition, headers=pairs)  # type: ignore[arg-type]
            except (BufferError, KafkaException) as error:
                self._again(error, topic, key, value, partition, pairs)
            self.sent_count += 1

    def _again(
        self,
        error: Exception,
        topic: object,
        key: object,
        value: object,
        partition: int,
        headers: list[Header] | None,
    ) -> None:
        """Waits for room in the producer's queue. It does not take forever: records time out."""
        while True:
            refused = isinstance(error, KafkaException)
            wait_s = 0 if refused else QUEUE_FULL_WAIT_S
            self._look(functools.partial(self._producer.poll, wait_s))
            # An earlier record that failed is the cause, where a transaction then refuses all that follow.
            self._deliveries.check()
            if refused:
                raise DeliveryFailed.of(f"topic {topic}: {_reason(error.args[0])}", error.args[0]) from error
            try:
                extra = {} if headers is None else {"headers": headers}
                self._producer.produce(topic, value, key, partition, **extra)  # type: ignore[arg-type]
                return
            except (BufferError, KafkaException) as next_error:
                error = next_error


def told_by_librdkafka(error: BaseException) -> KafkaException | None:
    """The error of librdkafka in one of confluent-kafka; None where there is none.

    A fatal error (fenced, for one) is raised within the call that serves callbacks. Where that call has more of them to
    make, Python finds an error set in the next one, and raises SystemError around it.
    """
    found: BaseException | None = error
    while found is not None and not isinstance(found, KafkaException):
        found = found.__cause__ or found.__context__
    return found


def telling(call: Callable[[], R]) -> R:
    """What a call gives or raises; one that fails without a word is made again, for the next says why.

    It is confluent-kafka that is at a loss for words: the error that one callback left was cleared in another. What
    ended the producer has ended it for the calls that follow, too.
    """
    for _ in range(MUTE_CALLS_MAX - 1):
        try:
            return call()
        except SystemError as error:
            if told_by_librdkafka(error) is not None:
                raise
    return call()


def producer_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """A producer's settings in librdkafka's names, from Java's or librdkafka's, with Penstock's defaults beneath."""
    given = librdkafka_properties(properties)
    if "queue.buffering.max.ms" in given:
        given["linger.ms"] = given.pop("queue.buffering.max.ms")
    return {**PRODUCER_DEFAULTS, **given}


def open_producer(properties: Mapping[str, object], deliveries: Deliveries) -> Producer:
    """A producer that tells `deliveries` of each failure. `properties` are used as they are, over the defaults."""
    settings: dict[str, object] = {
        **producer_properties(properties),
        "on_delivery": deliveries,
        "delivery.report.only.error": True,
    }
    try:
        return Producer(settings)
    except KafkaException as error:
        raise SinkError(f"the producer's settings are refused: {_reason(error.args[0])}") from error


def partition_number(partition: object) -> int:
    """A partition as a row names it; negative ones are refused, as Java's producer does (librdkafka: any partition)."""
    assert isinstance(partition, int)
    if partition < 0:
        raise BadRow(
            f"Invalid partition: {partition}. Partition number should always be non-negative or null (null: by key)."
        )
    return partition


def header_pairs(headers: object) -> list[Header]:
    """Headers as a producer wants them, from an Arrow list of structs with key and value."""
    assert isinstance(headers, list)
    pairs: list[Header] = []
    for header in headers:
        if header is None:
            raise BadRow("a header is null: leave it out, or give it a key and a null value")
        if header["key"] is None:
            raise BadRow("a header has a null key: headers need a name, only their value may be null")
        pairs.append((header["key"], header["value"]))
    return pairs


def _where(message: object) -> tuple[object, object]:
    topic = getattr(message, "topic", None)
    partition = getattr(message, "partition", None)
    return (topic() if callable(topic) else "?"), (partition() if callable(partition) else "?")


_FIXES: Final[Mapping[int, str]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise message.max.bytes here and max.message.bytes of the topic, or send less",
    KafkaError.RECORD_LIST_TOO_LARGE: "lower batch.size here, or raise max.message.bytes of the topic",
    KafkaError._MSG_TIMED_OUT: "no broker took it in time: look at the brokers, or raise delivery.timeout.ms",
    KafkaError._UNKNOWN_PARTITION: "the topic has no such partition: look at the partition column",
    KafkaError._UNKNOWN_TOPIC: "there is no such topic: create it with `penstock topics create`",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "there is no such topic: create it with `penstock topics create`",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this user may not write to the topic",
    KafkaError.TOPIC_EXCEPTION: "that is no name of a topic",
}


def _reason(error: KafkaError) -> str:
    fix = _FIXES.get(error.code())
    text = f"{error.str()} ({error.name()})"
    return f"{text}: {fix}" if fix else text
