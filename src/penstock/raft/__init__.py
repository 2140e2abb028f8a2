"""The quorum that agrees on the metadata log: KRaft's protocol as a pure core.

Event in, `Ready` out. The core does no I/O and awaits nothing; clock and randomness are passed in. Equal inputs give
equal outputs, so whole clusters of cores run in a loop (`penstock.sim.raft`) and every failure can be replayed. The
shell around it owns the log, the disk and the network, and carries out each `Ready` in the order it states.

Theory of operation
-------------------
Replicas *pull*: a follower sends Fetch with the end of its durable log and its last epoch. That one request asks for
more, acknowledges what the follower has, and lets the leader check that both logs agree. If they do not, the response
names the epoch and offset to truncate to; if the leader no longer has the records needed, it names a snapshot.

A record is committed once a majority of the voters has *synced* it and the leader has committed a record of its own
epoch. State that a message depends on is made durable first: epoch and vote are synced before an answer is sent, the
log before the fetch that acknowledges it.

Roles and what changes them (any role: a newer epoch → unattached, or follower where its leader is known):

    from                  on                                            to
    start                 only voter                                    candidate, at once leader
        start                 leader known, another node                    follower
        start                 otherwise                                     unattached
        unattached            learns the leader                             follower
    unattached            election timeout, voter                       prospective
    follower              fetch timeout, or the leader resigned         prospective (voter), unattached (observer)
    prospective           majority of pre-votes                         candidate, epoch + 1
    prospective           its old leader responds after all             follower
    candidate             majority of votes                             leader
    candidate             rejected, or election timeout                 prospective
    leader                majority silent (check-quorum), removed       unattached
                          from the voters, or asked to resign

Voters are node ids *with* directory ids, and the voter set is a record of the log (KIP-853), in force as soon as it
is appended. It changes by one voter at a time; each change must be committed before the next. Replicas outside the set
are observers: they follow and never vote. A replica whose log lost records that it may have acknowledged
(`HardState.suspect`) follows, but takes no part in elections until it holds everything committed again.

No message from another node can crash this one. Messages that contradict the protocol (a second leader of one epoch, a
gap in the log, a truncation below the high watermark) are ignored and reported in `Ready.contradictions`. Possible
causes are forged messages, or a data directory replaced by an older copy; records committed here stay.

Modules: `core` (role, epoch, vote, elections), `leading`, `following`, `log_view` (what the core knows of the log),
`messages` (everything that goes in and out), `types`, and the formats on disk: `control` (batches ↔ bytes),
`snapshot_file`, `quorum_state`.
"""

from penstock.raft.control import (
    batch_values,
    build_control_batch,
    control_records,
    decode_batch,
    decode_batches,
    encode_batch,
)
from penstock.raft.core import RaftCore
from penstock.raft.log_view import LogView
from penstock.raft.messages import (
    AddVoter,
    ControlRecord,
    Event,
    KRaftVersion,
    LeaderChange,
    LeaderGone,
    Leadership,
    LogBatch,
    Message,
    Persisted,
    Propose,
    Proposed,
    QuorumInfo,
    Ready,
    RemoveVoter,
    ReplicaInfo,
    RequestFailed,
    Resign,
    SnapshotChunk,
    SnapshotFooter,
    SnapshotHeader,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotTaken,
    Tick,
    VoterChangeResult,
    Voters,
)
from penstock.raft.quorum_state import QuorumStateError, format_quorum_state, parse_quorum_state
from penstock.raft.snapshot_file import (
    BOOTSTRAP_SNAPSHOT,
    Snapshot,
    SnapshotError,
    parse_snapshot_name,
    read_snapshot,
    snapshot_batches,
    snapshot_name,
)
from penstock.raft.types import (
    ANY_BOOTSTRAP_SERVER,
    KRAFT_VERSION,
    NO_NODE,
    Endpoint,
    HardState,
    OffsetAndEpoch,
    RaftConfig,
    ReplicaKey,
    Role,
    Voter,
    VoterSet,
)

__all__ = [
    "ANY_BOOTSTRAP_SERVER",
    "BOOTSTRAP_SNAPSHOT",
    "KRAFT_VERSION",
    "NO_NODE",
    "AddVoter",
    "ControlRecord",
    "Endpoint",
    "Event",
    "HardState",
    "KRaftVersion",
    "LeaderChange",
    "LeaderGone",
    "Leadership",
    "LogBatch",
    "LogView",
    "Message",
    "OffsetAndEpoch",
    "Persisted",
    "Propose",
    "Proposed",
    "QuorumInfo",
    "QuorumStateError",
    "RaftConfig",
    "RaftCore",
    "Ready",
    "RemoveVoter",
    "ReplicaInfo",
    "ReplicaKey",
    "RequestFailed",
    "Resign",
    "Role",
    "Snapshot",
    "SnapshotChunk",
    "SnapshotError",
    "SnapshotFooter",
    "SnapshotHeader",
    "SnapshotInstalled",
    "SnapshotRefused",
    "SnapshotTaken",
    "Tick",
    "Voter",
    "VoterChangeResult",
    "VoterSet",
    "Voters",
    "batch_values",
    "build_control_batch",
    "control_records",
    "decode_batch",
    "decode_batches",
    "encode_batch",
    "format_quorum_state",
    "parse_quorum_state",
    "parse_snapshot_name",
    "read_snapshot",
    "snapshot_batches",
    "snapshot_name",
]
