"""Converts groups between the classic and the consumer protocol while their members stay (KIP-848).

    classic → consumer   when the first member of the new protocol joins: the classic members are taken over with what
                         they own, their generation becomes the group's epoch, and they go on with JoinGroup, SyncGroup
                         and Heartbeat (`classic_members`)
    consumer → classic   when the last member of the new protocol is gone: the classic members get a classic group with
                         the epoch as its generation, and join again

`group.consumer.migration.policy` says which conversions are allowed. A conversion is one decision and so one batch:
after a crash either the old or the new group exists.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from penstock.coordinators.groups.classic_rebalance import Rebalances
from penstock.coordinators.groups.consumer import changes
from penstock.coordinators.groups.consumer.assignors import Assignment
from penstock.coordinators.groups.consumer.embedded import (
    assigned_partitions,
    owned_partitions,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from penstock.coordinators.groups.consumer.expressions import GroupExpressions
from penstock.coordinators.groups.consumer.group import ConsumerGroup, Index
from penstock.coordinators.groups.consumer.member import (
    ClassicMetadata,
    ClassicProtocol,
    CurrentAssignment,
    Member,
    MemberMetadata,
    MemberState,
    Owned,
    partition_numbers,
)
from penstock.coordinators.groups.consumer.rebalance import metadata_hash
from penstock.coordinators.groups.consumer.timers import MemberTimers
from penstock.coordinators.groups.records import group_key, group_value
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.shard import Turn
from penstock.metadata import MetadataImage
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

CONSUMER_PROTOCOL: Final = "consumer"
UPGRADING_POLICIES: Final = ("bidirectional", "upgrade")
DOWNGRADING_POLICIES: Final = ("bidirectional", "downgrade")
RECORD_OVERHEAD_BYTES: Final = 32

# A custom assignor may send members user data, which a conversion would lose. The user data of these assignors is safe
# to drop: librdkafka's sticky ones return what the members sent. (Kafka refuses all assignments with user data.)
DEFAULT_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")


class _Draft:
    """Collects records like a turn, to compute their size."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.size_bytes = 0

    def append(self, key: bytes, value: bytes | None) -> None:
        self.records.append((key, value))
        self.size_bytes += len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES


