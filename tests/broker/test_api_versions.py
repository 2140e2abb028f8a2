"""How a client and a broker of different ages find a common language."""

from __future__ import annotations

from struct import pack

import pytest

from broker.session import Session, batch, fetch_request, produce_request, simulated
from penstock.broker.node import TELEMETRY_APIS
from penstock.sim.broker import read_answer, request_frame
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.codec import Message, decode_whole, encode
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import write_request_header
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.records import write_unsigned_varint

FLEXIBLE_EMPTY_TAIL = b"\0"


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """A block of tagged fields."""
    out = bytearray()
    write_unsigned_varint(out, len(fields))
    for tag, value in fields:
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(value))
        out += value
    return bytes(out)


def from_the_future(request: Message, version: int, key: ApiKey, *, header: bytes, body: bytes) -> bytes:
    """The request with these tagged fields at the end of its header and of its body, where a newer client has them."""
    out = bytearray()
    write_request_header(out, key, version, 77, "newer")
    assert out[-1:] == FLEXIBLE_EMPTY_TAIL
    out[-1:] = header
    encode(request, version, out)
    assert out[-1:] == FLEXIBLE_EMPTY_TAIL
    out[-1:] = body
    return bytes(out)


@pytest.mark.parametrize("version", [5, 6, 99, 32767, -1])
@simulated()
async def test_a_version_that_is_too_new_is_answered_in_version_0(s: Session, version: int) -> None:
    """KIP-35, KIP-511: whatever the rest of the request is, which cannot be known."""
    for rest in (b"", b"\xff\xff", b"\x00\x03abc" + bytes(range(50))):
        frame = pack(">hhi", ApiKey.API_VERSIONS, version, 4711) + (rest or b"\xff\xff")
        answer = await s.client.frames.request(frame)
        assert answer[:4] == pack(">i", 4711)
        decoded = decode_whole(ApiVersionsResponse, 0, answer, 4)
        assert decoded.error_code == ErrorCode.UNSUPPORTED_VERSION
        told = {api.api_key: (api.min_version, api.max_version) for api in decoded.api_keys}
        assert told[ApiKey.API_VERSIONS] == (0, 4)
        assert set(told) == set(SERVED) - set(TELEMETRY_APIS)
    assert (await s.call(ApiVersionsRequest(), 0)).error_code == 0, "the connection goes on"


@simulated()
async def test_only_proper_names_of_software_are_taken(s: Session) -> None:
    for name, version, error in (
        ("librdkafka", "2.6.0", ErrorCode.NONE),
        ("apache-kafka-java", "4.0.0-SNAPSHOT", ErrorCode.NONE),
        ("", "1", ErrorCode.INVALID_REQUEST),
        ("a b", "1", ErrorCode.INVALID_REQUEST),
        ("-a", "1", ErrorCode.INVALID_REQUEST),
        ("a", "1\n", ErrorCode.INVALID_REQUEST),
        ("x" * 300, "1", ErrorCode.INVALID_REQUEST),
    ):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        for asked in (3, 4):
            assert (await s.call(request, asked)).error_code == error, (name, version)


@pytest.mark.parametrize("version", [0, 1, 2])
@simulated()
async def test_produce_is_advertised_from_0_and_refused_below_3(s: Session, version: int) -> None:
    """As in Kafka 4: librdkafka below 2.8 stops compressing where Produce v0 is not advertised (KAFKA-18659)."""
    answer = await s.call(ApiVersionsRequest(), 0)
    (produce,) = (api for api in answer.api_keys if api.api_key == ApiKey.PRODUCE)
    assert (produce.min_version, produce.max_version) == (0, 13)
    other = await s.connect()
    other.frames.send(pack(">hhih", ApiKey.PRODUCE, version, 1, -1) + pack(">hii", 1, 1000, 0))
    await other.frames.closed()
    assert "Produce v" in s.node.events.said("connection closed", "reason")[-1]


@pytest.mark.parametrize("key", list(SERVED), ids=lambda key: SERVED[key].name)
@simulated()
async def test_a_version_that_is_not_served_closes_the_connection(s: Session, key: ApiKey) -> None:
    api = SERVED[key]
    if key == ApiKey.API_VERSIONS:
        return
    for version in (api.min_version - 1, api.max_version + 1):
        other = await s.connect()
        other.frames.send(pack(">hhih", key, version, 1, -1) + bytes(20))
        await other.frames.closed()
    reasons = s.node.events.said("connection closed", "reason")
    assert len(reasons) == 2
    assert all(f"{api.min_version}–{api.max_version}" in reason for reason in reasons)
    assert (await s.call(ApiVersionsRequest(), 0)).error_code == 0, "others go on"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (52, "Vote (52)"),
        (78, "ShareFetch (78)"),
        (88, "StreamsGroupHeartbeat (88)"),
        *((key, f"API key {key}, which Kafka does not have") for key in (93, 1000, 32767, -1, -32768)),
    ],
)
@simulated()
async def test_an_api_that_is_not_served_closes_the_connection_and_is_named(s: Session, key: int, name: str) -> None:
    for _ in range(3):
        other = await s.connect()
        other.frames.send(pack(">hhih", key, 0, 1, -1) + bytes(20))
        await other.frames.closed()
    reasons = s.node.events.said("connection closed", "reason")
    assert all(reason.endswith(f"{name} is not served on this listener") for reason in reasons)
    assert (await s.call(ApiVersionsRequest(), 0)).error_code == 0


@pytest.mark.parametrize("version", [3, 4])
@simulated()
async def test_the_level_of_a_feature_lies_within_the_range_that_is_supported(s: Session, version: int) -> None:
    answer = await s.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert levels == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 25,
        "transaction.version": 2,
    }
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
    # A client that asks in version 3 cannot read a minimum of 0 (KIP-1022).
    from_zero = {"eligible.leader.replicas.version", "transaction.version"}
    assert set(levels) - set(supported) == (from_zero if version == 3 else set())
    assert all(low <= levels.get(name, 0) <= high for name, (low, high) in supported.items())
    assert all(feature.min_version_level == levels[feature.name] for feature in answer.finalized_features)


UNKNOWN = tagged((0, b"cluster"), (7, b""), (9_000, bytes(300)))


@simulated()
async def test_unknown_tagged_fields_of_newer_clients_are_skipped(s: Session) -> None:
    await s.create("t")
    frames = s.client.frames
    requests: list[tuple[Message, int]] = [
        (ApiVersionsRequest(client_software_name="a", client_software_version="b"), 3),
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12),
        (FindCoordinatorRequest(coordinator_keys=["g"]), 4),
        (CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)]), 5),
        (produce_request("t", batch(b"x")), 9),
        (fetch_request("t"), 12),
    ]
    for request, version in requests:
        key = next(key for key, api in SERVED.items() if api.request is type(request))
        # Tags 0 and 1 of a Fetch are known since v12: the unknown ones of its body come after them.
        body = tagged((7, b""), (9_000, bytes(300))) if key == ApiKey.FETCH else UNKNOWN
        answer = await frames.request(from_the_future(request, version, key, header=UNKNOWN, body=body))
        decoded = read_answer(answer, request, version, 77)
        assert getattr(decoded, "error_code", 0) == 0, request
    assert await s.values("t") == [b"x"]
    assert await s.topics() == ["__consumer_offsets", "t", "u"]


@simulated()
async def test_tagged_fields_inside_a_request_are_skipped_too(s: Session) -> None:
    await s.create("t")
    request = produce_request("t", batch(b"x"))
    frame = bytearray(request_frame(request, 9, 77))
    # Behind the records: the tagged fields of the partition, of the topic, and of the request.
    assert frame[-3:] == b"\0\0\0"
    frame[-3:] = UNKNOWN * 3
    answer = read_answer(await s.client.frames.request(frame), request, 9, 77)
    assert isinstance(answer, Message)
    assert await s.values("t") == [b"x"]


@simulated()
async def test_a_client_may_have_no_name(s: Session) -> None:
    for client_id in (None, "", "ü" * 100):
        answer = await s.client.frames.request(request_frame(MetadataRequest(topics=None), 9, 5, client_id))
        assert answer[:4] == pack(">i", 5)


@simulated()
async def test_bytes_behind_a_request_are_let_pass(s: Session) -> None:
    """As Kafka does: librdkafka 2.16 sends three behind Metadata v13."""
    frame = request_frame(MetadataRequest(topics=None), 13, 5) + b"\0\0\0"
    answer = await s.client.frames.request(frame)
    assert answer[:4] == pack(">i", 5)
