"""Conversion of quorum messages in both directions, and which messages of other nodes are refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.broker.quorum import wire as quorum_wire
from penstock.raft import Endpoint, LogBatch, OffsetAndEpoch, ReplicaKey, Voter, VoterSet, decode_batches, encode_batch
from penstock.raft import messages as m
from penstock.wire.codec import Message, decode_whole, to_bytes
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import begin_quorum_epoch as begin
from penstock.wire.messages import fetch, vote
from penstock.wire.messages import fetch_snapshot as snapshots
from penstock.wire.messages import metadata_records as r
from penstock.wire.messages.metadata_records import NoOpRecord, encode_metadata_record

ONE, TWO = ReplicaKey(1, b"1" * 16), ReplicaKey(2, b"2" * 16)
OWN = ("CONTROLLER", "one.example", 9093)
VERSIONS = {"Fetch": 18, "Vote": 2}

REQUESTS: list[m.Request] = [
    m.VoteRequest(1, 2, 7, 4, ONE, TWO, 3, 99, True),
    m.BeginQuorumEpochRequest(1, 2, 7, 4, TWO),
    m.EndQuorumEpochRequest(1, 2, 7, 4, (TWO, ReplicaKey(3, b"3" * 16))),
    m.FetchRequest(1, 2, 7, ONE, 4, 99, 3, 90, 500),
    m.FetchSnapshotRequest(1, 2, 7, ONE, 4, OffsetAndEpoch(80, 3), 1024, 4096),
]
BATCH = next(iter(decode_batches(encode_batch(LogBatch(99, 1, 4, values=(encode_metadata_record(NoOpRecord()),)), 1))))
RESPONSES: list[m.Response] = [
    m.VoteResponse(2, 1, 7, ErrorCode.NONE, 3, 4, True),
    m.BeginQuorumEpochResponse(2, 1, 7, ErrorCode.FENCED_LEADER_EPOCH, 3, 5),
    m.EndQuorumEpochResponse(2, 1, 7, ErrorCode.NONE, -1, 5),
    m.FetchResponse(2, 1, 7, ErrorCode.NONE, 2, 4, 98, batches=(BATCH,)),
    m.FetchResponse(2, 1, 7, ErrorCode.NONE, 2, 4, 98, diverging=OffsetAndEpoch(50, 2)),
    m.FetchResponse(2, 1, 7, ErrorCode.NONE, 2, 4, 98, snapshot=OffsetAndEpoch(80, 3)),
    m.FetchResponse(2, 1, 7, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 4, -1),
    m.FetchSnapshotResponse(2, 1, 7, ErrorCode.NONE, 2, 4, OffsetAndEpoch(80, 3), 1024, size=5000, data=b"piece"),
]


def travelled(message: Message) -> Any:
    """The message after encoding and decoding."""
    name = type(message).__name__.removesuffix("Request").removesuffix("Response")
    version = VERSIONS.get(name, 1)
    return decode_whole(type(message), version, to_bytes(message, version))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_request_arrives_as_it_was_sent(request_: m.Request) -> None:
    wire = travelled(quorum_wire.to_request(request_, "cluster", OWN))
    assert wire.cluster_id == "cluster"
    assert quorum_wire.to_core(wire, 2, 7) == request_


@pytest.mark.parametrize("response", RESPONSES, ids=lambda one: type(one).__name__)
def test_an_answer_arrives_as_it_was_sent(response: m.Response) -> None:
    data = response.data if isinstance(response, m.FetchSnapshotResponse) else b""
    if isinstance(response, m.FetchResponse) and response.batches:
        data = BATCH.data
    size = response.size if isinstance(response, m.FetchSnapshotResponse) else 0
    wire = travelled(quorum_wire.to_response(response, {3: ("three.example", 9093)}, data, size))
    assert quorum_wire.from_response(REQUESTS[0], wire) == response
    told = {3: ("three.example", 9093)} if response.leader_id == 3 else {}
    assert quorum_wire.endpoints_in(wire) == told


def test_a_leader_says_where_it_listens() -> None:
    wire = travelled(quorum_wire.to_request(REQUESTS[1], "cluster", OWN))
    assert [(at.name, at.host, at.port) for at in wire.leader_endpoints] == [OWN]


def strange(request: m.Request, **changes: Any) -> Message:
    return quorum_wire.to_request(replace(request, **changes), "cluster", None)


def of_another_partition() -> Message:
    wire: Any = strange(REQUESTS[0])
    wire.topics[0].partitions[0].partition_index = 1
    return wire  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (vote.VoteRequest(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (begin.BeginQuorumEpochRequest(topics=[begin.BeginQuorumEpochRequestTopicData(topic_name="t")]), 3),
        (fetch.FetchRequest(topics=[fetch.FetchTopic(topic_id=b"t" * 16)]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (of_another_partition(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (strange(REQUESTS[0], candidate=ReplicaKey(-1, b"1" * 16), source=-1), ErrorCode.INVALID_REQUEST),
        (strange(REQUESTS[0], candidate=ReplicaKey(2, b"1" * 16), source=2), ErrorCode.INVALID_REQUEST),
        (strange(REQUESTS[1], epoch=-1), ErrorCode.INVALID_REQUEST),
        (strange(REQUESTS[1], epoch=2**31 - 1), ErrorCode.INVALID_REQUEST),
        (strange(REQUESTS[1], source=2), ErrorCode.INVALID_REQUEST),
        (strange(REQUESTS[3], offset=-1), ErrorCode.INVALID_REQUEST),
        (strange(REQUESTS[3], replica=ReplicaKey(-1, b"1" * 16), source=-1), ErrorCode.INVALID_REQUEST),
        (strange(REQUESTS[4], position=-1), ErrorCode.INVALID_REQUEST),
        (strange(REQUESTS[4], snapshot=OffsetAndEpoch(-1, 0)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_messages_that_the_core_cannot_process_are_refused(wire: Message, code: int) -> None:
    with pytest.raises(KafkaError) as refused:
        quorum_wire.to_core(wire, 2, 7)
    assert refused.value.code == code


def test_nobody_waits_for_longer_than_a_minute() -> None:
    wire = strange(REQUESTS[3], max_wait_ms=2**31 - 1)
    core = quorum_wire.to_core(wire, 2, 7)
    assert isinstance(core, m.FetchRequest)
    assert core.max_wait_ms == quorum_wire.WAIT_MS_MAX


def test_invalid_responses_are_refused() -> None:
    damaged = bytearray(BATCH.data)
    damaged[-1] ^= 1
    answers: list[Message] = [
        vote.VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
        vote.VoteResponse(error_code=9_999),
        vote.VoteResponse(),
        snapshots.FetchSnapshotResponse(),
        fetch.FetchRequest(),
        quorum_wire.to_response(m.VoteResponse(2, 1, 7, ErrorCode.NONE, 3, 2**31 - 1), {}),
        quorum_wire.to_response(RESPONSES[3], {}, bytes(damaged)),
    ]
    for answer in answers:
        with pytest.raises(quorum_wire.Inconsistent):
            quorum_wire.from_response(REQUESTS[0], answer)


def test_an_error_of_a_newer_release_is_an_error() -> None:
    wire: Any = quorum_wire.to_response(RESPONSES[0], {})
    wire.topics[0].partitions[0].error_code = 9_999
    answer = quorum_wire.from_response(REQUESTS[0], wire)
    assert answer.error == ErrorCode.UNKNOWN_SERVER_ERROR


def of_leader(**contents: Any) -> Any:
    """A leader's response to a fetch, with one batch."""
    data = encode_batch(LogBatch(99, 1, 4, **contents), 1)
    return travelled(quorum_wire.to_response(RESPONSES[3], {}, data, 0))


