"""Produce requests read by hand: as the codec reads them, and the specialised forms as the general ones."""

from __future__ import annotations

from contextlib import suppress
from struct import error as StructError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.produce.response import Result, encode, encode_single
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.codec import encode as encode_message
from penstock.wire.errors import WireError
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.produce import FLEXIBLE_FROM, TOPIC_IDS_FROM, read_produce, read_single

VERSIONS = tuple(SERVED[ApiKey.PRODUCE].versions)
names = st.text("abc._-", min_size=1, max_size=130)
entries = st.builds(
    PartitionProduceData,
    index=st.integers(-1, 100),
    records=st.binary(max_size=200) | st.binary(min_size=70, max_size=90),
)
topics = st.builds(
    TopicProduceData,
    name=names,
    topic_id=st.binary(min_size=16, max_size=16),
    partition_data=st.lists(entries, max_size=3),
)
requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | st.text(max_size=5),
    acks=st.sampled_from((-1, 0, 1, 7)),
    timeout_ms=st.integers(0, 2**31 - 1),
    topic_data=st.lists(topics, max_size=3),
)
PADDING = b"\xff" * 7


def encoded(request: ProduceRequest, version: int) -> tuple[bytearray, int, int]:
    """(a buffer with the request in it, where it begins, where it ends)"""
    out = bytearray(PADDING)
    encode_message(request, version, out)
    end = len(out)
    return out + PADDING, len(PADDING), end


@given(requests, st.sampled_from(VERSIONS))
def test_every_request_is_read_as_it_was_written(request: ProduceRequest, version: int) -> None:
    buffer, start, end = encoded(request, version)
    found = read_produce(buffer, memoryview(buffer), version, start, end)
    assert (found.transactional_id, found.acks, found.timeout_ms) == (
        request.transactional_id, request.acks, request.timeout_ms,
    )  # fmt: skip
    expected = [
        (
            topic.topic_id if version >= TOPIC_IDS_FROM else topic.name.encode(),
            [(entry.index, bytes(entry.records or b"")) for entry in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    read = [(topic, [(index, bytes(buffer[a:b])) for index, a, b in parts]) for topic, parts in found.topics]
    assert read == expected


@given(
    st.builds(lambda topic: ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic]), topics),
    st.sampled_from(VERSIONS),
)
def test_the_specialised_reader_says_what_the_general_one_does(request: ProduceRequest, version: int) -> None:
    buffer, start, end = encoded(request, version)
    single = read_single(buffer, memoryview(buffer), version, start, end)
    general = read_produce(buffer, memoryview(buffer), version, start, end)
    if single is not None:
        named, topic, acks, timeout_ms, *records = single
        assert (None, acks, timeout_ms, [(topic, [tuple(records)])]) == general
        assert named.endswith(topic)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= FLEXIBLE_FROM])
def test_one_batch_for_one_partition_is_of_the_usual_form(version: int) -> None:
    entry = PartitionProduceData(index=3, records=b"r" * 80)
    topic = TopicProduceData(name="t", topic_id=b"i" * 16, partition_data=[entry])
    buffer, start, end = encoded(ProduceRequest(acks=1, timeout_ms=9, topic_data=[topic]), version)
    assert read_single(buffer, memoryview(buffer), version, start, end) is not None


@given(requests, st.sampled_from(VERSIONS), st.data())
def test_a_request_that_is_cut_off_raises_nothing_unexpected(
    request: ProduceRequest, version: int, data: st.DataObject
) -> None:
    buffer, start, end = encoded(request, version)
    cut = data.draw(st.integers(start, end))
    for read in (read_single, read_produce):
        with suppress(StructError, IndexError, ValueError, WireError):
            read(buffer[:cut], memoryview(buffer)[:cut], version, start, cut)  # type: ignore[operator]


@given(
    st.integers(0, 2**31 - 1), names, st.integers(0, 100), st.integers(0, 2**62), st.integers(-1, 2**62),
    st.integers(0, 2**62), st.integers(0, 60_000), st.sampled_from([v for v in VERSIONS if v >= FLEXIBLE_FROM]),
)  # fmt: skip
def test_the_specialised_answer_is_that_of_the_general_encoder(
    correlation_id: int, name: str, index: int, offset: int, time_ms: int, start: int, throttle_ms: int, version: int
) -> None:
    topic = name.encode()[:16].ljust(16, b"x")
    named = topic if version >= TOPIC_IDS_FROM else bytes([len(topic) + 1]) + topic
    general = encode(version, correlation_id, [(topic, [Result(index, 0, offset, time_ms, start)])], throttle_ms)
    assert encode_single(correlation_id, named, index, offset, time_ms, start, throttle_ms) == general
