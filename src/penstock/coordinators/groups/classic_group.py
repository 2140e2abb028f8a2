"""A classic group: its members and its state. Pure data with query methods.

                        ┌──────────── all members left or died ────────────┐
                        ▼                                                  │
    (new) ──► Empty ──► PreparingRebalance ──► CompletingRebalance ──► Stable
                        ▲     JoinGroup awaited      SyncGroup awaited     │
                        └──── somebody joins, leaves, dies, changes ───────┘

Counts (`awaiting_join`, the number of members per protocol) are updated as members come and go. So only queries made
once per phase walk over all members: the vote, the rebalance timeout, the subscriptions. A stable group, as most are,
drops the larger of these tables to save memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any, Final, TypeVar

from penstock.coordinators.shard import Ticket, TimerKey
from penstock.wire.codec import decode
from penstock.wire.errors import ErrorCode, WireError
from penstock.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from penstock.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NO_MEMBER_ID: Final = ""
NOBODY: Final[Mapping[str, Any]] = MappingProxyType({})
NO_TOPICS: Final[frozenset[str]] = frozenset()
SUBSCRIPTIONS_REMEMBERED_MAX: Final = 1_024

V = TypeVar("V")

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols of a member, preferred first: (name, metadata). Names are distinct."""


class ClassicState(Enum):
    """The values are Kafka's names, as tools show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS: Final = {
    ClassicState.EMPTY: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.PREPARING_REBALANCE: (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY),
    ClassicState.COMPLETING_REBALANCE: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.STABLE: (ClassicState.COMPLETING_REBALANCE,),
    ClassicState.DEAD: tuple(ClassicState),
}
AT_REST: Final = (ClassicState.EMPTY, ClassicState.STABLE)


class ClassicMember:
    """One member. `join_ticket` and `sync_ticket` identify its pending JoinGroup and SyncGroup request."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "join_version",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_key",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        # Interned: thousands of members come from few clients and hosts.
        self.client_id = intern(client_id)
        self.client_host = intern(client_host)
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_ticket: Ticket | None = None
        self.join_version = 0
        """Of the request that waits."""
        self.sync_ticket: Ticket | None = None
        # True until its first rebalance is over: such a member can expire even while it waits for its answer.
        self.is_new = False
        self.session_key: TimerKey | None = None
        """The key of its session timer, once it has one."""

    @property
    def awaits_answer(self) -> bool:
        """Whether the member waits for an answer. It need not send heartbeats meanwhile."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol}, which the group chose")


class ClassicGroup:
    """A group of the classic protocol, or a "simple" one: offsets without members (`protocol_type` is None)."""

    __slots__ = (
        "_supported",
        "awaiting_join",
        "generation",
        "group_id",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, state_timestamp_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        """Wall-clock time; -1 if loaded from an old record without it."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: Mapping[str, str] = NOBODY
        """group.instance.id → member id."""
        self.pending_join: Mapping[str, TimerKey] = NOBODY
        """Ids given out with MEMBER_ID_REQUIRED whose members have not joined yet (KIP-394), with their timers."""
        self.pending_sync: Mapping[str, str] = NOBODY
        """Ids of members that have joined and are expected to sync."""
        self._supported: dict[str, int] | None = None
        """Protocol → number of members that support it; None: to be counted on the next query."""
        self.awaiting_join = 0
        self.new_member_added = False
        """A member joined during the initial delay, so the delay is extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """The subscribed topics of a consumer group; None if they could not be read. Never iterated."""

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def is_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_members_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.pending_join

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS[ClassicState.PREPARING_REBALANCE]

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that this is a member and that it still owns the instance id."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can join: one of them must be common to all members."""
        if self.is_empty:
            return True
        count = len(self.members)
        supported = self.supporters()
        return protocol_type == self.protocol_type and any(supported.get(name, 0) == count for name, _ in protocols)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic. True for all topics if the subscriptions cannot be read."""
        if self.subscribed_topics is None:
            return self.is_consumer_protocol
        return topic in self.subscribed_topics

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supporters(self) -> dict[str, int]:
        """Protocol → number of members that support it."""
        if self._supported is None:
            self._supported = {}
            for member in self.members.values():
                self._count_protocols(member.protocols, 1)
        return self._supported

    def selected_protocol(self) -> str:
        """The result of the vote. Each member votes for the first of its protocols that all members support; the
        earliest vote breaks ties."""
        count = len(self.members)
        supported = self.supporters()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if supported[name] == count)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """The members with their metadata, which the leader needs for the assignment."""
        protocol = self.protocol_name
        return [
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        ]

    # -- changes -----------------------------------------------------------------------------------------------------

    def transition_to(self, state: ClassicState, wall_ms: int) -> None:
        assert self.state in VALID_PREVIOUS[state], f"{self.group_id}: {self.state.value} → {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = wall_ms
        if state in AT_REST:
            self._supported = None

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members = _with(self.static_members, member.instance_id, member.member_id)
        if not self.members:
            self.protocol_type = intern(protocol_type)
        assert protocol_type == self.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        assert not member.awaits_answer
        self._joined(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending member. Its pending requests must have been answered before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert not member.awaits_answer, f"{member_id} was removed while it waits for an answer"
            self._count_protocols(member.protocols, -1)
            if member.instance_id is not None:
                self.static_members = _without(self.static_members, member.instance_id)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._joined(member_id)
        self.has_synced(member_id)
        return member

    def await_join(self, member_id: str, session_key: TimerKey) -> None:
        self.pending_join = _with(self.pending_join, member_id, session_key)

    def _joined(self, member_id: str) -> None:
        self.pending_join = _without(self.pending_join, member_id)

    def await_sync(self, member_id: str) -> None:
        self.pending_sync = _with(self.pending_sync, member_id, member_id)

    def has_synced(self, member_id: str) -> None:
        self.pending_sync = _without(self.pending_sync, member_id)

    def replace_static(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """Give a restarted static member its new id. Pending requests of the old id must have been answered before."""
        old = self.members.pop(self.static_members[instance_id])
        assert not old.awaits_answer
        member = self.members[new_member_id] = ClassicMember(
            new_member_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        if old.member_id in self.pending_sync:
            self.has_synced(old.member_id)
            self.await_sync(new_member_id)
        self.static_members = _with(self.static_members, instance_id, new_member_id)
        return member

    def update(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def set_join_ticket(self, member: ClassicMember, ticket: Ticket, version: int) -> None:
        assert member.join_ticket is None
        member.join_ticket = ticket
        member.join_version = version
        self.awaiting_join += 1

    def take_join_ticket(self, member: ClassicMember) -> Ticket | None:
        """Remove and return the ticket of the member's pending JoinGroup."""
        ticket, member.join_ticket = member.join_ticket, None
        self.awaiting_join -= ticket is not None
        return ticket

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that joined in this rebalance. False if no member did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_ticket is None:
            joined = next((member for member in self.members.values() if member.join_ticket is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    def start_generation(self, wall_ms: int) -> None:
        """Start a generation with the current members; with none too, so that the old members become invalid."""
        self.generation += 1
        self.pending_sync = NOBODY
        self.protocol_name = self.selected_protocol() if self.members else None
        self.subscribed_topics = self.read_subscriptions()
        next_state = ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY
        self.transition_to(next_state, wall_ms)

    def read_subscriptions(self) -> frozenset[str] | None:
        """All topics that members subscribe to, or None if a subscription cannot be read."""
        if not self.is_consumer_protocol:
            return None
        if self.members and self.protocol_name is None:
            return None
        # Members of one application mostly send the same bytes.
        distinct = {member.metadata(self.protocol_name): None for member in self.members.values()}
        try:
            subscriptions = [subscribed_topics(metadata) for metadata in distinct]
        except WireError:
            return None
        if len(subscriptions) == 1:
            return subscriptions[0]
        return NO_TOPICS.union(*subscriptions)

    def _count_protocols(self, protocols: Protocols, change: int) -> None:
        supported = self._supported
        if supported is None:
            return
        for name, _ in protocols:
            count = supported.get(name, 0) + change
            if count:
                supported[name] = count
            else:
                del supported[name]


def _with(names: Mapping[str, V], name: str, value: V) -> Mapping[str, V]:
    """The mapping with one more entry. Thousands of groups have none most of the time: they share `NOBODY`."""
    if not names:
        return {name: value}
    assert isinstance(names, dict)
    names[name] = value
    return names


def _without(names: Mapping[str, V], name: str) -> Mapping[str, V]:
    if name not in names:
        return names
    assert isinstance(names, dict)
    del names[name]
    return names or NOBODY


def protocols_of(request: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The protocols of a request. Of several with the same name the first counts, as in Kafka."""
    distinct: dict[str, bytes] = {}
    for protocol in request:
        distinct.setdefault(intern(protocol.name), protocol.metadata)
    return _shared(tuple(distinct.items()))


@lru_cache(maxsize=SUBSCRIPTIONS_REMEMBERED_MAX)
def _shared(protocols: Protocols) -> Protocols:
    """The same object for equal protocols, because members of one application send the same."""
    return protocols


@lru_cache(maxsize=SUBSCRIPTIONS_REMEMBERED_MAX)
def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics in a consumer's embedded metadata. All versions start alike, so newer ones can be read too.

    Cached, because many groups with few members send the same bytes.
    """
    if len(metadata) < 2 or metadata[0] & 0x80:
        raise WireError("the metadata of a consumer starts with a version")
    return frozenset(decode(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics)
