"""Poison is refused as Apache Kafka refuses it; where it takes what is wrong, or fails, the difference is stated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.wire.compression import Codec, compress
from penstock.wire.errors import ErrorCode
from penstock.wire.records import Record, build_batch, varint
from support.apache_kafka import SHORT_LIVED, ApacheKafka, available
from support.penstock import PenstockServer
from support.poison import NULL, fields, forged, poison, record
from support.raw_produce import RawProducer

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("poison for Apache Kafka")]

PLAIN, COMPACTED = "plain", "compacted"
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[RawProducer, RawProducer]]:
    """Apache Kafka's and ours."""
    if reason := available():
        pytest.skip(reason)
    with ExitStack() as stack:
        producers = []
        for server in (ApacheKafka(heap="256M", jvm_flags=SHORT_LIVED), PenstockServer()):
            bootstrap = stack.enter_context(server).bootstrap
            topics = [NewTopic(PLAIN, 1, 1), NewTopic(COMPACTED, 1, 1, config={"cleanup.policy": "compact"})]
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for created in admin.create_topics(topics).values():
                created.result(30)
            producers.append(stack.enter_context(RawProducer(bootstrap)))
        yield producers[0], producers[1]


@pytest.mark.parametrize("kind", list(poison(NOW_MS)))
def test_poison_is_refused_by_both(brokers: tuple[RawProducer, RawProducer], kind: str) -> None:
    theirs, ours = (broker.produce(PLAIN, poison(NOW_MS)[kind]).error_code for broker in brokers)
    # Where its codec or its reader of numbers raises, Kafka answers that the server failed.
    assert theirs in (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert ours == ErrorCode.INVALID_RECORD


def offsets(*deltas: int) -> bytes:
    return b"".join(record(fields(offset=varint(delta))) for delta in deltas)


TAKEN_BY_BOTH = {
    "any attributes of a record": forged(record(b"\x55" + fields()[1:]), NOW_MS, count=1),
    "a number longer than it need be": forged(record(fields(offset=b"\x80\0")), NOW_MS, count=1),
    "a header's name that is not UTF-8": forged(
        record(fields(headers=varint(1) + varint(2) + b"\xff\xfe" + NULL)), NOW_MS, count=1
    ),
    "a wrong largest timestamp": forged(offsets(0, 1, 2), NOW_MS, max_timestamp=NOW_MS - 50_000),
}


@pytest.mark.parametrize("kind", TAKEN_BY_BOTH)
def test_what_is_odd_but_readable_is_taken_by_both(brokers: tuple[RawProducer, RawProducer], kind: str) -> None:
    assert [broker.produce(PLAIN, TAKEN_BY_BOTH[kind]).error_code for broker in brokers] == [0, 0]


TAKEN_BY_KAFKA = {
    "offsets with gaps": forged(offsets(0, 2, 5), NOW_MS),
    "offsets that repeat": forged(offsets(0, 0, 0), NOW_MS),
    "a size of -2": forged(record(fields(value=varint(-2))), NOW_MS, count=1),
    "a number beyond 32 bits": forged(record(fields(offset=b"\x80\x80\x80\x80\x70")), NOW_MS, count=1),
}


@pytest.mark.parametrize("kind", TAKEN_BY_KAFKA)
def test_here_we_are_stricter(brokers: tuple[RawProducer, RawProducer], kind: str) -> None:
    codes = [broker.produce(PLAIN, TAKEN_BY_KAFKA[kind]).error_code for broker in brokers]
    assert codes == [0, ErrorCode.INVALID_RECORD]


@pytest.mark.parametrize("codec", list(Codec))
def test_both_name_the_same_bad_records(brokers: tuple[RawProducer, RawProducer], codec: Codec) -> None:
    keyless = [Record(timestamp=NOW_MS, key=None if n % 10 == 3 else b"k", value=b"v") for n in range(100)]
    late = [Record(timestamp=NOW_MS + (10**9 if n % 9 == 2 else 0), key=b"k", value=b"v") for n in range(100)]
    for records in (keyless, late):
        theirs, ours = (broker.produce(COMPACTED, build_batch(records, codec=codec)) for broker in brokers)
        assert ours.error_code == theirs.error_code != 0
        named = [error.batch_index for error in theirs.record_errors]
        assert [error.batch_index for error in ours.record_errors] == named
        assert len(named) >= 10
        assert ours.error_message
        assert all(error.batch_index_error_message for error in ours.record_errors)


def test_what_decompresses_to_too_much_is_too_large_here_and_taken_by_kafka(
    brokers: tuple[RawProducer, RawProducer],
) -> None:
    payload = record(fields(value=varint(150 << 20) + bytes(150 << 20)))
    bomb = forged(compress(Codec.ZSTD, payload), NOW_MS, count=1, codec=Codec.ZSTD)
    assert [broker.produce(PLAIN, bomb).error_code for broker in brokers] == [0, ErrorCode.MESSAGE_TOO_LARGE]
