"""The friendly producer, against brokers and against none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka import Consumer as BareConsumer

from penstock.client import (
    BufferExhausted,
    DeliveryFailed,
    Producer,
    RateLimit,
    RecordMetadata,
    RequestTimedOut,
    RoundRobin,
    SettingsError,
    UnknownTopic,
)
from support.penstock import PenstockServer
from support.ports import free_ports
from support.waiting import wait_until

Row = tuple[int, int, bytes | None, bytes | None]


def nobody() -> str:
    """An address where no broker is."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def read(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Row]:
    """(partition, offset, key, value) of so many records, with the bare client."""
    consumer = BareConsumer({"bootstrap.servers": bootstrap, "group.id": "beside", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    rows: list[Row] = []
    try:
        while len(rows) < count:
            message = consumer.poll(20)
            assert message is not None, f"only {len(rows)} of {count} records came"
            assert message.error() is None
            rows.append((message.partition(), message.offset(), message.key(), message.value()))  # type: ignore[arg-type]
        assert consumer.poll(0.1) is None
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: row[:2])


def test_callbacks_are_told_where_a_record_is_without_asking(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    told: list[tuple[str, RecordMetadata]] = []
    failed: list[DeliveryFailed] = []
    with Producer(bootstrap) as producer:
        delivery = producer.send(topic, "value", "key", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
        assert delivery.add_callback(lambda tag, where: told.append((tag, where)), "first") is delivery
        delivery.add_errback(failed.append)
        wait_until(lambda: told)
        late: list[RecordMetadata] = []
        delivery.add_callback(late.append)
    metadata = RecordMetadata(topic, 0, 0, 1_700_000_000_000)
    assert told == [("first", metadata)]
    assert late == [metadata]
    assert failed == []
    assert delivery.succeeded()
    assert not delivery.failed()
    assert read(bootstrap, topic, 1) == [(0, 0, b"key", b"value")]


def test_a_result_can_be_waited_for_from_any_thread(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    found: list[int] = []
    with Producer(bootstrap) as producer:

        def send(number: int) -> None:
            found.append(producer.send(topic, str(number)).result(60).offset)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == list(range(20))


def test_a_failure_is_told_to_errbacks_and_results(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic(max_message_bytes="1000")
    stored: list[RecordMetadata] = []
    failed: list[DeliveryFailed] = []
    with Producer(bootstrap) as producer:
        delivery = producer.send(topic, b"v" * 5000).add_callback(stored.append).add_errback(failed.append)
        with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
            delivery.result(60)
        wait_until(lambda: failed)
        assert producer.send(topic, b"v").result(60).offset == 0
    assert stored == []
    assert producer.metrics.value("record-error-total") == 1


def test_a_failure_that_nobody_listens_to_is_raised_at_the_end(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(max_message_bytes="1000")
    producer = Producer(bootstrap, linger_ms=0)
    producer.send(topic, b"v" * 5000)
    wait_until(lambda: not len(producer))
    producer.send(topic, b"v" * 5000)
    with pytest.raises(DeliveryFailed, match="2 records were not stored"):
        producer.close()


def test_an_error_of_the_program_is_not_hidden_by_one_of_delivery(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(max_message_bytes="1000")
    with pytest.raises(ZeroDivisionError), Producer(bootstrap) as producer:
        print(1 / len(producer.send(topic, b"v" * 5000).topic[:0]))


def test_a_callback_that_fails_harms_no_other(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    told: list[RecordMetadata] = []

    def bad(where: RecordMetadata) -> None:
        raise ZeroDivisionError

    with Producer(bootstrap) as producer:
        producer.send(topic, b"1").add_callback(bad).add_callback(told.append)
        producer.send(topic, b"2").add_callback(told.append)
    assert sorted(where.offset for where in told) == [0, 1]


def test_what_cannot_be_sent_at_all_is_refused_at_once() -> None:
    producer = Producer(nobody(), log_level=0, error_cb=lambda _: None)
    try:
        with pytest.raises(DeliveryFailed, match="too large"):
            producer.send("t", b"v" * 2_000_000)
        with pytest.raises(TypeError):
            producer.send("t", {"not": "bytes"})  # type: ignore[arg-type]
        assert producer.metrics.value("buffer-available-bytes") == 32 * 1024 * 1024
    finally:
        producer._sending.stop()


def test_a_full_buffer_slows_down_then_blocks_then_is_exhausted() -> None:
    producer = Producer(nobody(), buffer_memory=100 * 1024, max_block_ms=300, log_level=0, error_cb=lambda _: None)
    started_s = time.monotonic()
    slowed: list[int] = []
    for _ in range(100):  # as many as fit
        producer.send("t", b"v" * 1024)
        slowed.append(producer.metrics.slowed_records)
    full_s = time.monotonic()
    with pytest.raises(BufferExhausted, match=r"buffer\.memory=102400"):
        producer.send("t", b"v" * 1024)
    blocked_s = time.monotonic() - full_s
    producer._sending.stop()
    assert slowed == [*[0] * 79, *range(1, 22)], "from eighty percent on"
    assert full_s - started_s > 0.5, "with pauses of up to 100 ms"
    assert 0.3 <= blocked_s < 5
    assert producer.metrics.value("buffer-exhausted-total") == 1
    assert producer.metrics.value("buffer-available-bytes") == producer._account.size_bytes, "given up at the end"


def test_flush_says_what_is_left() -> None:
    producer = Producer(nobody(), log_level=0, error_cb=lambda _: None)
    delivery = producer.send("t", b"v")
    with pytest.raises(RequestTimedOut, match="a record was not acknowledged"):
        producer.flush(0.3)
    with pytest.raises(RequestTimedOut):
        delivery.result(0.01)
    producer._sending.stop()
    assert delivery.failed()


def test_records_survive_a_broker_that_dies_and_comes_back_once_and_in_order() -> None:
    with (
        PenstockServer() as server,
        Producer(
            server.bootstrap,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
            log_level=0,
            error_cb=lambda _: None,
        ) as producer,
    ):
        producer.send("t", b"0").result(60)
        for number in range(1, 1200):
            producer.send("t", str(number), partition=0)
            if number in (400, 900):
                server.kill()
            if number in (600, 1000):
                server.start()
        producer.flush(60)
        assert [int(row[3] or b"") for row in read(server.bootstrap, "t", 1200)] == list(range(1200))


def test_a_rate_limit_is_kept(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    with Producer(bootstrap, rate_limit=RateLimit(records_per_s=200)) as producer:
        started_s = time.monotonic()
        for _ in range(80):
            producer.send(topic, b"v")
        elapsed_s = time.monotonic() - started_s
    assert elapsed_s >= (80 - 20) / 200 * 0.95, "twenty may go at once"


def test_a_quota_that_is_told_is_kept(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    with Producer(bootstrap, quota_bytes_per_s=100_000) as producer:
        started_s = time.monotonic()
        for _ in range(130):
            producer.send(topic, b"v" * 1000)
        elapsed_s = time.monotonic() - started_s
        assert producer.metrics.value("producer-quota-bytes") == 100_000
    assert elapsed_s >= (130 - 90) / 90 * 0.95
    assert producer.metrics.slowed_records > 0


def test_a_function_decides_the_partition(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic(4)

    def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return len(value or b"") % partitions

    with Producer(bootstrap, partitioner=by_length) as producer:
        for length in range(8):
            producer.send(topic, b"v" * length)
        producer.send(topic, b"vvv", partition=0)
    rows = read(bootstrap, topic, 9, 4)
    assert [row[0] for row in rows] == [0, 0, 0, 1, 1, 2, 2, 3, 3]


def test_round_robin_takes_partitions_in_turn(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic(3)
    with Producer(bootstrap, partitioner=RoundRobin()) as producer:
        found = [producer.send(topic, b"v", b"same key").result(60).partition for _ in range(7)]
    assert found == [0, 1, 2, 0, 1, 2, 0]


def test_a_partitioner_that_is_wrong_is_told(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic(2)
    with Producer(bootstrap, partitioner=lambda *_: 2) as producer, pytest.raises(ValueError, match="partition 2"):
        producer.send(topic, b"v")


def test_a_partitioner_needs_a_topic_that_is_there() -> None:
    producer = Producer(nobody(), partitioner=RoundRobin(), max_block_ms=200, log_level=0, error_cb=lambda _: None)
    try:
        with pytest.raises(UnknownTopic):
            producer.send("t", b"v")
    finally:
        producer._sending.stop()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"linger_mss": 1}, "linger.mss"),
        ({"max_block_ms": "soon"}, "max.block.ms"),
        ({"buffer_memory": 1}, "buffer.memory"),
        ({"acks": "1", "enable_idempotence": True}, "acks"),
        ({"linger_ms": 1, "queue_buffering_max_ms": 2}, "queue.buffering.max.ms"),
        ({"error_cb": "no function"}, "error_cb"),
        ({"partitioner": "best"}, "partitioner"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Producer("127.0.0.1:1", **settings)
