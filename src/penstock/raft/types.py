"""The nouns of the quorum: replicas, voters, offsets, what is persisted, and how long things may take."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec

NO_NODE = -1
# The target of a request that any node of the cluster may answer, for a replica that knows no voter yet.
ANY_BOOTSTRAP_SERVER = -2
UNKNOWN_OFFSET = -1

# kraft.version 1 (KIP-853): the voter set lives in the log, voters are known by id and directory.
KRAFT_VERSION = 1


class Randomness(Protocol):
    """What the core needs of `random.Random`."""

    def randrange(self, stop: int, /) -> int: ...


class Role(Enum):
    """What a replica is doing. Observers are unattached or followers that are not in the voter set."""

    UNATTACHED = "unattached"  # knows the epoch, not its leader
    FOLLOWER = "follower"  # fetches from the leader
    PROSPECTIVE = "prospective"  # lost the leader, asks whether an election would succeed (KIP-996)
    CANDIDATE = "candidate"  # asks for votes in a new epoch
    LEADER = "leader"


class ReplicaKey(NamedTuple):
    """A replica is its node and its directory: a wiped disk under an old node id is another replica (KIP-853)."""

    id: int
    directory_id: bytes


class OffsetAndEpoch(NamedTuple):
    """A place in the log: what lies before `offset` ends with `epoch`. Names a snapshot, or where two logs part."""

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
    """Who decides. Ordered by node id; at most one voter per node id."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        ordered = tuple(sorted(voters, key=lambda voter: voter.id))
        if any(a.id == b.id for a, b in pairwise(ordered)):
            raise ValueError("two voters with one node id: a node has one metadata directory")
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
    """What must be on disk before any message that depends on it leaves: losing it could elect two leaders."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None
    # The log lost records it may have acknowledged: the replica takes no part in elections until it has caught up.
    suspect: bool = False


class RaftConfig(msgspec.Struct, frozen=True):
    """Kafka's `controller.quorum.*` properties, with Kafka's defaults."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    # How long a leader parks a fetch that finds nothing new.
    fetch_max_wait_ms: int = 500
    # How often a replica without a leader asks one of the voters who leads.
    probe_interval_ms: int = 250
    # An event this much after its deadline means that the process stood still: what waits in the sockets goes first.
    late_event_ms: int = 250
    # An observer that has not fetched for so long is forgotten by the leader.
    observer_session_timeout_ms: int = 300_000
    snapshot_chunk_bytes_max: int = 1 << 20

    @property
    def check_quorum_timeout_ms(self) -> int:
        # Half as long again as a follower's patience, so that a slow network does not depose a leader both sides want.
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_interval_ms(self) -> int:
        return max(1, self.fetch_timeout_ms // 2)