class Conversions:
    """Converts groups of a shard, in two steps: build the new group, which may fail, then replace the old one."""

    def __init__(
        self,
        table: GroupTable,
        index: Index,
        timers: MemberTimers,
        expressions: GroupExpressions,
        rebalances: Rebalances,
    ) -> None:
        self._table = table
        self._index = index
        self._timers = timers
        self._expressions = expressions
        self._rebalances = rebalances

    # -- classic to consumer -----------------------------------------------------------------------------------------

    def upgraded(self, turn: Turn, classic: ClassicGroup) -> ConsumerGroup:
        """Build the consumer group for a classic one. Raises GROUP_ID_NOT_FOUND if it cannot be converted."""
        config = self._table.config
        if config.group_consumer_migration_policy.lower() not in UPGRADING_POLICIES:
            raise _cannot_upgrade(classic, "online upgrade is disabled")
        if not classic.is_consumer_protocol:
            raise _cannot_upgrade(classic, "the group does not use the consumer embedded protocol")
        if len(classic.members) > config.group_consumer_max_size:
            raise _cannot_upgrade(classic, "the group size exceeds the consumer group maximum size")
        # The group is only a draft so far, so it gets a separate index.
        group = ConsumerGroup(classic.group_id, Index())
        epoch = classic.generation
        try:
            subscriptions = {
                member.member_id: self._take_over(turn, group, classic, member, epoch)
                for member in classic.members.values()
            }
        except WireError:
            raise _cannot_upgrade(classic, "the embedded consumer protocol is malformed") from None
        for member in classic.members.values():
            _respect_claims(group, member, subscriptions[member.member_id], turn.image)
        group.set_assignment_epoch(epoch, 0)
        group.set_epoch(epoch, metadata_hash(list(group.topics), turn.image))
        draft = _Draft()
        changes.append_all(draft, group)
        if draft.size_bytes > config.batch_bytes_max // 2:
            raise _cannot_upgrade(classic, f"its records take {draft.size_bytes} bytes, too many for one batch")
        return group

    def _take_over(
        self, turn: Turn, group: ConsumerGroup, classic: ClassicGroup, member: ClassicMember, epoch: int
    ) -> ConsumerProtocolSubscription:
        """Add the classic member with its assignment. Returns the subscription it sent when it joined."""
        assignment = read_assignment(member.assignment)
        if assignment.user_data and classic.protocol_name not in DEFAULT_ASSIGNORS:
            raise _cannot_upgrade(
                classic,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        # All protocols carry the same subscription, and this member may lack the one chosen before it joined.
        subscription = read_subscription(member.protocols[0][1])
        metadata = MemberMetadata(
            instance_id=member.instance_id,
            rack_id=subscription.rack_id or None,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=self._index.names(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMetadata(
                member.session_timeout_ms, tuple(ClassicProtocol(name, data) for name, data in member.protocols)
            ),
        )
        assigned = assigned_partitions(assignment, epoch, turn.image)
        group.set_metadata(member.member_id, metadata)
        group.set_target(member.member_id, _target(assigned))
        group.set_current(member.member_id, CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned))
        return subscription

    def succeed(self, turn: Turn, predecessor: ClassicGroup, group: ConsumerGroup) -> None:
        """Replace a classic group by a consumer group."""
        if predecessor.is_empty:
            self._rebalances.remove(turn, predecessor)
            self._table.add(group)
        else:
            self._upgrade(turn, predecessor, group)

    def _upgrade(self, turn: Turn, classic: ClassicGroup, group: ConsumerGroup) -> None:
        """Replace the classic group. Members that wait for its rebalance are told to join again."""
        self._rebalances.dissolve(turn, classic, ErrorCode.REBALANCE_IN_PROGRESS)
        turn.append(group_key(classic.group_id), None)
        changes.append_all(turn, group)
        group.enter_index(self._index)
        self._table.add(group)
        for member in group.members.values():
            assert member.metadata.classic is not None
            self._timers.set_session(turn, member, member.metadata.classic.session_timeout_ms)

    # -- consumer to classic -----------------------------------------------------------------------------------------

    def downgraded(self, turn: Turn, group: ConsumerGroup, leaving: list[Member]) -> ClassicGroup | None:
        """Build the classic group of the remaining members, if all are classic and the policy allows it."""
        config = self._table.config
        staying = len(group.members) - len(leaving)
        if (
            not group.all_classic_except(leaving)
            or staying <= 0
            or config.group_consumer_migration_policy.lower() not in DOWNGRADING_POLICIES
            or staying > config.group_max_size
        ):
            return None
        classic = ClassicGroup(group.group_id, turn.wall_ms)
        classic.generation = group.epoch
        gone = {member.member_id: None for member in leaving}
        for member in group.members.values():
            if member.member_id not in gone:
                classic.add(_classic_member(member), CONSUMER_PROTOCOL)
        classic.protocol_name = classic.selected_protocol()
        for stays in classic.members.values():
            # The partitions it owns, not its target: the group may be converted back before it rebalances.
            has = _held(group.members[stays.member_id].current)
            stays.assignment = write_assignment(has, version_of(stays.metadata(classic.protocol_name)), turn.image)
        classic.subscribed_topics = classic.read_subscriptions()
        classic.state = ClassicState.STABLE
        draft = _Draft()
        changes.append_tombstones(draft, group)
        draft.append(group_key(classic.group_id), group_value(classic))
        return classic if draft.size_bytes <= config.batch_bytes_max // 2 else None

    def downgrade(self, turn: Turn, group: ConsumerGroup, classic: ClassicGroup, *, rebalance: bool) -> None:
        """Replace the consumer group; `rebalance`: the members must join again."""
        regexes = list(group.regexes)
        changes.append_tombstones(turn, group)
        group.leave_index()
        for regex in regexes:
            self._expressions.forget_if_unused(regex)
        turn.append(group_key(classic.group_id), group_value(classic))
        for member_id in group.members:
            self._timers.cancel_all(turn, group, member_id)
        turn.cancel_timer(("target", group.group_id))
        self._table.add(classic)
        for member in classic.members.values():
            self._rebalances.schedule_session(turn, classic, member)
        if rebalance:
            self._rebalances.prepare(turn, classic)


def _respect_claims(
    group: ConsumerGroup, member: ClassicMember, subscription: ConsumerProtocolSubscription, image: MetadataImage
) -> None:
    """A cooperative member may own more than it was assigned: the partitions that it reported when it joined.

    If it has no assignment yet, it keeps those. Otherwise it must give them up, and may not have been told so. A
    partition that another member was assigned is never left to it.
    """
    current = group.members[member.member_id].current
    claimed: dict[bytes, dict[int, int]] = {}
    for topic in owned_partitions(subscription.owned_partitions, image):
        free = [number for number in topic.partitions if group.owner(topic.topic_id, number) is None]
        if free:
            claimed.setdefault(topic.topic_id, {}).update(dict.fromkeys(free, current.epoch))
    if claimed and member.assignment:
        state = MemberState.UNREVOKED_PARTITIONS
        group.set_current(member.member_id, replace(current, state=state, revoking=claimed))
    elif claimed:
        group.set_target(member.member_id, _target(claimed))
        group.set_current(member.member_id, replace(current, assigned=claimed))


def _target(owned: Owned) -> Assignment:
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in owned.items()}


def _held(current: CurrentAssignment) -> dict[bytes, list[int]]:
    """The partitions a member owns, including those it has not given up yet."""
    held = partition_numbers(current.assigned)
    for topic_id, numbers in partition_numbers(current.revoking).items():
        held[topic_id] = sorted(held.get(topic_id, []) + numbers)
    return held


def _classic_member(member: Member) -> ClassicMember:
    metadata = member.metadata
    assert metadata.classic is not None
    return ClassicMember(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        metadata.classic.session_timeout_ms,
        tuple((protocol.name, protocol.metadata) for protocol in metadata.classic.protocols),
    )


def _cannot_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )
