"""The quorum's messages ↔ Kafka's: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot.

The core's messages know nodes, epochs and offsets; Kafka's also name the cluster, the topic and where nodes listen.
All of them speak of one partition, `__cluster_metadata-0`. Nothing here waits or decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from penstock.metadata import CLUSTER_METADATA
from penstock.raft import OffsetAndEpoch, ReplicaKey, VoterSet, decode_batches
from penstock.raft import messages as m
from penstock.raft.types import NO_NODE, UNKNOWN_OFFSET
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages import begin_quorum_epoch as begin
from penstock.wire.messages import end_quorum_epoch as end
from penstock.wire.messages import fetch, vote
from penstock.wire.messages import fetch_snapshot as snapshots

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
PARTITION: Final = 0
FETCH_BYTES_MAX: Final = 8 << 20
"""What one fetch of the metadata log brings at most, if its first batch is not larger."""

Endpoints = Mapping[int, tuple[str, int]]
"""Where the controllers of these nodes listen."""


T = TypeVar("T")


class Inconsistent(Exception):
    """An answer that says the two nodes do not belong together, or is not about the metadata log."""


# -- requests: from the core -----------------------------------------------------------------------------------------


def to_request(message: m.Request, cluster_id: str, own: tuple[str, str, int] | None) -> Message:
    """`own` is this node's controller listener (name, host, port), for those who are told where the leader is."""
    match message:
        case m.VoteRequest():
            return vote.VoteRequest(
                cluster_id=cluster_id,
                voter_id=message.voter.id,
                topics=[
                    vote.VoteRequestTopicData(
                        topic_name=CLUSTER_METADATA,
                        partitions=[
                            vote.VoteRequestPartitionData(
                                partition_index=PARTITION,
                                replica_epoch=message.epoch,
                                replica_id=message.candidate.id,
                                replica_directory_id=message.candidate.directory_id,
                                voter_directory_id=message.voter.directory_id,
                                last_offset_epoch=message.last_epoch,
                                last_offset=message.last_offset,
                                pre_vote=message.pre_vote,
                            )
                        ],
                    )
                ],
            )
        case m.BeginQuorumEpochRequest():
            return begin.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=message.voter.id,
                topics=[
                    begin.BeginQuorumEpochRequestTopicData(
                        topic_name=CLUSTER_METADATA,
                        partitions=[
                            begin.BeginQuorumEpochRequestPartitionData(
                                partition_index=PARTITION,
                                voter_directory_id=message.voter.directory_id,
                                leader_id=message.source,
                                leader_epoch=message.epoch,
                            )
                        ],
                    )
                ],
                leader_endpoints=[begin.LeaderEndpoint(name=own[0], host=own[1], port=own[2])] if own else [],
            )
        case m.EndQuorumEpochRequest():
            return end.EndQuorumEpochRequest(
                cluster_id=cluster_id,
                topics=[
                    end.EndQuorumEpochRequestTopicData(
                        topic_name=CLUSTER_METADATA,
                        partitions=[
                            end.EndQuorumEpochRequestPartitionData(
                                partition_index=PARTITION,
                                leader_id=message.source,
                                leader_epoch=message.epoch,
                                preferred_candidates=[
                                    end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                                    for key in message.preferred
                                ],
                            )
                        ],
                    )
                ],
                leader_endpoints=[end.LeaderEndpoint(name=own[0], host=own[1], port=own[2])] if own else [],
            )
        case m.FetchRequest():
            return fetch.FetchRequest(
                cluster_id=cluster_id,
                replica_state=fetch.ReplicaState(replica_id=message.replica.id),
                max_wait_ms=message.max_wait_ms,
                max_bytes=FETCH_BYTES_MAX,
                topics=[
                    fetch.FetchTopic(
                        topic_id=METADATA_TOPIC_ID,
                        partitions=[
                            fetch.FetchPartition(
                                partition=PARTITION,
                                current_leader_epoch=message.epoch,
                                fetch_offset=message.offset,
                                last_fetched_epoch=message.last_epoch,
                                partition_max_bytes=FETCH_BYTES_MAX,
                                replica_directory_id=message.replica.directory_id,
                                high_watermark=message.high_watermark,
                            )
                        ],
                    )
                ],
            )
        case m.FetchSnapshotRequest():
            return snapshots.FetchSnapshotRequest(
                cluster_id=cluster_id,
                replica_id=message.replica.id,
                max_bytes=message.bytes_max,
                topics=[
                    snapshots.FetchSnapshotRequestTopicSnapshot(
                        name=CLUSTER_METADATA,
                        partitions=[
                            snapshots.FetchSnapshotRequestPartitionSnapshot(
                                partition=PARTITION,
                                current_leader_epoch=message.epoch,
                                snapshot_id=snapshots.FetchSnapshotRequestSnapshotId(
                                    end_offset=message.snapshot.offset, epoch=message.snapshot.epoch
                                ),
                                position=message.position,
                                replica_directory_id=message.replica.directory_id,
                            )
                        ],
                    )
                ],
            )


