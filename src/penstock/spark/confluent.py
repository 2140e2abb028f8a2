"""The way through confluent-kafka, for what only librdkafka can do.

It hands out one object per record, so this costs several times as much as Penstock's own reader. The rules are the
same: a range ends by position. librdkafka does not say where it is when nothing is left to hand out (compacted tails,
markers of transactions), but it says where the partition ends, and it hands out the first record behind the range.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its stubs forget it

from penstock.arrow import arrow_schema
from penstock.client import (
    EARLIEST,
    LATEST,
    AuthenticationFailed,
    BrokerError,
    ClientError,
    ConnectionFailed,
    OffsetOutOfRange,
    RangeUnavailable,
    RequestTimedOut,
    TopicPartition,
    TopicRecreated,
    UnknownTopic,
    librdkafka_properties,
)
from penstock.spark.backend import SourcePartition, Topic
from penstock.spark.options import DEFAULT_POLL_TIMEOUT_MS, SourceOptions
from penstock.wire.errors import ErrorCode
from penstock.wire.uuids import ZERO_UUID, parse_uuid

MESSAGES_MAX: Final = 10_000
"""In one record batch."""
TIMEOUT_S: Final = 20.0
DEFAULT_GROUP_ID: Final = "spark-kafka-source"
_POLL_S: Final = 0.5

_BULK: Final = {
    "fetch.message.max.bytes": str(8 * 1024 * 1024),
    "queued.min.messages": "100000",
    "fetch.wait.max.ms": "100",
}
_OURS: Final = {"enable.auto.commit": "false", "auto.offset.reset": "error", "enable.partition.eof": "true"}
_UNKNOWN: Final = (
    KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
)  # fmt: skip
_LOGIN: Final = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
_AWAY: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_LATE: Final = (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT_QUEUE)


class ConfluentBackend:
    """librdkafka's administrative client, as a backend."""

    def __init__(self, options: SourceOptions) -> None:
        try:
            self._admin = AdminClient(_without_consumer_settings(librdkafka_properties(options.properties)))
        except KafkaException as error:
            raise _translated(error.args[0], "read the kafka.* options") from None
        self._isolation = IsolationLevel.READ_COMMITTED if options.read_committed else IsolationLevel.READ_UNCOMMITTED

    def topics(self, names: tuple[str, ...] | None) -> dict[str, Topic]:
        try:
            # Asked for by name, a topic might be created.
            there = self._admin.list_topics(timeout=TIMEOUT_S).topics
            found = [name for name in (there if names is None else names) if name in there]
            if not found:
                return {}
            answers = self._admin.describe_topics(TopicCollection(found), request_timeout=TIMEOUT_S)
            described = {name: answer.result() for name, answer in answers.items()}
        except KafkaException as error:
            raise _translated(error.args[0], "ask for topics") from None
        return {
            name: Topic(
                tuple(sorted(one.id for one in topic.partitions)), _topic_id(str(topic.topic_id)), topic.is_internal
            )
            for name, topic in described.items()
        }

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        asked = {Assignment(*key): _spec(timestamp) for key, timestamp in wanted.items()}
        try:
            answers = self._admin.list_offsets(asked, isolation_level=self._isolation, request_timeout=TIMEOUT_S)
            found = {TopicPartition(key.topic, key.partition): one.result().offset for key, one in answers.items()}
        except KafkaException as error:
            raise _translated(error.args[0], "look up offsets") from None
        return {key: found[key] for key in wanted}

    def close(self) -> None:
        """Nothing to do: librdkafka closes with its last reference."""


