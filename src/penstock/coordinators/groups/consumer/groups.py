"""All consumer groups of a shard: where requests, records and metadata changes come in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.coordinators.groups.classic_group import ClassicGroup
from penstock.coordinators.groups.config import GroupConfig
from penstock.coordinators.groups.consumer import changes, records
from penstock.coordinators.groups.consumer.classic_members import ClassicMembers
from penstock.coordinators.groups.consumer.conversions import Conversions
from penstock.coordinators.groups.consumer.description import described_group
from penstock.coordinators.groups.consumer.expressions import GroupExpressions
from penstock.coordinators.groups.consumer.group import ConsumerGroup, Index, ResolvedRegex
from penstock.coordinators.groups.consumer.heartbeats import Heartbeats, not_a_consumer_group
from penstock.coordinators.groups.consumer.member import Member
from penstock.coordinators.groups.consumer.offsets import check_commit, check_fetch
from penstock.coordinators.groups.consumer.rebalance import bump_epoch_if_due
from penstock.coordinators.groups.consumer.settings import settings_of
from penstock.coordinators.groups.consumer.timers import MemberTimers
from penstock.coordinators.groups.records import key_group
from penstock.coordinators.groups.requests import RequestInfo
from penstock.coordinators.shard import Ticket, Turn
from penstock.metadata import MetadataDelta
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import consumer_group_records as r
from penstock.wire.messages.consumer_group_describe import DescribedGroup
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.list_groups import ListedGroup
from penstock.wire.messages.offset_commit import OffsetCommitRequestTopic
from penstock.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from penstock.coordinators.groups.shard import GroupShard

CONSUMER_TYPE: Final = "consumer"
PROTOCOL_TYPE: Final = "consumer"


class ConsumerGroups:
    """The groups themselves are in `GroupShard.groups`, beside the classic ones."""

    def __init__(self, shard: GroupShard) -> None:
        self.shard = shard
        self.index = Index()
        self.expressions = GroupExpressions(self.index)
        self.timers = MemberTimers(self._group, self._fence)
        self.conversions = Conversions(self)
        self._heartbeats = Heartbeats(self)
        self._classic = ClassicMembers(self)

    @property
    def config(self) -> GroupConfig:
        return self.shard.config

    # -- requests ----------------------------------------------------------------------------------------------------

    def heartbeat(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, request: ConsumerGroupHeartbeatRequest
    ) -> None:
        """ConsumerGroupHeartbeat. Makes the group where there is none, and converts a classic one."""
        try:
            response = self._heartbeats.serve(turn, info, request)
        except KafkaError as error:
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        turn.reply(ticket, response)

    def describe(self, turn: Turn, ticket: Ticket, info: RequestInfo, group_id: str) -> None:
        """One group of a ConsumerGroupDescribe."""
        group = self.shard.find(turn, group_id)
        if isinstance(group, ConsumerGroup):
            described = described_group(group, turn.image, self.config.group_consumer_assignors)
        else:
            error = not_a_consumer_group(group_id, group)
            described = DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        turn.reply(ticket, described)

    def listed(self, group: ConsumerGroup) -> ListedGroup:
        """The entry of ListGroups."""
        return ListedGroup(group.group_id, PROTOCOL_TYPE, group.state, CONSUMER_TYPE)

    def delete(self, turn: Turn, group: ConsumerGroup) -> None:
        """Take back an empty group."""
        assert group.is_empty
        changes.append_tombstones(turn, group)
        group.leave_index()
        turn.cancel_timer(("target", group.group_id))
        del self.shard.groups[group.group_id]

    def join_group(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, group: ConsumerGroup, request: JoinGroupRequest
    ) -> None:
        self._classic.join(turn, ticket, info, group, request)

    def sync_group(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, group: ConsumerGroup, request: SyncGroupRequest
    ) -> None:
        self._classic.sync(turn, ticket, group, request)

    def classic_heartbeat(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, group: ConsumerGroup, request: HeartbeatRequest
    ) -> None:
        self._classic.heartbeat(turn, ticket, group, request)

    def leave_group(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, group: ConsumerGroup, request: LeaveGroupRequest
    ) -> None:
        self._classic.leave(turn, ticket, info, group, request)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self,
        turn: Turn,
        info: RequestInfo,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        topics: list[OffsetCommitRequestTopic] | None = None,
    ) -> ErrorCode:
        """Whether this one may commit. With `topics`, in an older epoch too if it has owned them since (KIP-1251)."""
        try:
            check_commit(turn.image, info.version, group, member_id, epoch, topics)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def validate_offset_fetch(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether this one may see what was committed. Without a member id and epoch everybody may."""
        try:
            check_fetch(group, member_id, epoch)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    # -- members that go ---------------------------------------------------------------------------------------------

    def remove_members(self, turn: Turn, group: ConsumerGroup, members: list[Member]) -> None:
        """They left or were fenced. The rest share what they had; if only classic members are left, they take over."""
        classic = self.conversions.downgraded(turn, group, members)
        for member in members:
            self.timers.cancel_all(turn, group, member.member_id)
        if classic is not None:
            self.conversions.downgrade(turn, group, classic)
            self.shard.classic.rebalances.prepare(turn, classic)
            return
        for member in members:
            regex = member.metadata.topic_regex
            changes.remove_member(turn, group, member.member_id)
            if regex:
                self.expressions.drop_if_unused(turn, group, regex)
        bump_epoch_if_due(turn, group, force=True)

    def succeed(self, turn: Turn, predecessor: ClassicGroup, group: ConsumerGroup) -> None:
        """A consumer group takes the place of a classic one."""
        if predecessor.is_empty:
            self.shard.remove_classic(turn, predecessor)
            self.shard.groups[group.group_id] = group
        else:
            self.conversions.upgrade(turn, predecessor, group)

    def _fence(self, turn: Turn, group_id: str, member_id: str) -> None:
        group = self._group(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is not None and member is not None:
            self.remove_members(turn, group, [member])

    def _group(self, group_id: str) -> ConsumerGroup | None:
        group = self.shard.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # -- life --------------------------------------------------------------------------------------------------------

    def on_loaded(self, turn: Turn) -> None:
        """Everyone has a session's time to show up, and those who must give up partitions their rebalance timeout."""
        for group in list(self.shard.groups.values()):
            if isinstance(group, ConsumerGroup):
                session_ms = settings_of(group.group_id, self.config, turn.image).session_timeout_ms
                for member in group.members.values():
                    classic = member.metadata.classic
                    self.timers.set_session(turn, member, classic.session_timeout_ms if classic else session_ms)
                    self.timers.set_rebalance(turn, group, member)

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        """Groups that have to do with a topic that came, went or grew look at it with their next heartbeat."""
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
        """A record of a consumer group. Those that take back something unknown mean nothing."""
        group_id = key_group(key)
        group = self._group(group_id)
        if group is None:
            if value is None:
                return
            group = self.shard.groups[group_id] = ConsumerGroup(group_id, self.index)
        match version:
            case r.ConsumerGroupMetadataKey.record_type:
                if value is None:
                    group.leave_index()
                    del self.shard.groups[group_id]
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
                raise AssertionError(f"a record of type {version} is none of a consumer group")

    def durable_state(self) -> object:
        """What a replay of the log gives."""
        return {
            group_id: group.durable_state()
            for group_id, group in self.shard.groups.items()
            if isinstance(group, ConsumerGroup)
        }
