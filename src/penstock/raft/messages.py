"""The core's input and output: batches, requests and responses, local events, and `Ready`.

Requests and responses mirror Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot; the shell
translates. `request_id` pairs a response with its request, like a correlation id; only a response to the latest request
of its kind is used.
"""

from __future__ import annotations

import msgspec

from penstock.raft.types import NO_NODE, UNKNOWN_OFFSET, HardState, OffsetAndEpoch, ReplicaKey, Role, Voter, VoterSet
from penstock.wire.errors import ErrorCode

# -- batches of the log ----------------------------------------------------------------------------------------------


class LeaderChange(msgspec.Struct, frozen=True):
    """The first record of every epoch: its leader, the voters, and the voters that granted their vote (node ids)."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class KRaftVersion(msgspec.Struct, frozen=True):
    level: int


class Voters(msgspec.Struct, frozen=True):
    """The voter set from this record on."""

    voter_set: VoterSet


class SnapshotHeader(msgspec.Struct, frozen=True):
    last_contained_log_timestamp_ms: int


class SnapshotFooter(msgspec.Struct, frozen=True):
    pass


ControlRecord = LeaderChange | KRaftVersion | Voters | SnapshotHeader | SnapshotFooter


class LogBatch(msgspec.Struct, frozen=True):
    """One batch of the log. A leader makes it from `control` records or `values`; a follower receives it as `data`."""

    base_offset: int
    count: int
    epoch: int
    control: tuple[ControlRecord, ...] = ()
    values: tuple[bytes, ...] = ()
    data: bytes = b""

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


# -- requests and responses ------------------------------------------------------------------------------------------


class VoteRequest(msgspec.Struct, frozen=True):
    source: int
    target: int
    request_id: int
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    last_offset: int
    pre_vote: bool


class VoteResponse(msgspec.Struct, frozen=True):
    source: int
    target: int
    request_id: int
    error: ErrorCode
    leader_id: int
    epoch: int
    granted: bool = False


class BeginQuorumEpochRequest(msgspec.Struct, frozen=True):
    source: int
    target: int
    request_id: int
    epoch: int
    voter: ReplicaKey


class BeginQuorumEpochResponse(msgspec.Struct, frozen=True):
    source: int
    target: int
    request_id: int
    error: ErrorCode
    leader_id: int
    epoch: int


class EndQuorumEpochRequest(msgspec.Struct, frozen=True):
    source: int
    target: int
    request_id: int
    epoch: int
    preferred: tuple[ReplicaKey, ...]


class EndQuorumEpochResponse(msgspec.Struct, frozen=True):
    source: int
    target: int
    request_id: int
    error: ErrorCode
    leader_id: int
    epoch: int


class FetchRequest(msgspec.Struct, frozen=True):
    """`offset` is the end of the replica's durable log, so the request is also its acknowledgement."""

    source: int
    target: int
    request_id: int
    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    # The replica's high watermark: a leader with a higher one answers at once (KIP-1166).
    high_watermark: int
    max_wait_ms: int


class FetchResponse(msgspec.Struct, frozen=True):
    """The leader's core sets `read_from`, the range for the shell to read; the follower's core gets `batches`."""

    source: int
    target: int
    request_id: int
    error: ErrorCode
    leader_id: int
    epoch: int
    high_watermark: int = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    read_from: int = UNKNOWN_OFFSET
    batches: tuple[LogBatch, ...] = ()


class FetchSnapshotRequest(msgspec.Struct, frozen=True):
    source: int
    target: int
    request_id: int
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int


class FetchSnapshotResponse(msgspec.Struct, frozen=True):
    """The leader's shell fills in `size` and `data` from the snapshot's file."""

    source: int
    target: int
    request_id: int
    error: ErrorCode
    leader_id: int
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int = 0
    size: int = 0
    data: bytes = b""


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
Response = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse | FetchSnapshotResponse
Message = Request | Response

# -- local events ----------------------------------------------------------------------------------------------------


class Tick(msgspec.Struct, frozen=True):
    """The deadline of the last `Ready` has come."""


class Persisted(msgspec.Struct, frozen=True):
    """All changes of the log so far are synced, and it ends at `end_offset`."""

    end_offset: int