@pytest.mark.parametrize(
    "record",
    [
        r.TopicRecord(name="../../etc/cron.d/x", topic_id=b"t" * 16),
        r.TopicRecord(name="x" * 250, topic_id=b"t" * 16),
        r.TopicRecord(name="__cluster_metadata", topic_id=b"t" * 16),
        r.PartitionRecord(partition_id=-1, topic_id=b"t" * 16, replicas=[1]),
        r.PartitionRecord(partition_id=2**31 - 1, topic_id=b"t" * 16, replicas=[1]),
        r.PartitionRecord(partition_id=0, topic_id=b"t" * 16, replicas=[-1]),
        r.RegisterBrokerRecord(broker_id=-1),
        r.RegisterBrokerRecord(broker_id=1, end_points=[r.BrokerEndpoint(name="A", host="a" * 64, port=1)]),
        r.RegisterBrokerRecord(broker_id=1, end_points=[r.BrokerEndpoint(name="A", host="a", port=0)]),
        r.RegisterControllerRecord(controller_id=1, end_points=[r.ControllerEndpoint(name="A\n", host="a", port=1)]),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_leaders_records_with_names_that_reach_the_system_are_refused(record: r.MetadataRecord) -> None:
    with pytest.raises(quorum_wire.Inconsistent, match=type(record).__name__):
        quorum_wire.from_response(REQUESTS[3], of_leader(values=(encode_metadata_record(record),)))


@pytest.mark.parametrize("value", [b"", b"value", b"\x01\x7f\x00", encode_metadata_record(NoOpRecord()) + b"more"])
def test_a_leaders_records_that_cannot_be_read_are_refused(value: bytes) -> None:
    with pytest.raises(quorum_wire.Inconsistent):
        quorum_wire.from_response(REQUESTS[3], of_leader(values=(value,)))


@pytest.mark.parametrize("endpoint", [Endpoint("C", "a" * 64, 1), Endpoint("C", "a", 0), Endpoint("C", "", 1)])
def test_a_leaders_voters_that_nobody_can_reach_are_refused(endpoint: Endpoint) -> None:
    voters = VoterSet.of([Voter(1, b"1" * 16, (endpoint,))])
    with pytest.raises(quorum_wire.Inconsistent, match="voter"):
        quorum_wire.from_response(REQUESTS[3], of_leader(control=(m.Voters(voters),)))


def test_a_request_cannot_exhaust_the_epochs() -> None:
    wire = travelled(quorum_wire.to_request(replace(REQUESTS[1], epoch=2_000), "cluster", OWN))
    with pytest.raises(KafkaError, match="too far ahead"):
        quorum_wire.to_core(wire, 2, 7, 999)
    assert quorum_wire.to_core(wire, 2, 7, 1_000).epoch == 2_000


@pytest.mark.parametrize("leader_id", [-2, -(2**31)])
def test_a_leader_with_an_id_that_no_node_has_is_not_believed(leader_id: int) -> None:
    wire = travelled(quorum_wire.to_response(replace(RESPONSES[0], leader_id=leader_id), {}))
    with pytest.raises(quorum_wire.Inconsistent):
        quorum_wire.from_response(REQUESTS[0], wire)
