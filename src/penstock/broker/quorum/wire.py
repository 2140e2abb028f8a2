"""Converts between the Raft core's messages and Kafka's: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot.

The core's messages contain nodes, epochs and offsets; Kafka's also name the cluster, the topic and addresses. All of
them concern one partition, `__cluster_metadata-0`. For each message of the core, `_LAYOUTS` gives its class on the wire
and the place of each field, for both directions. Nothing here waits or decides.

Messages from other nodes are not trusted: they must have the right structure and values that the core can process;
otherwise they are refused (a request with KafkaError, a response with `Inconsistent`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from penstock.metadata import CLUSTER_METADATA, MetadataError, check_voters, checked_values
from penstock.raft import NO_NODE, LogBatch, OffsetAndEpoch, ReplicaKey, VoterSet, batch_values, decode_batches
from penstock.raft import messages as m
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages import begin_quorum_epoch as begin
from penstock.wire.messages import end_quorum_epoch as end
from penstock.wire.messages import fetch, vote
from penstock.wire.messages import fetch_snapshot as snapshots
from penstock.wire.records import check_batch

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
PARTITION: Final = 0
FETCH_BYTES_MAX: Final = 8 << 20
"""The maximum size of one fetch of the metadata log, unless its first batch is larger."""
EPOCH_JUMP_MAX: Final = 1_000
"""How far ahead of this node's epoch a request may be. Epochs have 32 bits: if one request could move a node to the
last epoch, it could never take part in an election again. A node that was away for longer learns the epoch by
fetching."""
EPOCH_TOLD_MAX: Final = 1 << 30
"""The largest epoch accepted in a response. No real cluster reaches it: every epoch is an election."""
OFFSET_MAX: Final = 1 << 62
"""The largest offset accepted. Offsets have 64 bits: a log that began at the last one could never grow."""
WAIT_MS_MAX: Final = 60_000

Endpoints = Mapping[int, tuple[str, int]]
"""The addresses of the nodes' controllers."""

C = TypeVar("C", bound=m.Message)


class Inconsistent(Exception):
    """A response shows that the two nodes do not belong together, or is not about the metadata log."""


class _Layout(NamedTuple):
    wire: type[Message]
    fields: tuple[tuple[str, str], ...]
    """The core's field and Kafka's path to it, separated by dots; a leading dot means relative to the partition."""
    topics: str = "topics"
    topic: tuple[str, object] = ("topic_name", CLUSTER_METADATA)
    partition: str = "partition_index"


_REPLICA = (("source", "replica_id"), ("replica.id", "replica_id"), ("replica.directory_id", ".replica_directory_id"))
_ELECTED = (("error", ".error_code"), ("leader_id", ".leader_id"), ("epoch", ".leader_epoch"))
_LED = (
    ("error", ".error_code"),
    ("leader_id", ".current_leader.leader_id"),
    ("epoch", ".current_leader.leader_epoch"),
    ("snapshot.offset", ".snapshot_id.end_offset"),
    ("snapshot.epoch", ".snapshot_id.epoch"),
)