# -- requests: to the core -------------------------------------------------------------------------------------------


def check_cluster(theirs: str | None, ours: str) -> None:
    if theirs is not None and theirs != ours:
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"Expected cluster ID {ours}, but got cluster ID {theirs}")


def vote_request(request: vote.VoteRequest, target: int, number: int) -> m.VoteRequest:
    data = _only(request.topics, lambda topic: topic.topic_name == CLUSTER_METADATA)
    return m.VoteRequest(
        data.replica_id,
        target,
        number,
        data.replica_epoch,
        ReplicaKey(data.replica_id, data.replica_directory_id),
        ReplicaKey(request.voter_id, data.voter_directory_id),
        data.last_offset_epoch,
        data.last_offset,
        data.pre_vote,
    )


def begin_request(
    request: begin.BeginQuorumEpochRequest, target: int, number: int
) -> m.BeginQuorumEpochRequest:
    data = _only(request.topics, lambda topic: topic.topic_name == CLUSTER_METADATA)
    voter = ReplicaKey(request.voter_id, data.voter_directory_id)
    return m.BeginQuorumEpochRequest(data.leader_id, target, number, data.leader_epoch, voter)


def end_request(request: end.EndQuorumEpochRequest, target: int, number: int) -> m.EndQuorumEpochRequest:
    data = _only(request.topics, lambda topic: topic.topic_name == CLUSTER_METADATA)
    preferred = tuple(
        ReplicaKey(replica.candidate_id, replica.candidate_directory_id) for replica in data.preferred_candidates
    )
    return m.EndQuorumEpochRequest(data.leader_id, target, number, data.leader_epoch, preferred)


def fetch_request(request: fetch.FetchRequest, target: int, number: int) -> m.FetchRequest:
    data = _only(request.topics, lambda topic: topic.topic_id == METADATA_TOPIC_ID)
    replica_id = request.replica_state.replica_id if request.replica_state is not None else NO_NODE
    if replica_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the metadata log is for replicas of the quorum and brokers only")
    return m.FetchRequest(
        replica_id,
        target,
        number,
        ReplicaKey(replica_id, data.replica_directory_id),
        data.current_leader_epoch,
        data.fetch_offset,
        data.last_fetched_epoch,
        data.high_watermark,
        request.max_wait_ms,
    )


def snapshot_request(request: snapshots.FetchSnapshotRequest, target: int, number: int) -> m.FetchSnapshotRequest:
    data = _only(request.topics, lambda topic: topic.name == CLUSTER_METADATA)
    return m.FetchSnapshotRequest(
        request.replica_id,
        target,
        number,
        ReplicaKey(request.replica_id, data.replica_directory_id),
        data.current_leader_epoch,
        OffsetAndEpoch(data.snapshot_id.end_offset, data.snapshot_id.epoch),
        data.position,
        request.max_bytes,
    )


def _only(topics: Sequence[T], is_ours: Callable[[T], bool]) -> Any:
    """The one partition of the one topic that these messages are about."""
    if len(topics) != 1 or not is_ours(topics[0]):
        reason = f"only {CLUSTER_METADATA}-{PARTITION} is kept by a quorum"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    partitions = topics[0].partitions  # type: ignore[attr-defined]
    if len(partitions) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{CLUSTER_METADATA} has one partition")
    return partitions[0]


# -- responses: from the core ----------------------------------------------------------------------------------------


def to_response(message: m.Response, endpoints: Endpoints, data: bytes = b"", size: int = 0) -> Message:
    """`data` is what the core wants to be read from the log, or the piece of a snapshot that has `size` in all."""
    at = endpoints.get(message.leader_id)
    match message:
        case m.VoteResponse():
            return vote.VoteResponse(
                topics=[
                    vote.VoteResponseTopicData(
                        topic_name=CLUSTER_METADATA,
                        partitions=[
                            vote.VoteResponsePartitionData(
                                partition_index=PARTITION,
                                error_code=message.error,
                                leader_id=message.leader_id,
                                leader_epoch=message.epoch,
                                vote_granted=message.granted,
                            )
                        ],
                    )
                ],
                node_endpoints=[vote.NodeEndpoint(node_id=message.leader_id, host=at[0], port=at[1])] if at else [],
            )
        case m.BeginQuorumEpochResponse():
            return begin.BeginQuorumEpochResponse(
                topics=[
                    begin.BeginQuorumEpochResponseTopicData(
                        topic_name=CLUSTER_METADATA,
                        partitions=[
                            begin.BeginQuorumEpochResponsePartitionData(
                                partition_index=PARTITION,
                                error_code=message.error,
                                leader_id=message.leader_id,
                                leader_epoch=message.epoch,
                            )
                        ],
                    )
                ],
                node_endpoints=[begin.NodeEndpoint(node_id=message.leader_id, host=at[0], port=at[1])] if at else [],
            )
        case m.EndQuorumEpochResponse():
            return end.EndQuorumEpochResponse(
                topics=[
                    end.EndQuorumEpochResponseTopicData(
                        topic_name=CLUSTER_METADATA,
                        partitions=[
                            end.EndQuorumEpochResponsePartitionData(
                                partition_index=PARTITION,
                                error_code=message.error,
                                leader_id=message.leader_id,
                                leader_epoch=message.epoch,
                            )
                        ],
                    )
                ],
                node_endpoints=[end.NodeEndpoint(node_id=message.leader_id, host=at[0], port=at[1])] if at else [],
            )
        case m.FetchResponse():
            return fetch.FetchResponse(
                responses=[
                    fetch.FetchableTopicResponse(
                        topic_id=METADATA_TOPIC_ID,
                        partitions=[
                            fetch.PartitionData(
                                partition_index=PARTITION,
                                error_code=message.error,
                                high_watermark=message.high_watermark,
                                diverging_epoch=(
                                    None
                                    if message.diverging is None
                                    else fetch.EpochEndOffset(
                                        epoch=message.diverging.epoch, end_offset=message.diverging.offset
                                    )
                                ),
                                current_leader=fetch.LeaderIdAndEpoch(
                                    leader_id=message.leader_id, leader_epoch=message.epoch
                                ),
                                snapshot_id=(
                                    None
                                    if message.snapshot is None
                                    else fetch.SnapshotId(
                                        end_offset=message.snapshot.offset, epoch=message.snapshot.epoch
                                    )
                                ),
                                records=data,
                            )
                        ],
                    )
                ],
                node_endpoints=[fetch.NodeEndpoint(node_id=message.leader_id, host=at[0], port=at[1])] if at else [],
            )
        case m.FetchSnapshotResponse():
            return snapshots.FetchSnapshotResponse(
                topics=[
                    snapshots.FetchSnapshotResponseTopicSnapshot(
                        name=CLUSTER_METADATA,
                        partitions=[
                            snapshots.FetchSnapshotResponsePartitionSnapshot(
                                index=PARTITION,
                                error_code=message.error,
                                snapshot_id=snapshots.FetchSnapshotResponseSnapshotId(
                                    end_offset=message.snapshot.offset, epoch=message.snapshot.epoch
                                ),
                                current_leader=snapshots.LeaderIdAndEpoch(
                                    leader_id=message.leader_id, leader_epoch=message.epoch
                                ),
                                size=size,
                                position=message.position,
                                unaligned_records=data,
                            )
                        ],
                    )
                ],
                node_endpoints=(
                    [snapshots.NodeEndpoint(node_id=message.leader_id, host=at[0], port=at[1])] if at else []
                ),
            )


