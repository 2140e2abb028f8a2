"""Shortcuts to create topics and to send and read records, used by `Cluster`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

__all__ = ["Outgoing", "Record", "RecordClient"]

REQUEST_TIMEOUT_S = 30.0
ATTEMPT_TIMEOUT_S = 3.0
AWAY = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER)
POLL_S = 0.1
FETCH_RECORDS = 500

Text = str | bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record to send, or as it was read. Partition and offset are unknown before it is sent."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    topic: str = ""
    partition: int | None = None
    offset: int | None = field(default=None, compare=False)


Outgoing = Text | tuple[Text, Text] | Record


class RecordClient:
    """Opens a new client per call: a lasting one would remember nodes that the test has killed since."""

    def __init__(self, settings: Callable[..., dict[str, Any]]) -> None:
        self._settings = settings

    def create_topic(self, name: str, partitions: int, copies: int, config: dict[str, str]) -> None:
        deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
        asked = 0
        while True:
            admin = AdminClient(self._settings())
            asked += 1
            topic = NewTopic(name, partitions, copies, config=config)
            future = admin.create_topics([topic], request_timeout=ATTEMPT_TIMEOUT_S)[name]
            try:
                future.result(2 * ATTEMPT_TIMEOUT_S)
            except KafkaException as error:
                reason = error.args[0].code()
                if reason == KafkaError.TOPIC_ALREADY_EXISTS and asked > 1:
                    return  # created by the previous request, whose response was lost
                # The node that was asked has died: ask the current controller.
                if reason not in AWAY or time.monotonic() > deadline_s:
                    raise
                continue
            return

    def produce(self, topic: str, records: Iterable[Outgoing], settings: Mapping[str, object]) -> list[Record]:
        # Java's partitioner, so that keys go to the partitions where the application's other producers put them.
        producer = Producer(self._settings(**{"partitioner": "murmur2_random", "linger_ms": 0, **settings}))
        placed: dict[int, Message] = {}
        failed: list[KafkaError] = []

        def report(number: int) -> Callable[[KafkaError | None, Message], None]:
            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failed.append(error)
                placed[number] = message

            return delivered

        sent = [_record(given) for given in records]
        for number, record in enumerate(sent):
            options: dict[str, Any] = {"on_delivery": report(number), "headers": list(record.headers) or None}
            if record.partition is not None:
                options["partition"] = record.partition
            if record.timestamp_ms is not None:
                options["timestamp"] = record.timestamp_ms
            while True:
                try:
                    producer.produce(topic, record.value, record.key, **options)
                    break
                except BufferError:
                    producer.poll(POLL_S)
        producer.flush()
        if failed:
            raise KafkaException(failed[0])
        return [_placed(record, placed[number]) for number, record in enumerate(sent)]

    def consume(self, topic: str, count: int | None, timeout_s: float) -> list[Record]:
        deadline_s = time.monotonic() + timeout_s
        settings = self._settings(group_id="penstock-testing", enable_auto_commit=False, auto_offset_reset="earliest")
        settings["enable.partition.eof"] = True
        settings["fetch.wait.max.ms"] = 50
        consumer = Consumer(settings)
        try:
            partitions = self._partitions(consumer, topic, deadline_s)
            consumer.assign(partitions)
            found: list[Record] = []
            ended: set[int | None] = set()
            while (len(found) < count) if count is not None else (len(ended) < len(partitions)):
                if time.monotonic() > deadline_s:
                    of = f" of {count}" if count is not None else ""
                    raise TimeoutError(f"{topic}: only {len(found)}{of} records arrived within {timeout_s:g} s")
                # `consume` waits for the full number requested: wait for the first, then take what is available.
                first = consumer.poll(POLL_S)
                for message in [first, *consumer.consume(FETCH_RECORDS, 0)] if first is not None else ():
                    error = message.error()
                    if error is None:
                        found.append(_read(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
                    elif error.fatal():
                        raise KafkaException(error)
            return found if count is None else found[:count]
        finally:
            consumer.close()

    @staticmethod
    def _partitions(consumer: Consumer, topic: str, deadline_s: float) -> list[TopicPartition]:
        described = consumer.list_topics(topic, timeout=max(0.1, deadline_s - time.monotonic())).topics[topic]
        if described.error is not None:
            raise KafkaException(described.error)
        return [TopicPartition(topic, number, 0) for number in sorted(described.partitions)]


def _record(given: Outgoing) -> Record:
    if isinstance(given, Record):
        return given
    if isinstance(given, tuple):
        key, value = given
        return Record(_bytes(value), _bytes(key))
    return Record(_bytes(given))


def _bytes(text: Text) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _headers(message: Message) -> list[tuple[str, Text]]:
    headers: Any = message.headers()
    return list(headers or ())


def _placed(record: Record, message: Message) -> Record:
    """Takes partition and offset from the delivery report, which has no headers."""
    return replace(
        record,
        timestamp_ms=message.timestamp()[1],
        topic=message.topic() or "",
        partition=message.partition(),
        offset=message.offset(),
    )


def _read(message: Message) -> Record:
    _, timestamp_ms = message.timestamp()
    value, key = message.value(), message.key()
    return Record(
        value=_bytes(value),
        key=_bytes(key),
        headers=tuple((str(name), _bytes(header)) for name, header in _headers(message)),
        timestamp_ms=timestamp_ms,
        topic=message.topic() or "",
        partition=message.partition(),
        offset=message.offset(),
    )
