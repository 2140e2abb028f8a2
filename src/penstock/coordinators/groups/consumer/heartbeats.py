"""ConsumerGroupHeartbeat: members join, stay, change their subscription and leave.

Version 0 lets the coordinator generate member ids; from version 1 clients do (KIP-1082), and may subscribe by regular
expression.

A request is checked completely before anything is changed (`validation`): a refused request has no effect.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.coordinators.groups.classic_group import ClassicGroup
from penstock.coordinators.groups.consumer import changes, validation
from penstock.coordinators.groups.consumer.conversions import Conversions
from penstock.coordinators.groups.consumer.departures import Departures
from penstock.coordinators.groups.consumer.expressions import GroupExpressions
from penstock.coordinators.groups.consumer.group import NO_METADATA, ConsumerGroup, Index
from penstock.coordinators.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING_OWNED,
    STATIC_LEAVE_EPOCH,
    CurrentAssignment,
    Member,
    MemberMetadata,
    Owned,
    owns_same,
    partition_numbers,
)
from penstock.coordinators.groups.consumer.rebalance import (
    bump_epoch_if_due,
    reconcile_member,
    update_target_if_due,
)
from penstock.coordinators.groups.consumer.regexes import compile_regex
from penstock.coordinators.groups.consumer.settings import settings_of
from penstock.coordinators.groups.consumer.timers import MemberTimers
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.groups.weighing import weight_of_metadata
from penstock.coordinators.shard import RequestInfo, Turn
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from penstock.wire.uuids import format_uuid

NOT_SENT: Final = -1


class Heartbeats:
    """Serves one API for all consumer groups of a shard."""

    def __init__(
        self,
        table: GroupTable,
        index: Index,
        timers: MemberTimers,
        expressions: GroupExpressions,
        conversions: Conversions,
        departures: Departures,
    ) -> None:
        self._table = table
        self._index = index
        self._timers = timers
        self._expressions = expressions
        self._conversions = conversions
        self._departures = departures

    def serve(
        self, turn: Turn, info: RequestInfo, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Raises KafkaError."""
        validation.check_heartbeat(request, info.version, self._table.config.group_consumer_assignors)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(turn, request)
        return self._beat(turn, info, request)

    # -- join and stay -----------------------------------------------------------------------------------------------

    def _beat(
        self, turn: Turn, info: RequestInfo, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        config = self._table.config
        joining = request.member_epoch == JOIN_EPOCH
        group, predecessor = self._group_for(turn, request.group_id, joining)
        member_id = request.member_id or format_uuid(turn.uuid())
        validation.check_not_full(group, member_id, config.group_consumer_max_size)
        member, replaced = _find_member(group, member_id, joining, request)

        known = member or replaced
        before = known.metadata if known is not None else NO_METADATA
        metadata = self._updated(before, info, request)
        regex = metadata.topic_regex
        if metadata is not before or known is None:
            validation.check_memory(config.memory, group, member_id, weight_of_metadata(metadata))
        if metadata is not before:
            changes.check_metadata(metadata)
            if regex and regex != before.topic_regex and regex not in group.regexes:
                compile_regex(regex)

        # From here on only records that are too large to be stored are refused.
        if predecessor is not None:
            self._conversions.succeed(turn, predecessor, group)
        elif group.group_id not in self._table.groups:
            self._table.add(group)
        if replaced is not None:
            self._replace(turn, group, replaced, member_id)
        if metadata is not before or known is None:
            changes.put_metadata(turn, group, member_id, metadata)
        member = group.members[member_id]
        settings = settings_of(group.group_id, config, turn.image)
        self._timers.set_session(turn, member, settings.session_timeout_ms)

        assigned_before = member.current.assigned
        names_changed = metadata.topic_names != before.topic_names
        regex_changed = (regex or "") != (before.topic_regex or "")
        force = group.epoch == 0 or names_changed
        if regex_changed:
            # A new expression starts a new epoch later, when it is resolved.
            force |= not regex or regex in group.resolved
            if before.topic_regex:
                self._expressions.drop_if_unused(turn, group, before.topic_regex)
        if group.regexes:
            force |= self._expressions.refresh(turn, group, config, info.may_describe)
        if force or group.refresh_due:
            bump_epoch_if_due(turn, group, force=force)
        if group.epoch > group.assignment_epoch:
            update_target_if_due(turn, group, config, settings.assignment_interval_ms)
        changed = reconcile_member(
            turn, group, member, request.topic_partitions, subscription_changed=names_changed or regex_changed
        )
        if changed or replaced is not None:
            self._timers.set_rebalance(turn, group, member)

        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.current.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
        )
        if joining or _is_full(request) or (changed and not owns_same(assigned_before, member.current.assigned)):
            response.assignment = _assignment(member.current.assigned)
        return response

    def _group_for(self, turn: Turn, group_id: str, joining: bool) -> tuple[ConsumerGroup, ClassicGroup | None]:
        """The group, or a new one, with the classic group that it replaces, if any."""
        group = self._table.find(turn, group_id)
        if isinstance(group, ConsumerGroup):
            return group, None
        if not joining:
            raise not_a_consumer_group(group_id, group)
        if group is None:
            if not self._table.has_room():
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "The coordinator has reached its limit of groups.")
            return ConsumerGroup(group_id, self._index), None
        if group.is_empty:
            return ConsumerGroup(group_id, self._index), group
        return self._conversions.upgraded(turn, group), group

    def _updated(
        self, before: MemberMetadata, info: RequestInfo, request: ConsumerGroupHeartbeatRequest
    ) -> MemberMetadata:
        """The member's metadata after this request. The same object if nothing has changed.

        Fields that the request omits keep their value, unless the member joins: then it sends all fields, and those of
        a former incarnation are dropped.
        """
        known = NO_METADATA if request.member_epoch == JOIN_EPOCH else before
        names = known.topic_names
        if request.subscribed_topic_names is not None:
            names = self._index.names(request.subscribed_topic_names)
        metadata = MemberMetadata(
            request.instance_id if request.instance_id is not None else known.instance_id,
            request.rack_id if request.rack_id is not None else known.rack_id,
            info.client_id,
            info.client_host,
            names,
            request.subscribed_topic_regex if request.subscribed_topic_regex is not None else known.topic_regex,
            known.rebalance_timeout_ms if request.rebalance_timeout_ms == NOT_SENT else request.rebalance_timeout_ms,
            request.server_assignor if request.server_assignor is not None else known.server_assignor,
        )
        return before if metadata == before else metadata

    def _replace(self, turn: Turn, group: ConsumerGroup, replaced: Member, member_id: str) -> None:
        """A static member came back under a new id: it inherits the state of the last incarnation, in epoch 0."""
        replace_member(turn, group, replaced, member_id)
        self._timers.cancel_all(turn, group, replaced.member_id)

    # -- leave -------------------------------------------------------------------------------------------------------

    def _leave(self, turn: Turn, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self._table.find(turn, request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise not_a_consumer_group(request.group_id, group)
        member = validation.member_of(group, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # The member has released what it had to revoke; the rest is kept for it until its session expires.
            left = replace(member.current, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING_OWNED)
            changes.put_current(turn, group, member.member_id, left)
            turn.cancel_timer(("rebalance", group.group_id, member.member_id))
        else:
            self._departures.remove(turn, group, [member])
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def replace_member(turn: Turn, group: ConsumerGroup, replaced: Member, member_id: str) -> None:
    """Give the member another id, in epoch 0, because the new incarnation has no assignment yet."""
    target = group.target(replaced.member_id)
    metadata = replaced.metadata
    current = replaced.current
    assigned = {topic_id: dict.fromkeys(partitions, JOIN_EPOCH) for topic_id, partitions in current.assigned.items()}
    changes.remove_member(turn, group, replaced.member_id)
    changes.put_metadata(turn, group, member_id, metadata)
    changes.put_target(turn, group, member_id, target)
    changes.put_current(
        turn, group, member_id, CurrentAssignment(JOIN_EPOCH, JOIN_EPOCH, current.state, assigned, current.revoking)
    )


def _find_member(
    group: ConsumerGroup, member_id: str, joining: bool, request: ConsumerGroupHeartbeatRequest
) -> tuple[Member | None, Member | None]:
    """The member that sent the request, or the static member that it replaces, or None for a new one."""
    instance_id = request.instance_id
    if not joining:
        member = validation.member_of(group, member_id, instance_id)
        validation.check_epoch(member, request.member_epoch, request.topic_partitions)
        return member, None
    holder = group.static_member(instance_id)
    if holder is None:
        return group.members.get(member_id), None
    assert instance_id is not None
    if holder.member_id == member_id and not holder.is_classic and holder.current.epoch != STATIC_LEAVE_EPOCH:
        # The same incarnation retries because its answer was lost; it does not replace itself.
        return holder, None
    if not holder.is_classic:
        validation.check_released(holder, member_id, instance_id)
    return None, holder


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a member sends its full state. Then the answer has the full assignment."""
    return (
        request.rebalance_timeout_ms != NOT_SENT
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(owned: Owned) -> Assignment:
    return Assignment(
        [
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id, numbers)
            for topic_id, numbers in partition_numbers(owned).items()
        ]
    )


def not_a_consumer_group(group_id: str, group: ClassicGroup | None) -> KafkaError:
    what = "not found" if group is None else "is not a consumer group"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