# -- responses: to the core ------------------------------------------------------------------------------------------


def from_response(request: m.Request, response: Message) -> m.Response:
    """What the core is told. Raises Inconsistent for an answer that is an error as a whole, or about something else."""
    source, target, number = request.target, request.source, request.request_id
    code = ErrorCode(getattr(response, "error_code", 0))
    if code != ErrorCode.NONE:
        raise Inconsistent(KafkaError(code).message or code.name)
    try:
        match response:
            case vote.VoteResponse():
                voted = _only(response.topics, lambda topic: topic.topic_name == CLUSTER_METADATA)
                error = ErrorCode(voted.error_code)
                return m.VoteResponse(
                    source, target, number, error, voted.leader_id, voted.leader_epoch, voted.vote_granted
                )
            case begin.BeginQuorumEpochResponse():
                begun = _only(response.topics, lambda topic: topic.topic_name == CLUSTER_METADATA)
                error = ErrorCode(begun.error_code)
                return m.BeginQuorumEpochResponse(source, target, number, error, begun.leader_id, begun.leader_epoch)
            case end.EndQuorumEpochResponse():
                ended = _only(response.topics, lambda topic: topic.topic_name == CLUSTER_METADATA)
                error = ErrorCode(ended.error_code)
                return m.EndQuorumEpochResponse(source, target, number, error, ended.leader_id, ended.leader_epoch)
            case fetch.FetchResponse():
                return _fetched(request, response)
            case snapshots.FetchSnapshotResponse():
                return _snapshot_piece(request, response)
    except KafkaError as error_found:
        raise Inconsistent(error_found.message) from None
    raise Inconsistent(f"{type(response).__name__} answers no request of the quorum")


def _fetched(request: m.Request, response: fetch.FetchResponse) -> m.FetchResponse:
    data = _only(response.responses, lambda topic: topic.topic_id == METADATA_TOPIC_ID)
    leader = data.current_leader or fetch.LeaderIdAndEpoch()
    diverging = data.diverging_epoch
    snapshot = data.snapshot_id
    try:
        batches = tuple(decode_batches(data.records)) if data.records else ()
    except WireError as error:
        raise Inconsistent(f"damaged batches in the metadata log: {error}") from None
    return m.FetchResponse(
        request.target,
        request.source,
        request.request_id,
        ErrorCode(data.error_code),
        leader.leader_id,
        leader.leader_epoch,
        data.high_watermark,
        None if diverging is None or diverging.epoch < 0 else OffsetAndEpoch(diverging.end_offset, diverging.epoch),
        None if snapshot is None or snapshot.end_offset < 0 else OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
        UNKNOWN_OFFSET,
        batches,
    )


def _snapshot_piece(request: m.Request, response: snapshots.FetchSnapshotResponse) -> m.FetchSnapshotResponse:
    data = _only(response.topics, lambda topic: topic.name == CLUSTER_METADATA)
    leader = data.current_leader or snapshots.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
    return m.FetchSnapshotResponse(
        request.target,
        request.source,
        request.request_id,
        ErrorCode(data.error_code),
        leader.leader_id,
        leader.leader_epoch,
        OffsetAndEpoch(data.snapshot_id.end_offset, data.snapshot_id.epoch),
        data.position,
        0,
        data.size,
        bytes(data.unaligned_records or b""),
    )


def endpoints_in(message: Message) -> dict[int, tuple[str, int]]:
    """Where nodes listen, as far as an answer tells."""
    told = getattr(message, "node_endpoints", [])
    return {endpoint.node_id: (endpoint.host, endpoint.port) for endpoint in told}


def voter_endpoints(voters: VoterSet) -> dict[int, tuple[str, int]]:
    return {
        voter.id: (voter.endpoints[0].host, voter.endpoints[0].port) for voter in voters.voters if voter.endpoints
    }