class ConfluentReader:
    """Reads ranges with one consumer that it keeps."""

    def __init__(self, options: SourceOptions) -> None:
        properties = _BULK | librdkafka_properties(options.properties) | _OURS
        properties["group.id"] = options.group_id or DEFAULT_GROUP_ID
        try:
            self._consumer = Consumer(properties)
        except KafkaException as error:
            raise _translated(error.args[0], "read the kafka.* options") from None
        self._backend = ConfluentBackend(options)
        self._read_committed = options.read_committed
        self._include_headers = options.include_headers
        self._schema = arrow_schema(options.include_headers)
        self._timeout_s = (options.poll_timeout_ms or DEFAULT_POLL_TIMEOUT_MS) / 1000

    def read(self, part: SourcePartition, start: int) -> Iterator[tuple[Iterable[pa.RecordBatch], int]]:
        position = start
        ended_at: int | None = None
        waited_since_s = time.monotonic()
        self._check_identity(part)
        try:
            self._consumer.assign([Assignment(part.topic, part.partition, start)])
            while position < part.end:
                messages = self._consumer.consume(min(MESSAGES_MAX, part.end - position), _POLL_S)
                records, position, seen_end = self._take(messages, part, position)
                ended_at = seen_end if seen_end is not None else ended_at
                if records:
                    waited_since_s = time.monotonic()
                    yield [self._batch(part, records)], position
                elif time.monotonic() - waited_since_s > self._timeout_s:
                    raise self._nothing_came(part, position, ended_at)
        except KafkaException as error:
            raise _translated(error.args[0], "read", part) from None
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        self._backend.close()
        self._consumer.close()

    def _check_identity(self, part: SourcePartition) -> None:
        """librdkafka reads by name: a topic of another id would be read as if it were the one that was planned."""
        if part.topic_id is None:
            return
        topic = self._backend.topics((part.topic,)).get(part.topic)
        if topic is None:
            raise _unknown(part, "read")
        if topic.topic_id not in (None, part.topic_id):
            raise TopicRecreated(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                "the topic was deleted and created again under the same name",
                topic=part.topic,
                partition=part.partition,
            )

    def _take(
        self, messages: list[Message], part: SourcePartition, position: int
    ) -> tuple[list[Message], int, int | None]:
        """(the records of the range, the position behind them, where the partition ends if it was seen)."""
        records: list[Message] = []
        ended_at: int | None = None
        for message in messages:
            error = message.error()
            offset = message.offset() or 0
            if error is None:
                position = offset + 1
                if offset >= part.end:
                    break
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended_at = offset
                position = part.end if offset >= part.end else position
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                first, last = self._consumer.get_watermark_offsets(Assignment(part.topic, part.partition), TIMEOUT_S)
                raise OffsetOutOfRange(part.topic, part.partition, position, first, last)
            elif error.code() not in (*_AWAY, *_LATE):
                raise _translated(error, "read", part)
        return records, position, ended_at

    def _nothing_came(self, part: SourcePartition, position: int, ended_at: int | None) -> ClientError:
        if ended_at is None:
            # librdkafka takes half a minute to be sure that a topic is not there.
            topic = self._consumer.list_topics(part.topic, TIMEOUT_S).topics.get(part.topic)
            if topic is None or topic.error is not None or part.partition not in topic.partitions:
                return _unknown(part, "read")
            return RequestTimedOut(
                f"nothing came of {part.topic}-{part.partition} from offset {position} on within "
                f"{self._timeout_s:g} s (kafkaConsumer.pollTimeoutMs)"
            )
        # The end of what is committed; the log's own end came with it.
        _, high_watermark = self._consumer.get_watermark_offsets(Assignment(part.topic, part.partition), cached=True)
        held_back = self._read_committed and high_watermark >= part.end
        return RangeUnavailable(part.topic, part.partition, position, part.end, ended_at, open_transaction=held_back)

    def _batch(self, part: SourcePartition, messages: list[Message]) -> pa.RecordBatch:
        count = len(messages)
        stamps = [message.timestamp() for message in messages]
        columns = [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.repeat(pa.scalar(part.topic, pa.string()), count),
            pa.repeat(pa.scalar(part.partition, pa.int32()), count),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([1000 * stamp for _, stamp in stamps], pa.int64()).cast(self._schema.field("timestamp").type),
            pa.array([_timestamp_type(kind) for kind, _ in stamps], pa.int32()),
        ]
        if self._include_headers:
            headers = [message.headers() for message in messages]
            rows = [None if not one else [_header(*pair) for pair in one] for one in headers]
            columns.append(pa.array(rows, self._schema.field("headers").type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _header(key: str, value: str | bytes | None) -> dict[str, str | bytes | None]:
    return {"key": key, "value": value}


def _timestamp_type(kind: int) -> int:
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return -1
    return 1 if kind == TIMESTAMP_LOG_APPEND_TIME else 0


def _spec(timestamp: int) -> OffsetSpec:
    spec: OffsetSpec
    if timestamp == LATEST:
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    elif timestamp == EARLIEST:
        spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    else:
        spec = OffsetSpec.for_timestamp(timestamp)
    return spec


def _topic_id(text: str) -> str | None:
    """As Kafka writes ids: librdkafka takes the other alphabet of base64."""
    kafkas = text.replace("+", "-").replace("/", "_")
    return None if not text or parse_uuid(kafkas) == ZERO_UUID else kafkas


def _without_consumer_settings(properties: Mapping[str, str]) -> dict[str, str | int | float | bool]:
    """librdkafka's clients refuse, or complain about, settings of the other kinds."""
    consumer = ("group.", "fetch.", "isolation.", "check.crcs", "queued.", "session.", "heartbeat.", "max.poll.")
    return {name: value for name, value in properties.items() if not name.startswith(consumer)}


def _unknown(part: SourcePartition | None, doing: str) -> UnknownTopic:
    topic, partition = (part.topic, part.partition) if part is not None else (None, None)
    return UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic, partition=partition, doing=doing)


def _translated(error: KafkaError, doing: str, part: SourcePartition | None = None) -> ClientError:
    """librdkafka's errors as ours: whoever handles them need not know who was asked."""
    where = "" if part is None else f"{part.topic}-{part.partition}: "
    said = f"{doing}: {where}{error.str()}"
    if error.code() in _UNKNOWN:
        return _unknown(part, doing)
    if error.code() in _LOGIN:
        return AuthenticationFailed(said)
    if error.code() in _AWAY:
        return ConnectionFailed(said)
    if error.code() in _LATE:
        return RequestTimedOut(said)
    return BrokerError(error.code(), said) if error.code() > 0 else ClientError(said)
