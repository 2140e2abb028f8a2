"""Classic clients in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup in terms of the consumer protocol.

    JoinGroup   carries the member's subscription and owned partitions, like a heartbeat of the consumer protocol. The
                answer has the member's epoch as the generation. No member waits for others, and there is no leader.
    SyncGroup   returns the partitions that the member owns in that generation.
    Heartbeat   tells the member to join again when it gets new partitions or must give some up.

A member that does not join or sync within its rebalance timeout is fenced.
"""

from __future__ import annotations

from typing import Final

from penstock.coordinators.groups.classic_group import NO_MEMBER_ID, Protocols, protocols_of
from penstock.coordinators.groups.consumer import changes, validation
from penstock.coordinators.groups.consumer.conversions import Conversions
from penstock.coordinators.groups.consumer.departures import Departures
from penstock.coordinators.groups.consumer.embedded import assignment_of, owned_partitions, read_subscription
from penstock.coordinators.groups.consumer.expressions import GroupExpressions
from penstock.coordinators.groups.consumer.group import NO_METADATA, ConsumerGroup, Index
from penstock.coordinators.groups.consumer.heartbeats import replace_member
from penstock.coordinators.groups.consumer.member import (
    ClassicMetadata,
    ClassicProtocol,
    Member,
    MemberMetadata,
    MemberState,
)
from penstock.coordinators.groups.consumer.rebalance import bump_epoch_if_due, reconcile_member, update_target_if_due
from penstock.coordinators.groups.consumer.settings import settings_of
from penstock.coordinators.groups.consumer.timers import MemberTimers
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.groups.weighing import MEMBER_BYTES, weight_of_protocols
from penstock.coordinators.shard import RequestInfo, Ticket, Turn
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.uuids import format_uuid

CONSUMER_PROTOCOL: Final = "consumer"
KNOWN_MEMBER_ID_FROM: Final = 4
LEAVE_BATCH_FROM: Final = 3

# Members removed in the turn of a LeaveGroup request; more are removed in later turns.
LEAVING_PER_TURN_MAX: Final = 500


