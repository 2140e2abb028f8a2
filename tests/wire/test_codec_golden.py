"""Bytes worked out by hand from the protocol's rules, so that codec and oracle cannot be wrong together."""

from __future__ import annotations

import pytest

from penstock.wire.codec import Message, decode, decode_whole, to_bytes
from penstock.wire.errors import WireError
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC_ID = bytes(range(16))


def unspaced(*parts: str) -> bytes:
    return bytes.fromhex(" ".join(parts))


GOLDEN = {
    "strings with int16 lengths": (
        MetadataRequest(topics=[MetadataRequestTopic(name="ab"), MetadataRequestTopic(name="é")]),
        0,
        unspaced("00000002", "0002 6162", "0002 c3a9"),
    ),
    "a null array is all topics": (MetadataRequest(topics=None), 1, unspaced("ffffffff")),
    "an empty array is none": (MetadataRequest(topics=[]), 4, unspaced("00000000", "01")),
    "compact lengths are one more, every struct ends with its tagged fields": (
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)], allow_auto_topic_creation=False),
        12,
        unspaced("02", TOPIC_ID.hex(), "00", "00", "00", "00", "00"),
    ),
    "compact strings": (
        ApiVersionsRequest(client_software_name="rdkafka", client_software_version="2.6"),
        3,
        unspaced("08", b"rdkafka".hex(), "04", b"2.6".hex(), "00"),
    ),
    "a version without fields": (ApiVersionsRequest(), 0, b""),
    "the plain answer to ApiVersions": (
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]),
        0,
        unspaced("0023", "00000001", "0012 0000 0004"),
    ),
    "tagged fields carry tag and size": (
        ApiVersionsResponse(finalized_features_epoch=7),
        3,
        unspaced("0000", "01", "00000000", "01", "01 08 0000000000000007"),
    ),
    "records of a produce request": (
        ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(3, b"\xaa\xbb")])],
        ),
        3,
        unspaced("ffff", "ffff", "000003e8", "00000001", "0001 74", "00000001", "00000003", "00000002 aabb"),
    ),
    "a tagged struct in a request": (
        FetchRequest(replica_state=ReplicaState(replica_id=5, replica_epoch=6), max_wait_ms=1, max_bytes=2),
        15,
        unspaced(
            "00000001 00000000 00000002 00 00000000 ffffffff", "01", "01", "01",
            "01", "01 0d 00000005 0000000000000006 00",
        ),
    ),
    "a long compact length takes two bytes": (
        MetadataRequest(topics=[MetadataRequestTopic(name="x" * 127)]),
        9,
        unspaced("02", "8001", "78" * 127, "00", "01 00 00", "00"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
def test_bytes_are_as_the_protocol_says(case: str) -> None:
    message, version, expected = GOLDEN[case]
    assert to_bytes(message, version).hex() == expected.hex()
    assert decode(type(message), version, expected) == (message, len(expected))


def test_a_message_is_decoded_at_its_position_and_says_where_it_ends() -> None:
    body = to_bytes(MetadataRequest(topics=None), 1)
    message, end = decode(MetadataRequest, 1, b"header" + body + b"rest", 6)
    assert (message, end) == (MetadataRequest(topics=None), 6 + len(body))
    with pytest.raises(WireError, match="4 bytes after the end"):
        decode_whole(MetadataRequest, 1, b"header" + body + b"rest", 6)


def test_tagged_fields_equal_to_their_default_do_not_travel() -> None:
    def answer(partition: PartitionData) -> bytes:
        return to_bytes(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 12)

    assert answer(PartitionData(diverging_epoch=EpochEndOffset())) == answer(PartitionData())
    assert len(answer(PartitionData(diverging_epoch=EpochEndOffset(epoch=1)))) > len(answer(PartitionData()))


def test_unknown_tagged_fields_of_a_newer_client_are_skipped() -> None:
    known = to_bytes(ApiVersionsRequest(client_software_name="a", client_software_version="b"), 3)
    assert known[-1:] == b"\0"
    newer = known[:-1] + unspaced("02", "05 03 aabbcc", "ffff03 00")
    expected = ApiVersionsRequest(client_software_name="a", client_software_version="b")
    assert decode(ApiVersionsRequest, 3, newer) == (expected, len(newer))


def test_unknown_tagged_fields_may_stand_between_known_ones() -> None:
    data = unspaced("0000", "01", "00000000", "03", "00 01 01", "01 08 0000000000000007", "63 02 ffff")
    assert decode_whole(ApiVersionsResponse, 3, data).finalized_features_epoch == 7


def test_records_are_views_of_the_buffer_that_was_given() -> None:
    message, version, data = GOLDEN["records of a produce request"]
    frame = memoryview(bytearray(data))
    decoded, _ = decode(ProduceRequest, version, frame)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0] = 0xCC
    assert frame[-2] == 0xCC
    assert isinstance(decoded.topic_data[0].name, str)
    assert isinstance(message, Message)


def test_records_may_be_encoded_from_a_view() -> None:
    message, version, data = GOLDEN["records of a produce request"]
    assert isinstance(message, ProduceRequest)
    view = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(3, memoryview(b"\xaa\xbb\xcc")[:2])])
        ],
    )
    assert to_bytes(view, version) == data