_LAYOUTS: Final[dict[type[m.Message], _Layout]] = {
    m.VoteRequest: _Layout(
        vote.VoteRequest,
        (
            ("source", ".replica_id"),
            ("epoch", ".replica_epoch"),
            ("candidate.id", ".replica_id"),
            ("candidate.directory_id", ".replica_directory_id"),
            ("voter.id", "voter_id"),
            ("voter.directory_id", ".voter_directory_id"),
            ("last_epoch", ".last_offset_epoch"),
            ("last_offset", ".last_offset"),
            ("pre_vote", ".pre_vote"),
        ),
    ),
    m.VoteResponse: _Layout(vote.VoteResponse, (*_ELECTED, ("granted", ".vote_granted"))),
    m.BeginQuorumEpochRequest: _Layout(
        begin.BeginQuorumEpochRequest,
        (
            ("source", ".leader_id"),
            ("epoch", ".leader_epoch"),
            ("voter.id", "voter_id"),
            ("voter.directory_id", ".voter_directory_id"),
        ),
    ),
    m.BeginQuorumEpochResponse: _Layout(begin.BeginQuorumEpochResponse, _ELECTED),
    m.EndQuorumEpochRequest: _Layout(
        end.EndQuorumEpochRequest,
        (("source", ".leader_id"), ("epoch", ".leader_epoch"), ("preferred", ".preferred_candidates")),
    ),
    m.EndQuorumEpochResponse: _Layout(end.EndQuorumEpochResponse, _ELECTED),
    m.FetchRequest: _Layout(
        fetch.FetchRequest,
        (
            ("source", "replica_state.replica_id"),
            ("replica.id", "replica_state.replica_id"),
            ("replica.directory_id", ".replica_directory_id"),
            ("epoch", ".current_leader_epoch"),
            ("offset", ".fetch_offset"),
            ("last_epoch", ".last_fetched_epoch"),
            ("high_watermark", ".high_watermark"),
            ("max_wait_ms", "max_wait_ms"),
        ),
        topic=("topic_id", METADATA_TOPIC_ID),
        partition="partition",
    ),
    m.FetchResponse: _Layout(
        fetch.FetchResponse,
        (
            *_LED,
            ("high_watermark", ".high_watermark"),
            ("diverging.offset", ".diverging_epoch.end_offset"),
            ("diverging.epoch", ".diverging_epoch.epoch"),
        ),
        topics="responses",
        topic=("topic_id", METADATA_TOPIC_ID),
    ),
    m.FetchSnapshotRequest: _Layout(
        snapshots.FetchSnapshotRequest,
        (
            *_REPLICA,
            ("epoch", ".current_leader_epoch"),
            ("snapshot.offset", ".snapshot_id.end_offset"),
            ("snapshot.epoch", ".snapshot_id.epoch"),
            ("position", ".position"),
            ("bytes_max", "max_bytes"),
        ),
        topic=("name", CLUSTER_METADATA),
        partition="partition",
    ),
    m.FetchSnapshotResponse: _Layout(
        snapshots.FetchSnapshotResponse,
        (*_LED, ("position", ".position"), ("size", ".size")),
        topic=("name", CLUSTER_METADATA),
        partition="index",
    ),
}
_REQUESTS: Final = {_LAYOUTS[cls].wire: cls for cls in m.Request.__args__}
_RESPONSES: Final = {_LAYOUTS[cls].wire: cls for cls in m.Response.__args__}
_NESTED: Final = {
    "candidate": ReplicaKey,
    "voter": ReplicaKey,
    "replica": ReplicaKey,
    "snapshot": OffsetAndEpoch,
    "diverging": OffsetAndEpoch,
}


# -- out -------------------------------------------------------------------------------------------------------------


def to_request(message: m.Request, cluster_id: str, own: tuple[str, str, int] | None) -> Message:
    """`own` is this node's controller listener (name, host, port), for requests that announce the leader's address."""
    wire: Any
    wire, partition = _to_wire(message)
    wire.cluster_id = cluster_id
    if isinstance(message, m.FetchRequest):
        wire.max_bytes = partition.partition_max_bytes = FETCH_BYTES_MAX
    if own is not None and hasattr(wire, "leader_endpoints"):
        wire.leader_endpoints = [_class_of(type(wire), "leader_endpoints")(name=own[0], host=own[1], port=own[2])]
    return wire  # type: ignore[no-any-return]


def to_response(message: m.Response, endpoints: Endpoints, data: bytes = b"", size: int = 0) -> Message:
    """`data` is the part of the log that the core asked for, or a part of a snapshot of `size` bytes."""
    wire: Any
    wire, partition = _to_wire(message)
    if isinstance(message, m.FetchResponse):
        partition.records = data
    elif isinstance(message, m.FetchSnapshotResponse):
        partition.unaligned_records, partition.size = data, size
    at = endpoints.get(message.leader_id)
    if at is not None:
        endpoint = _class_of(type(wire), "node_endpoints")
        wire.node_endpoints = [endpoint(node_id=message.leader_id, host=at[0], port=at[1])]
    return wire  # type: ignore[no-any-return]


def _to_wire(message: m.Message) -> tuple[Message, Any]:
    """The message and its one partition."""
    layout = _LAYOUTS[type(message)]
    topic_class = _class_of(layout.wire, layout.topics)
    partition = _class_of(topic_class, "partitions")()
    topic = topic_class(**{layout.topic[0]: layout.topic[1], "partitions": [partition]})
    wire = layout.wire(**{layout.topics: [topic]})
    for path, place in layout.fields:
        value = _look(message, path)
        if path == "preferred":
            value = [end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in value]
        if value is not None:
            _put(partition if place.startswith(".") else wire, place.removeprefix("."), value)
    return wire, partition


def _class_of(cls: type[Message], field: str) -> type[Message]:
    kind = next(known.type for known in cls.schema.fields if known.name == field)
    assert not isinstance(kind, str)
    return kind


