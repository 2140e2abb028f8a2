"""A consumer group: its members, their target and current assignments, and queries on them.

Every change goes through a method that corresponds to one record type. Decisions and replay call the same methods,
which also update the indexes (subscribers, owners, votes). So replaying the log reproduces the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.coordinators.groups.consumer.assignors import NO_PARTITIONS, Assignment
from penstock.coordinators.groups.consumer.member import (
    LEAVE_EPOCH,
    NEW_MEMBER,
    CurrentAssignment,
    Member,
    MemberMetadata,
    Owned,
)

DurableState = tuple[object, ...]

NO_METADATA: Final = MemberMetadata()
NO_TIMESTAMP: Final = 0
DISTINCT_SUBSCRIPTIONS_MAX: Final = 10_000

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched at the group's last refresh."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


class Index:
    """Shared by the groups of a shard: the groups by topic and by expression, and interned subscriptions."""

    __slots__ = ("_names", "groups_by_regex", "groups_by_topic")

    def __init__(self) -> None:
        self.groups_by_topic: dict[str, dict[str, ConsumerGroup]] = {}
        self.groups_by_regex: dict[str, dict[str, ConsumerGroup]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def names(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Sorted, without duplicates. Equal lists are the same object: a thousand members share one list."""
        names = tuple(dict.fromkeys(sorted(topics)))
        if len(self._names) >= DISTINCT_SUBSCRIPTIONS_MAX:
            self._names.clear()
        return self._names.setdefault(names, names)


class TargetUpdate(NamedTuple):
    """A target assignment that is too large for one batch and is being written in portions."""

    epoch: int
    left: list[tuple[str, Assignment]]
    """Last first."""


