"""The quorum's basic types: replicas, voters, offsets, persisted state, and timeouts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec

NO_NODE = -1
# The target of a request that any node may answer, for a replica that knows no voters yet.
ANY_BOOTSTRAP_SERVER = -2
UNKNOWN_OFFSET = -1

# kraft.version 1 (KIP-853): the voter set is in the log; a voter is identified by id and directory.
KRAFT_VERSION = 1


class Randomness(Protocol):
    """The part of `random.Random` that the core uses."""

    def randrange(self, stop: int, /) -> int: ...


class Role(Enum):
    """A replica's role. Observers are unattached or followers, but not in the voter set."""

    UNATTACHED = "unattached"  # knows the epoch but not its leader
    FOLLOWER = "follower"  # fetches from the leader
    PROSPECTIVE = "prospective"  # lost the leader, asks whether an election would succeed (KIP-996)
    CANDIDATE = "candidate"  # asks for votes in a new epoch
    LEADER = "leader"


class ReplicaKey(NamedTuple):
    """A node id and a directory id: a wiped disk under an old node id is another replica (KIP-853)."""

    id: int
    directory_id: bytes


class OffsetAndEpoch(NamedTuple):
    """A position in the log, and the epoch of the record before it. Names a snapshot, or where two logs diverge."""

    offset: int
    epoch: int


class Endpoint(NamedTuple):
    """Where a voter listens."""

    name: str
    host: str
    port: int


class Voter(msgspec.Struct, frozen=True):
    """A member of the voter set."""

    id: int
    directory_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = KRAFT_VERSION

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)


class VoterSet(msgspec.Struct, frozen=True, dict=True):
    """The voters. Ordered by node id; at most one voter per node id."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        ordered = tuple(sorted(voters, key=lambda voter: voter.id))
        if any(a.id == b.id for a, b in pairwise(ordered)):
            raise ValueError("two voters have the same node id: a node has one metadata directory")
        return cls(ordered)

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.id for voter in self.voters)

    @cached_property
    def keys(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter.key for voter in self.voters)

    def get(self, node_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.id == node_id), None)

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self.keys

    def with_voter(self, voter: Voter) -> VoterSet:
        assert self.get(voter.id) is None
        return VoterSet.of((*self.voters, voter))

    def without(self, key: ReplicaKey) -> VoterSet:
        assert key in self
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))


class HardState(msgspec.Struct, frozen=True):
    """State that must be on disk before any message that depends on it is sent: losing it could elect two leaders."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None
    # The log lost records that it may have acknowledged: no part in elections until the replica has caught up.
    suspect: bool = False


class RaftConfig(msgspec.Struct, frozen=True):
    """Kafka's `controller.quorum.*` properties, with Kafka's defaults."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    # How long a leader holds a fetch that finds nothing new.
    fetch_max_wait_ms: int = 500
    # How often a replica without a leader asks a voter who leads.
    probe_interval_ms: int = 250
    # An event this late after its deadline means that the process was suspended: read waiting messages first.
    late_event_ms: int = 250
    # The leader forgets an observer that has not fetched for this long.
    observer_session_timeout_ms: int = 300_000
    snapshot_chunk_bytes_max: int = 1 << 20

    @property
    def check_quorum_timeout_ms(self) -> int:
        # 1.5 times the followers' fetch timeout, so that a slow network does not depose a leader that both sides
        # accept.
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_interval_ms(self) -> int:
        return max(1, self.fetch_timeout_ms // 2)