class Propose(msgspec.Struct, frozen=True):
    """Append these values as one atomic batch, if this replica still leads `epoch`."""

    epoch: int
    values: tuple[bytes, ...]


class SnapshotTaken(msgspec.Struct, frozen=True):
    """The state machine wrote a durable snapshot of committed records; the log now starts at `log_start_offset`."""

    snapshot: OffsetAndEpoch
    log_start_offset: int


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """The snapshot in `Ready.install` has durably replaced the log. `voters` come from its records."""

    snapshot: OffsetAndEpoch
    voter_set: VoterSet


class SnapshotRefused(msgspec.Struct, frozen=True):
    """The bytes fetched for the snapshot in `Ready.install` are not a valid snapshot; nothing was changed."""

    snapshot: OffsetAndEpoch


class RequestFailed(msgspec.Struct, frozen=True):
    """A request got no answer: the connection broke or timed out."""

    request_id: int


class LeaderGone(msgspec.Struct, frozen=True):
    """The leader's host reports that no process listens there any more. Only a hint: elections decide."""

    leader_id: int
    epoch: int


class AddVoter(msgspec.Struct, frozen=True):
    operation_id: int
    voter: Voter


class RemoveVoter(msgspec.Struct, frozen=True):
    operation_id: int
    key: ReplicaKey


class Resign(msgspec.Struct, frozen=True):
    """Gives up leadership in favour of the best follower, for example before a clean stop."""


LocalEvent = (
    Tick
    | Persisted
    | Propose
    | SnapshotTaken
    | SnapshotInstalled
    | SnapshotRefused
    | RequestFailed
    | LeaderGone
    | AddVoter
    | RemoveVoter
    | Resign
)
Event = LocalEvent | Message

# -- output for the shell --------------------------------------------------------------------------------------------


class Leadership(msgspec.Struct, frozen=True):
    """The leader, as far as this replica knows."""

    role: Role
    leader_id: int
    epoch: int


class Proposed(msgspec.Struct, frozen=True):
    """A proposal was appended; it is committed when the high watermark reaches `end_offset`."""

    base_offset: int
    end_offset: int


class SnapshotChunk(msgspec.Struct, frozen=True):
    """Bytes to write into the partial snapshot file; position 0 starts a new file."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


class VoterChangeResult(msgspec.Struct, frozen=True):
    operation_id: int
    error: ErrorCode
    message: str = ""


class Ready(msgspec.Struct):
    """What the shell must do, in this order, before the next step:

    1. write `hard_state` and sync it;
    2. truncate the log to `truncate_to`, then write the batches of `append`; no sync needed yet;
    3. send `messages`, reading the log where a response says so;
    4. write `snapshot_chunk`; finish and install the snapshot `install`, then step `SnapshotInstalled`, or
       `SnapshotRefused` if it is not valid;
    5. sync the log if it changed, then step `Persisted`. Steps in between are allowed;
    6. hand everything below `high_watermark` to the state machine, publish `leadership`, answer `results`.

    A failure in 1, 2, 4 or 5 must end the process: later steps assume that it succeeded.
    """

    hard_state: HardState | None = None
    truncate_to: int | None = None
    append: list[LogBatch] = []
    messages: list[Message] = []
    snapshot_chunk: SnapshotChunk | None = None
    install: OffsetAndEpoch | None = None
    high_watermark: int | None = None
    leadership: Leadership | None = None
    proposed: Proposed | None = None
    results: list[VoterChangeResult] = []
    # Messages from other nodes that contradict the protocol; they were ignored.
    contradictions: list[str] = []
    deadline_ms: float = float("inf")


class ReplicaInfo(msgspec.Struct, frozen=True):
    """One replica in DescribeQuorum."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: float
    last_caught_up_ms: float


class QuorumInfo(msgspec.Struct, frozen=True):
    """The result of DescribeQuorum on the leader."""

    leader_id: int = NO_NODE
    epoch: int = 0
    high_watermark: int = UNKNOWN_OFFSET
    voters: tuple[ReplicaInfo, ...] = ()
    observers: tuple[ReplicaInfo, ...] = ()
