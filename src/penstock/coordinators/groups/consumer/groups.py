"""All consumer groups of a shard: the entry points for requests, records and metadata changes."""

from __future__ import annotations

from typing import Final

from penstock.coordinators.groups.classic_rebalance import Rebalances
from penstock.coordinators.groups.consumer import changes, records
from penstock.coordinators.groups.consumer.classic_members import ClassicMembers
from penstock.coordinators.groups.consumer.conversions import Conversions
from penstock.coordinators.groups.consumer.departures import Departures
from penstock.coordinators.groups.consumer.description import described_group
from penstock.coordinators.groups.consumer.expressions import GroupExpressions
from penstock.coordinators.groups.consumer.group import ConsumerGroup, Index, ResolvedRegex
from penstock.coordinators.groups.consumer.heartbeats import Heartbeats, not_a_consumer_group
from penstock.coordinators.groups.consumer.settings import settings_of
from penstock.coordinators.groups.consumer.timers import MemberTimers
from penstock.coordinators.groups.records import key_group
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.shard import RequestInfo, Ticket, Turn
from penstock.metadata import MetadataDelta
from penstock.wire.errors import KafkaError
from penstock.wire.messages import consumer_group_records as r
from penstock.wire.messages.consumer_group_describe import DescribedGroup
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.list_groups import ListedGroup

CONSUMER_TYPE: Final = "consumer"
PROTOCOL_TYPE: Final = "consumer"


class ConsumerGroups:
    """Serves all consumer groups of a shard. The groups are in the table, together with the classic ones."""

    def __init__(self, table: GroupTable, rebalances: Rebalances) -> None:
        self._table = table
        self.index = Index()
        self.expressions = GroupExpressions(self.index)
        self._timers = MemberTimers(table.consumer, lambda turn, group, member: departures.fence(turn, group, member))
        conversions = Conversions(table, self.index, self._timers, self.expressions, rebalances)
        departures = Departures(table, self._timers, self.expressions, conversions)
        parts = (table, self.index, self._timers, self.expressions, conversions, departures)
        self._heartbeats = Heartbeats(*parts)
        self.classic_members = ClassicMembers(*parts)

    # -- requests ----------------------------------------------------------------------------------------------------

    def heartbeat(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: ConsumerGroupHeartbeatRequest) -> None:
        """ConsumerGroupHeartbeat. Creates the group if it does not exist, and converts a classic one."""
        try:
            response = self._heartbeats.serve(turn, info, request)
        except KafkaError as error:
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        turn.reply(ticket, response)

    def describe(self, turn: Turn, ticket: Ticket, info: RequestInfo, group_id: str) -> None:
        """One group of a ConsumerGroupDescribe."""
        group = self._table.find(turn, group_id)
        if isinstance(group, ConsumerGroup):
            described = described_group(group, turn.image, self._table.config.group_consumer_assignors)
        else:
            error = not_a_consumer_group(group_id, group)
            described = DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        turn.reply(ticket, described)

    def listed(self, group: ConsumerGroup) -> ListedGroup:
        """The entry of ListGroups."""
        return ListedGroup(group.group_id, PROTOCOL_TYPE, group.state, CONSUMER_TYPE)

    def delete(self, turn: Turn, group: ConsumerGroup) -> None:
        """Delete an empty group."""
        assert group.is_empty
        changes.append_tombstones(turn, group)
        group.leave_index()
        turn.cancel_timer(("target", group.group_id))
        self._table.remove(group)

    # -- life --------------------------------------------------------------------------------------------------------

    def on_loaded(self, turn: Turn) -> None:
        """Start session timers for all members, and rebalance timers for those that must give up partitions."""
        for group in list(self._table.groups.values()):
            if isinstance(group, ConsumerGroup):
                session_ms = settings_of(group.group_id, self._table.config, turn.image).session_timeout_ms
                for member in group.members.values():
                    classic = member.metadata.classic
                    self._timers.set_session(turn, member, classic.session_timeout_ms if classic else session_ms)
                    self._timers.set_rebalance(turn, group, member)

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        """Mark the groups of topics that were created, deleted or extended; their next heartbeat checks the topics."""
        by_topic = self.index.groups_by_topic
        names = [topic.name for topic in delta.topics_created]
        names += [topic.name for topic in delta.topics_deleted]
        names += [
            change.after.name
            for change in delta.topics_changed
            if len(change.before.partitions) != len(change.after.partitions)
        ]
        for name in names:
            for group in by_topic.get(name, {}).values():
                group.refresh_due = True
        self.expressions.on_image(delta)

    def replay(self, version: int, key: bytes, value: bytes | None) -> None:
        """Apply a record of a consumer group. Tombstones of unknown keys are ignored."""
        group_id = key_group(key)
        group = self._table.consumer(group_id)
        if group is None:
            if value is None:
                return
            group = ConsumerGroup(group_id, self.index)
            self._table.add(group)
        match version:
            case r.ConsumerGroupMetadataKey.record_type:
                if value is None:
                    group.leave_index()
                    self._table.remove(group)
                else:
                    epoch = r.decode_value(r.ConsumerGroupMetadataValue, value)
                    group.set_epoch(epoch.epoch, epoch.metadata_hash)
            case r.ConsumerGroupPartitionMetadataKey.record_type:
                group.has_partition_metadata = value is not None
            case r.ConsumerGroupMemberMetadataKey.record_type:
                member_id = r.decode_key(r.ConsumerGroupMemberMetadataKey, key).member_id
                if value is None:
                    group.remove_member(member_id)
                else:
                    group.set_metadata(member_id, records.member_metadata(value, self.index.names))
            case r.ConsumerGroupTargetAssignmentMetadataKey.record_type:
                if value is None:
                    group.set_assignment_epoch(0, 0)
                else:
                    target = r.decode_value(r.ConsumerGroupTargetAssignmentMetadataValue, value)
                    group.set_assignment_epoch(target.assignment_epoch, target.assignment_timestamp)
            case r.ConsumerGroupTargetAssignmentMemberKey.record_type:
                member_id = r.decode_key(r.ConsumerGroupTargetAssignmentMemberKey, key).member_id
                group.set_target(member_id, None if value is None else records.target_assignment(value))
            case r.ConsumerGroupCurrentMemberAssignmentKey.record_type:
                member_id = r.decode_key(r.ConsumerGroupCurrentMemberAssignmentKey, key).member_id
                if value is None:
                    group.clear_current(member_id)
                else:
                    group.set_current(member_id, records.current_assignment(value))
            case r.ConsumerGroupRegularExpressionKey.record_type:
                regex = r.decode_key(r.ConsumerGroupRegularExpressionKey, key).regular_expression
                if value is None:
                    group.set_resolved(regex, None)
                else:
                    matched = r.decode_value(r.ConsumerGroupRegularExpressionValue, value)
                    topics = self.index.names(matched.topics)
                    group.set_resolved(regex, ResolvedRegex(topics, matched.version, matched.timestamp))
            case _:
                raise AssertionError(f"a record of type {version} does not belong to consumer groups")

    def durable_state(self) -> object:
        """The state that replaying the log must reproduce."""
        return {
            group_id: group.durable_state()
            for group_id, group in self._table.groups.items()
            if isinstance(group, ConsumerGroup)
        }
