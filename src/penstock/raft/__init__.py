"""The quorum that agrees on the metadata log: KRaft's protocol as a pure core.

Event in, `Ready` out. The core does no I/O, awaits nothing, knows no clock and no randomness but what it is given;
equal inputs give equal outputs, so whole clusters of cores run in a loop (`penstock.sim.raft`) and every
failure replays. The shell around it owns the log, the disk and the network, and does what each `Ready` says, in the
order that `Ready` says.

Theory of operation
-------------------
Replicas *pull*: a follower sends Fetch with the end of its durable log and its last epoch. That one request asks for
more, acknowledges what it has, and lets the leader check that both logs agree; where they do not, the answer names
the place (epoch and offset) to truncate to, and where the leader no longer has the beginning, a snapshot.

Committed is what a majority of the voters holds *synced*, once the leader has committed a record of its own epoch.
Nothing that a message depends on may be lost: epoch and vote are synced before an answer leaves, the log before the
fetch that acknowledges it.

Roles and what changes them (any role: a newer epoch → unattached, or follower where its leader is known):

    from                  on                                            to
    start                 only voter                                    candidate, at once leader
    start                 leader known, not oneself                     follower
    start                 else                                          unattached
    unattached            told who leads                                follower
    unattached            election timeout, voter                       prospective
    follower              fetch timeout, or the leader resigned         prospective (voter), unattached (observer)
    prospective           majority of pre-votes                         candidate, epoch + 1
    prospective           its old leader answers after all              follower
    candidate             majority of votes                             leader
    candidate             rejected, or election timeout                 prospective
    leader                majority silent (check-quorum), removed       unattached
                          from the voters, or asked to resign

Voters are node ids *with* directory ids, and the voter set is a record of the log (KIP-853), in force as soon as it
is appended. It changes by one voter at a time, the next only when the last is committed. Replicas outside of it are
observers: they follow and never vote. A replica whose log lost what it may have acknowledged (`HardState.suspect`)
follows, but takes no part in elections until it holds again all that is committed.

Nothing that another node says ends this one. What cannot be true while everybody keeps the rules (a second leader of
one epoch, a gap in the log, a cut below the high watermark) is left aside and told (`Ready.contradictions`): someone
forges, or a data directory was replaced by an older copy, and what is committed here stays.

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