def _look(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def _put(target: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        if getattr(target, name) is None:
            setattr(target, name, _class_of(type(target), name)())
        target = getattr(target, name)
    setattr(target, last, value)


# -- in --------------------------------------------------------------------------------------------------------------


def check_cluster(theirs: str | None, ours: str) -> None:
    if theirs is not None and theirs != ours:
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"Expected cluster ID {ours}, but got cluster ID {theirs}")


def to_core(request: Message, target: int, number: int, epoch: int = 0) -> m.Request:
    """Convert a request from another node; the core is in `epoch`. Raises KafkaError if it is invalid."""
    values = _from_wire(_REQUESTS[type(request)], request)
    if any(value is None for value in values.values()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request lacks a replica or a log position")
    if values["source"] < 0 or values["source"] == target:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"node {target} got a request in the name of {values['source']}")
    _check_epoch(values["epoch"], epoch + EPOCH_JUMP_MAX)
    if "max_wait_ms" in values:
        values["max_wait_ms"] = max(0, min(values["max_wait_ms"], WAIT_MS_MAX))
    if values.get("offset", 0) < 0 or values.get("position", 0) < 0 or values.get("bytes_max", 0) < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a position in a log or snapshot must not be negative")
    core: m.Request = _REQUESTS[type(request)](target=target, request_id=number, **values)
    return core


def from_response(request: m.Request, response: Message, epoch: int = 0) -> m.Response:
    """Convert a response for the core, which is in `epoch`.

    Raises Inconsistent for a response with a top-level error, about something else, or with implausible values.
    """
    code = ErrorCode(getattr(response, "error_code", 0))
    if code != ErrorCode.NONE:
        raise Inconsistent(KafkaError(code).message or code.name)
    cls = _RESPONSES.get(type(response))
    if cls is None:
        raise Inconsistent(f"{type(response).__name__} is not a response to a quorum request")
    try:
        values = _from_wire(cls, response)
        _check_epoch(max(values["epoch"], 0), max(EPOCH_TOLD_MAX, epoch + EPOCH_JUMP_MAX))
        for place in (values.get("snapshot"), values.get("diverging")):
            if place is not None and place.offset > OFFSET_MAX:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {place.offset} is implausible")
        if values["leader_id"] < NO_NODE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{values['leader_id']} is not a valid leader id")
        data = _partition(_LAYOUTS[cls], response)
        if cls is m.FetchResponse:
            values["batches"] = _batches(data.records)
        elif cls is m.FetchSnapshotResponse:
            if values["snapshot"] is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the response names no snapshot")
            values["data"] = bytes(data.unaligned_records or b"")
    except KafkaError as error:
        raise Inconsistent(error.message) from None
    answered: m.Response = cls(source=request.target, target=request.source, request_id=request.request_id, **values)
    return answered


def _from_wire(cls: type[m.Message], wire: Message) -> dict[str, Any]:
    """The core's fields. A pair that is missing, or marked as absent by a negative number, is None."""
    layout = _LAYOUTS[cls]
    partition = _partition(layout, wire)
    values: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for path, place in layout.fields:
        value = _look(partition if place.startswith(".") else wire, place.removeprefix("."))
        if path == "error":
            value = ErrorCode(value)
        elif path == "preferred":
            value = tuple(ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in value)
        name, _, part = path.partition(".")
        if part:
            nested.setdefault(name, {})[part] = value
        else:
            values[name] = NO_NODE if value is None else value
    for name, parts in nested.items():
        is_there = all(part is not None and (isinstance(part, bytes) or part >= 0) for part in parts.values())
        values[name] = _NESTED[name](**parts) if is_there else None
    return values


def _partition(layout: _Layout, wire: Message) -> Any:
    """The single partition of the single topic in these messages."""
    topics = getattr(wire, layout.topics)
    name, value = layout.topic
    if len(topics) != 1 or getattr(topics[0], name) != value:
        reason = f"only {CLUSTER_METADATA}-{PARTITION} is replicated by the quorum"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    partitions = topics[0].partitions
    if len(partitions) != 1 or getattr(partitions[0], layout.partition) != PARTITION:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{CLUSTER_METADATA} has one partition, {PARTITION}")
    return partitions[0]


def _check_epoch(epoch: int, epoch_max: int) -> None:
    if not 0 <= epoch <= epoch_max:
        reason = f"epoch {epoch} is negative or too far ahead of this node's"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _batches(records: Any) -> tuple[LogBatch, ...]:
    try:
        batches = tuple(decode_batches(records)) if records else ()
        for batch in batches:
            check_batch(batch.data)
            for record in batch.control:
                if isinstance(record, m.Voters):
                    check_voters(record.voter_set)
            deque(checked_values(batch_values(batch)), maxlen=0)
    except (WireError, MetadataError, ValueError) as error:
        raise Inconsistent(f"the batches are not valid in the metadata log: {error}") from None
    return batches


# -- where nodes are -------------------------------------------------------------------------------------------------


def endpoints_in(message: Message) -> dict[int, tuple[str, int]]:
    """The node addresses in a response."""
    told = getattr(message, "node_endpoints", [])
    return {endpoint.node_id: (endpoint.host, endpoint.port) for endpoint in told}


def voter_endpoints(voters: VoterSet) -> dict[int, tuple[str, int]]:
    return {voter.id: (voter.endpoints[0].host, voter.endpoints[0].port) for voter in voters.voters if voter.endpoints}