class ConsumerGroup:
    """The state of one group. `index` belongs to the shard."""

    __slots__ = (
        "_index",
        "_owners",
        "_subscriptions",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "assignor_votes",
        "classic_members",
        "classic_protocols",
        "epoch",
        "expressions_version",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "refresh_due",
        "regexes",
        "resolved",
        "static_members",
        "target_update",
        "targets",
        "topics",
    )

    def __init__(self, group_id: str, index: Index) -> None:
        self.group_id = group_id
        self._index = index
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = NO_TIMESTAMP
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id → member id."""
        self.targets: dict[str, Assignment] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        """There is a record written by Kafka 4.0 or before, to be tombstoned with the next epoch."""

        self.topics: dict[str, int] = {}
        """Topic name → number of members and expressions that subscribe to it. Includes topics that do not exist."""
        self.regexes: dict[str, int] = {}
        """Expression → members that subscribe to it."""
        self.assignor_votes: dict[str, int] = {}
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}
        self._owners: dict[bytes, dict[int, str]] = {}
        self._subscriptions: dict[tuple[tuple[str, ...], str | None], frozenset[str]] = {}

        self.refresh_due = True
        """Topics of the group may have changed since the metadata hash was computed. True after loading."""
        self.target_update: TargetUpdate | None = None
        self.expressions_version = -1
        """The version of the shard's expressions at the group's last refresh."""

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        if all(member.current.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return STABLE
        return RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    def static_member(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_PARTITIONS)

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """The member that owns the partition, or has not confirmed its revocation yet."""
        partitions = self._owners.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics

    def subscription(self, metadata: MemberMetadata) -> frozenset[str]:
        """The topics a member subscribes to, including those of its expression. Never iterated."""
        key = (metadata.topic_names, metadata.topic_regex)
        names = self._subscriptions.get(key)
        if names is None:
            resolved = self.resolved.get(metadata.topic_regex) if metadata.topic_regex else None
            names = frozenset(metadata.topic_names + (resolved.topics if resolved is not None else ()))
            self._subscriptions[key] = names
        return names

    def preferred_assignor(self, available: tuple[str, ...]) -> str:
        """The assignor that most members ask for. The first available one breaks ties, and is the default."""
        return max(available, key=lambda name: self.assignor_votes.get(name, 0))

    def supports_classic(self, protocol_type: str, protocols: list[str]) -> bool:
        """Whether a classic client shares one of these protocols with all classic members."""
        if protocol_type != "consumer":
            return False
        if not self.members:
            return bool(protocols)
        return any(self.classic_protocols.get(name, 0) == self.classic_members for name in protocols)

    def all_classic_except(self, leaving: list[Member]) -> bool:
        """Whether only classic members remain without these."""
        consumers = sum(not member.is_classic for member in leaving)
        return self.classic_members + consumers == len(self.members)

    def waits_for_release(self, member: Member) -> bool:
        """Whether another member still owns a partition of the member's target."""
        for topic_id, partitions in self.target(member.member_id).items():
            assigned = member.current.assigned.get(topic_id, ())
            for partition in partitions:
                if partition not in assigned and self.owner(topic_id, partition) not in (None, member.member_id):
                    return True
        return False

    def durable_state(self) -> DurableState:
        """The durable state, for comparison in tests."""
        return (
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self.assignment_timestamp_ms,
            {member_id: (member.metadata, member.current) for member_id, member in self.members.items()},
            dict(self.targets),
            dict(self.resolved),
            dict(self.static_members),
            {topic_id: dict(owners) for topic_id, owners in self._owners.items()},
            dict(self.topics),
            dict(self.regexes),
            dict(self.assignor_votes),
            (self.classic_members, dict(self.classic_protocols)),
        )

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash

    def set_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        self.assignment_epoch = epoch
        self.assignment_timestamp_ms = timestamp_ms

    def set_metadata(self, member_id: str, metadata: MemberMetadata) -> None:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(self.group_id, member_id, metadata, NEW_MEMBER)
            self._count(metadata, 1)
        else:
            # Add the new names before removing the old ones, so that names in both are never dropped in between.
            self._count(metadata, 1)
            self._count(member.metadata, -1)
            self._leave_instance(member)
            member.metadata = metadata
        if metadata.instance_id is not None:
            self.static_members[metadata.instance_id] = member_id

    def set_current(self, member_id: str, current: CurrentAssignment) -> None:
        member = self.members.get(member_id)
        if member is None:
            # After compaction the member's metadata may follow this record.
            member = self.members[member_id] = Member(self.group_id, member_id, NO_METADATA, NEW_MEMBER)
        before, member.current = member.current, current
        if before.assigned is not current.assigned or before.revoking is not current.revoking:
            self._disown(before.assigned, member_id)
            self._disown(before.revoking, member_id)
            self._own(current.assigned, member_id)
            self._own(current.revoking, member_id)

    def clear_current(self, member_id: str) -> None:
        """First step of a removal: release all partitions of the member."""
        if member_id in self.members:
            self.set_current(member_id, CurrentAssignment(LEAVE_EPOCH, LEAVE_EPOCH))

    def set_target(self, member_id: str, assignment: Assignment | None) -> None:
        if assignment is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = assignment

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._disown(member.current.assigned, member_id)
            self._disown(member.current.revoking, member_id)
            self._count(member.metadata, -1)
            self._leave_instance(member)

    def set_resolved(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
        if before is not None and resolved is not None and before.topics == resolved.topics:
            return
        self._subscriptions.clear()
        for topic in before.topics if before is not None else ():
            self._count_topic(topic, -1)
        for topic in resolved.topics if resolved is not None else ():
            self._count_topic(topic, 1)

    def enter_index(self, index: Index) -> None:
        """Add a group that was built separately to the shard's index."""
        self._index = index
        for topic in self.topics:
            index.groups_by_topic.setdefault(topic, {})[self.group_id] = self
        for regex in self.regexes:
            index.groups_by_regex.setdefault(regex, {})[self.group_id] = self

    def leave_index(self) -> None:
        """Remove a deleted group from the index."""
        for topic in self.topics:
            _leave(self._index.groups_by_topic, topic, self.group_id)
        for regex in self.regexes:
            _leave(self._index.groups_by_regex, regex, self.group_id)

    # -- indexes -----------------------------------------------------------------------------------------------------

    def _count(self, metadata: MemberMetadata, change: int) -> None:
        for topic in metadata.topic_names:
            self._count_topic(topic, change)
        if metadata.topic_regex and _add(self.regexes, metadata.topic_regex, change):
            if change > 0:
                self._index.groups_by_regex.setdefault(metadata.topic_regex, {})[self.group_id] = self
            else:
                _leave(self._index.groups_by_regex, metadata.topic_regex, self.group_id)
        if metadata.server_assignor is not None:
            _add(self.assignor_votes, metadata.server_assignor, change)
        if metadata.classic is not None:
            self.classic_members += change
            for protocol in metadata.classic.protocols:
                _add(self.classic_protocols, protocol.name, change)
        if change < 0:
            self._subscriptions.clear()

    def _count_topic(self, topic: str, change: int) -> None:
        if _add(self.topics, topic, change):
            self.refresh_due = True
            if change > 0:
                self._index.groups_by_topic.setdefault(topic, {})[self.group_id] = self
            else:
                _leave(self._index.groups_by_topic, topic, self.group_id)

    def _leave_instance(self, member: Member) -> None:
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _own(self, owned: Owned, member_id: str) -> None:
        for topic_id, partitions in owned.items():
            self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _disown(self, owned: Owned, member_id: str) -> None:
        for topic_id, partitions in owned.items():
            owners = self._owners.get(topic_id)
            if owners is None:
                continue
            for partition in partitions:
                # While a compacted log is replayed the next owner's record may come before the last one's.
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del self._owners[topic_id]


def _add(counts: dict[str, int], name: str, change: int) -> bool:
    """Change the count of a name. True if the name was added or removed."""
    count = counts.get(name, 0) + change
    if count > 0:
        counts[name] = count
        return count == change
    counts.pop(name, None)
    return True


def _leave(index: dict[str, dict[str, ConsumerGroup]], name: str, group_id: str) -> None:
    groups = index.get(name)
    if groups is not None:
        groups.pop(group_id, None)
        if not groups:
            del index[name]
