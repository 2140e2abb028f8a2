"""The plain form of OffsetCommit says what the codec says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.codec import Limits, decode, to_bytes
from penstock.wire.commits import PlainCommit, decode_commit
from penstock.wire.errors import WireError
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

VERSIONS = st.sampled_from([8, 9, 10])
NAMES = st.text(min_size=0, max_size=140)
ENTRIES = st.builds(
    OffsetCommitRequestPartition,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([None, ""]) | st.text(min_size=1, max_size=3),
)
TOPICS = st.builds(
    OffsetCommitRequestTopic, st.binary(min_size=16, max_size=16), NAMES, st.lists(ENTRIES, min_size=0, max_size=140)
)
REQUESTS = st.builds(
    OffsetCommitRequest,
    NAMES,
    st.integers(-1, 2**31 - 1),
    NAMES,
    st.none() | NAMES,
    st.just(-1),
    st.lists(TOPICS, max_size=3),
)


def commit_of(entries: list[OffsetCommitRequestPartition], topics: int = 1) -> OffsetCommitRequest:
    topic = OffsetCommitRequestTopic(b"i" * 16, "topic", entries)
    return OffsetCommitRequest("group", 3, "member", "instance", -1, [topic] * topics)


@given(REQUESTS, VERSIONS, st.integers(0, 3))
def test_in_whatever_form_the_request_is_the_same(request: OffsetCommitRequest, version: int, before: int) -> None:
    raw = b"\xff" * before + to_bytes(request, version)
    found, end = decode_commit(OffsetCommitRequest, version, memoryview(raw), before)
    assert end == len(raw)
    expected, _ = decode(OffsetCommitRequest, version, raw, before)
    if isinstance(found, PlainCommit):
        assert found.request() == expected
        assert (found.group_id, found.generation) == (expected.group_id, expected.generation_id_or_member_epoch)
        assert (found.member_id, found.instance_id) == (expected.member_id, expected.group_instance_id)
        entries = [entry[:3] for topic in found.topics for entry in topic.unpacked()]
        assert entries == [
            (one.partition_index, one.committed_offset, one.committed_leader_epoch)
            for topic in expected.topics
            for one in topic.partitions
        ]
        answer = OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    topic.topic_id,
                    topic.name,
                    [OffsetCommitResponsePartition(one.partition_index) for one in topic.partitions],
                )
                for topic in expected.topics
            ]
        )
        assert found.succeeded().body == to_bytes(answer, version)
    else:
        assert found == expected


@given(st.lists(ENTRIES.filter(lambda entry: not entry.committed_metadata), max_size=300), VERSIONS)
def test_requests_without_metadata_are_plain(entries: list[OffsetCommitRequestPartition], version: int) -> None:
    raw = to_bytes(commit_of(entries), version)
    assert isinstance(decode_commit(OffsetCommitRequest, version, raw)[0], PlainCommit)


def test_metadata_and_tagged_fields_go_the_other_way() -> None:
    told = to_bytes(commit_of([OffsetCommitRequestPartition(0, 1, 2, "m")]), 9)
    assert isinstance(decode_commit(OffsetCommitRequest, 9, told)[0], OffsetCommitRequest)
    plain = to_bytes(commit_of([OffsetCommitRequestPartition(0, 1, 2)]), 9)
    assert plain.endswith(b"\0\0\0")
    tagged = plain[:-1] + bytes.fromhex("01 07 01 aa")
    found, end = decode_commit(OffsetCommitRequest, 9, tagged)
    assert isinstance(found, OffsetCommitRequest)
    assert end == len(tagged)


def test_older_versions_are_left_to_the_codec() -> None:
    raw = to_bytes(commit_of([OffsetCommitRequestPartition(0, 1, 2)]), 7)
    assert isinstance(decode_commit(OffsetCommitRequest, 7, raw)[0], OffsetCommitRequest)


@given(st.binary(max_size=80), VERSIONS)
def test_bytes_that_are_no_request_are_refused_as_ever(raw: bytes, version: int) -> None:
    try:
        expected = decode(OffsetCommitRequest, version, raw)[0]
    except WireError:
        with pytest.raises(WireError):
            decode_commit(OffsetCommitRequest, version, raw)
        return
    found = decode_commit(OffsetCommitRequest, version, raw)[0]
    assert (found.request() if isinstance(found, PlainCommit) else found) == expected


def test_the_limit_of_elements_holds() -> None:
    raw = to_bytes(commit_of([OffsetCommitRequestPartition(0, 1, 2)] * 10, topics=2), 9)
    assert isinstance(decode_commit(OffsetCommitRequest, 9, raw, limits=Limits(max_elements=22))[0], PlainCommit)
    with pytest.raises(WireError):
        decode_commit(OffsetCommitRequest, 9, raw, limits=Limits(max_elements=21))


def test_a_topic_whose_name_is_no_utf_8_is_refused() -> None:
    """Found by the fuzzer: it was taken for a plain request, and its name raised in the coordinator."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="cleanup", partitions=[partition])
    body = to_bytes(OffsetCommitRequest(group_id="g", member_id="m", topics=[topic]), 9).replace(b"e", b"\xe5")
    with pytest.raises(WireError):
        decode_commit(OffsetCommitRequest, 9, body)