class ClassicMembers:
    """Serves the classic APIs for consumer groups that have members."""

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

    # -- join --------------------------------------------------------------------------------------------------------

    def join(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, group: ConsumerGroup, request: JoinGroupRequest
    ) -> None:
        try:
            response = self._join(turn, info, group, request)
        except KafkaError as error:
            response = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
        turn.reply(ticket, response)

    def _join(
        self, turn: Turn, info: RequestInfo, group: ConsumerGroup, request: JoinGroupRequest
    ) -> JoinGroupResponse:
        self._check(request)
        is_new = request.member_id == NO_MEMBER_ID
        member_id = format_uuid(turn.uuid()) if is_new else request.member_id
        validation.check_not_full(group, member_id, self._table.config.group_consumer_max_size)
        protocols = protocols_of(request.protocols)
        weight = MEMBER_BYTES + weight_of_protocols(protocols)
        validation.check_memory(self._table.config.memory, group, member_id, weight)
        if not group.supports_classic(request.protocol_type, [name for name, _ in protocols]):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
            )
        instance_id = request.group_instance_id
        if is_new and instance_id is None and info.version >= KNOWN_MEMBER_ID_FROM:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        subscription = _read(protocols)
        holder = group.static_member(instance_id)
        if instance_id is not None and not is_new:
            holder = validation.member_of(group, member_id, instance_id)
        known = holder if holder is not None else group.members.get(member_id)
        before = known.metadata if known is not None else NO_METADATA
        metadata = self._updated(before, info, request, protocols, subscription)
        changes.check_metadata(metadata)
        # A classic client replaces the last member of the new protocol, so only classic members are left.
        downgrades = holder is not None and group.all_classic_except([holder])

        if holder is not None and holder.member_id != member_id:
            replace_member(turn, group, holder, member_id)
            self._timers.cancel_all(turn, group, holder.member_id)
        if metadata != before:
            changes.put_metadata(turn, group, member_id, metadata)
        member = group.members[member_id]
        self._timers.cancel_join(turn, group, member)
        self._timers.set_session(turn, member, request.session_timeout_ms)
        changed = metadata.topic_names != before.topic_names or before.has_regex
        if before.topic_regex:
            self._expressions.drop_if_unused(turn, group, before.topic_regex)

        if group.regexes:
            changed |= self._expressions.refresh(turn, group, self._table.config, info.may_describe)
        bump_epoch_if_due(turn, group, force=changed)
        settings = settings_of(group.group_id, self._table.config, turn.image)
        if not downgrades:
            update_target_if_due(turn, group, self._table.config, settings.assignment_interval_ms)
        reconcile_member(
            turn,
            group,
            member,
            owned_partitions(subscription.owned_partitions, turn.image),
            subscription_changed=changed,
        )
        self._timers.set_rebalance(turn, group, member)
        response = JoinGroupResponse(
            generation_id=member.current.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocols[0][0],
            member_id=member_id,
        )
        if not (downgrades and self._downgrade(turn, group)):
            self._timers.set_sync(turn, group, member)
        return response

    def _check(self, request: JoinGroupRequest) -> None:
        config = self._table.config
        timeout_ms = request.session_timeout_ms
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def _updated(
        self,
        before: MemberMetadata,
        info: RequestInfo,
        request: JoinGroupRequest,
        protocols: Protocols,
        subscription: ConsumerProtocolSubscription,
    ) -> MemberMetadata:
        rebalance_timeout_ms = request.rebalance_timeout_ms
        if info.version == 0 or rebalance_timeout_ms < 0:
            rebalance_timeout_ms = request.session_timeout_ms
        return MemberMetadata(
            request.group_instance_id if request.group_instance_id is not None else before.instance_id,
            subscription.rack_id or before.rack_id,
            info.client_id,
            info.client_host,
            self._index.names(subscription.topics),
            None,
            rebalance_timeout_ms,
            before.server_assignor,
            ClassicMetadata(
                request.session_timeout_ms, tuple(ClassicProtocol(name, bytes(data)) for name, data in protocols)
            ),
        )

    def _downgrade(self, turn: Turn, group: ConsumerGroup) -> bool:
        """Convert to a classic group if all members are classic. They need not join again if all have their target."""
        is_settled = all(m.current.is_reconciled_to(group.epoch) for m in group.members.values())
        classic = self._conversions.downgraded(turn, group, [])
        if classic is None:
            return False
        self._conversions.downgrade(turn, group, classic, rebalance=not is_settled)
        return True

    # -- sync and stay -----------------------------------------------------------------------------------------------

    def sync(self, turn: Turn, ticket: Ticket, group: ConsumerGroup, request: SyncGroupRequest) -> None:
        try:
            response = self._sync(turn, group, request)
        except KafkaError as error:
            response = SyncGroupResponse(error_code=error.code)
        turn.reply(ticket, response)

    def _sync(self, turn: Turn, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
        member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        chosen = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, chosen.name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        timers = self._timers
        # A member that must give up partitions must first be told which.
        if group.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            timers.set_join_if_absent(turn, group, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        timers.cancel_sync(turn, group, member)
        timers.set_session(turn, member, classic.session_timeout_ms)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_of(member.current.assigned, chosen.metadata, turn.image),
        )

    def heartbeat(self, turn: Turn, ticket: Ticket, group: ConsumerGroup, request: HeartbeatRequest) -> None:
        error = ErrorCode.NONE
        try:
            member, classic = _classic_member(
                group, request.member_id, request.group_instance_id, request.generation_id
            )
            self._timers.set_session(turn, member, classic.session_timeout_ms)
            bump_epoch_if_due(turn, group, force=False)
            if _should_join(group, member):
                self._timers.set_join_if_absent(turn, group, member)
                error = ErrorCode.REBALANCE_IN_PROGRESS
        except KafkaError as refused:
            error = refused.code
        turn.reply(ticket, HeartbeatResponse(error_code=error))

    # -- leave -------------------------------------------------------------------------------------------------------

    def leave(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, group: ConsumerGroup, request: LeaveGroupRequest
    ) -> None:
        """Remove members of either protocol: administrators use it to remove static members by instance id."""
        batched = info.version >= LEAVE_BATCH_FROM
        leaving: dict[str, Member] = {}
        results = []
        for identity in request.members if batched else [MemberIdentity(request.member_id)]:
            result = MemberResponse(identity.member_id, identity.group_instance_id)
            results.append(result)
            try:
                member = _leaving_member(group, identity)
                if member.member_id in leaving:
                    raise validation.unknown_member(group, identity.member_id)
                leaving[member.member_id] = member
            except KafkaError as error:
                result.error_code = error.code
        members = list(leaving.values())
        for member in members[LEAVING_PER_TURN_MAX:]:
            self._timers.set_session(turn, member, 0)
        if members:
            self._departures.remove(turn, group, members[:LEAVING_PER_TURN_MAX])
        if batched:
            turn.reply(ticket, LeaveGroupResponse(members=results))
        else:
            turn.reply(ticket, LeaveGroupResponse(error_code=results[0].error_code))


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicMetadata]:
    member = validation.member_of(group, member_id, instance_id)
    if member.metadata.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.current.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.metadata.classic


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    instance_id = identity.group_instance_id
    if instance_id is not None and identity.member_id == NO_MEMBER_ID:
        holder = group.static_member(instance_id)
        if holder is not None:
            return holder
    return validation.member_of(group, identity.member_id, instance_id)


def _should_join(group: ConsumerGroup, member: Member) -> bool:
    """Whether there is a newer epoch, the member must give up partitions, or partitions it waits for are free now."""
    current = member.current
    return (
        current.epoch < group.epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_release(member))
    )


def _read(protocols: Protocols) -> ConsumerProtocolSubscription:
    """All protocols of a consumer carry the same subscription."""
    try:
        return read_subscription(protocols[0][1])
    except WireError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The subscription cannot be read: {error}.") from None
