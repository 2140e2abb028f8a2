"""The classic protocol: SyncGroup, Heartbeat and LeaveGroup. JoinGroup and the rebalance have their own modules.

SyncGroup: version 3 brings static members, 5 checks the protocol's type and name (KIP-559).
Heartbeat: 3 brings static members. LeaveGroup: 3 takes several members at once and static ones by their instance id
(KIP-345), 5 carries reasons (KIP-800).
"""

from __future__ import annotations

from typing import Final

from penstock.coordinators.groups.classic_group import NO_MEMBER_ID, ClassicGroup, ClassicState
from penstock.coordinators.groups.classic_join import JoinGroups
from penstock.coordinators.groups.classic_rebalance import Rebalances, session_key
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.shard import RequestInfo, Ticket, Turn
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from penstock.wire.messages.list_groups import ListedGroup
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

CLASSIC_TYPE: Final = "classic"
LEAVE_BATCH_FROM: Final = 3


class ClassicGroups:
    """All classic groups of a shard."""

    def __init__(self, table: GroupTable) -> None:
        self.rebalances = Rebalances(table)
        self.joins = JoinGroups(table, self.rebalances)

    # -- members -----------------------------------------------------------------------------------------------------

    def sync(self, turn: Turn, ticket: Ticket, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """The leader hands in the assignment; other members wait for it, or get it if it is there."""
        error = self._check_sync(group, request)
        if error:
            turn.reply(ticket, SyncGroupResponse(error_code=error))
            return
        member = group.members[request.member_id]
        self.rebalances.has_synced(turn, group, member.member_id)
        if group.state is ClassicState.STABLE:
            turn.reply(ticket, self.rebalances.synced(group, member))
            return
        assert group.state is ClassicState.COMPLETING_REBALANCE
        self.rebalances.wait_for_sync(turn, member, ticket)
        if group.is_leader(member.member_id):
            self.rebalances.assign(turn, group, {a.member_id: a.assignment for a in request.assignments})

    def _check_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
        if group.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != group.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def heartbeat(self, turn: Turn, ticket: Ticket, group: ClassicGroup, request: HeartbeatRequest) -> None:
        member_id = request.member_id
        error = group.check_member(member_id, request.group_instance_id)
        if error is ErrorCode.NONE:
            if request.generation_id != group.generation:
                error = ErrorCode.ILLEGAL_GENERATION
            else:
                self.rebalances.schedule_session(turn, group, group.members[member_id])
                if group.state is ClassicState.PREPARING_REBALANCE:
                    error = ErrorCode.REBALANCE_IN_PROGRESS
        turn.reply(ticket, HeartbeatResponse(error_code=error))

    def leave(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, group: ClassicGroup | None, request: LeaveGroupRequest
    ) -> None:
        """Remove one or several members, with one rebalance for all of them."""
        members = request.members
        if info.version < LEAVE_BATCH_FROM:
            members = [MemberIdentity(request.member_id)]
        results = [
            MemberResponse(
                identity.member_id,
                identity.group_instance_id,
                ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave(turn, group, identity),
            )
            for identity in members
        ]
        if group is not None and any(result.error_code == ErrorCode.NONE for result in results):
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                self.rebalances.prepare(turn, group)
            else:
                self.rebalances.complete_if_all_joined(turn, group)
        if info.version < LEAVE_BATCH_FROM:
            turn.reply(ticket, LeaveGroupResponse(error_code=results[0].error_code))
        else:
            turn.reply(ticket, LeaveGroupResponse(members=results))

    def _leave(self, turn: Turn, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == NO_MEMBER_ID:
            # An administrator who removes a static member knows only its instance id.
            if instance_id is None or instance_id not in group.static_members:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = group.static_members[instance_id]
        elif member_id in group.pending_join:
            group.remove(member_id)
            turn.cancel_timer(session_key(group, member_id))
            return ErrorCode.NONE
        else:
            error = group.check_member(member_id, instance_id)
            if error:
                return error
        self.rebalances.drop(turn, group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        return ErrorCode.NONE

    # -- offsets -----------------------------------------------------------------------------------------------------

    def check_commit(
        self, turn: Turn, group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Whether this member may commit. A commit also keeps the session alive, like a heartbeat."""
        if generation < 0 and group.is_empty:
            return ErrorCode.NONE  # an administrator, or a consumer that assigns itself
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is ClassicState.COMPLETING_REBALANCE:
            # The member knows the new generation but has no assignment in it yet.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.rebalances.schedule_session(turn, group, group.members[member_id])
        return ErrorCode.NONE

    # -- administration ----------------------------------------------------------------------------------------------

    def describe(self, group: ClassicGroup) -> DescribedGroup:
        """Describe the group. Metadata and protocol are given for a stable group only: before, they are not decided."""
        stable = group.state is ClassicState.STABLE
        return DescribedGroup(
            group_id=group.group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(group.protocol_name) if stable else b"",
                    member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def listed(self, group: ClassicGroup) -> ListedGroup:
        return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC_TYPE)
