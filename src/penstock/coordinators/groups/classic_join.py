"""JoinGroup of a classic group.

Version 1 has a rebalance timeout of its own (KIP-62), 4 asks a new member to come back with the id it is given
(KIP-394), 5 brings static members (KIP-345), 7 returns the protocol's type (KIP-559), 8 carries a reason (KIP-800), 9
lets a static leader that came back skip the assignment (KIP-814).
"""

from __future__ import annotations

from typing import Final

from penstock.coordinators.groups.classic_group import (
    NO_MEMBER_ID,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    Protocols,
    protocols_of,
)
from penstock.coordinators.groups.classic_rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalances,
    join_refused,
    session_key,
)
from penstock.coordinators.groups.records import group_key, group_value
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.groups.weighing import GROUP_BYTES, MEMBER_BYTES, weight_of_classic, weight_of_protocols
from penstock.coordinators.shard import RequestInfo, Ticket, TimerKey, Turn
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.join_group import JoinGroupRequest

KNOWN_MEMBER_ID_FROM: Final = 4
SKIP_ASSIGNMENT_FROM: Final = 9

# Limits member ids that were given out and not used yet: each costs memory until its session timeout.
MEMBER_ID_PREFIX_MAX: Final = 8_000  # characters, of up to four bytes
PENDING_MEMBERS_MAX: Final = 100_000
PROTOCOLS_PER_MEMBER_MAX: Final = 100


class JoinGroups:
    """Serves JoinGroup for classic groups and for groups that do not exist yet."""

    def __init__(self, table: GroupTable, rebalances: Rebalances) -> None:
        self._table = table
        self._rebalances = rebalances

    def join(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, group: ClassicGroup | None, request: JoinGroupRequest
    ) -> None:
        """Answer at once, or at the end of the join phase that this request starts or takes part in."""
        if info.version == 0 or request.rebalance_timeout_ms < 0:
            request.rebalance_timeout_ms = request.session_timeout_ms
        member_id = request.member_id
        if group is None:
            self._join_new_group(turn, ticket, info, request)
        elif not self._has_memory(group, request):
            turn.reply(ticket, join_refused(info.version, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id))
        elif not self._accepts(group, member_id):
            if group.remove(member_id) is not None:
                turn.cancel_timer(session_key(group, member_id))
            turn.reply(ticket, join_refused(info.version, ErrorCode.GROUP_MAX_SIZE_REACHED))
            self._rebalances.complete_if_all_joined(turn, group)
        elif not group.supports(request.protocol_type, protocols := protocols_of(request.protocols)):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            turn.reply(ticket, join_refused(info.version, error, member_id))
        elif member_id == NO_MEMBER_ID:
            self._join_new_member(turn, ticket, info, group, request, protocols)
        else:
            self._join_known_member(turn, ticket, info, group, request, protocols)

    # -- checks ------------------------------------------------------------------------------------------------------

    def check(self, request: JoinGroupRequest) -> ErrorCode:
        """The checks that do not need the group."""
        config = self._table.config
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        timeout_ms = request.session_timeout_ms
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        # A generation with a larger member could never be stored.
        if len(request.protocols) > PROTOCOLS_PER_MEMBER_MAX or any(
            len(protocol.metadata) > config.batch_bytes_max for protocol in request.protocols
        ):
            return ErrorCode.INVALID_REQUEST
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group has room. During a rebalance only members that have joined again count."""
        size_max = self._table.config.group_max_size
        match group.state:
            case ClassicState.EMPTY:
                return member_id != NO_MEMBER_ID or len(group.pending_join) < PENDING_MEMBERS_MAX
            case ClassicState.PREPARING_REBALANCE:
                member = group.members.get(member_id)
                if member is not None and member.join_ticket is not None:
                    return True
                return group.awaiting_join < size_max and len(group.pending_join) < PENDING_MEMBERS_MAX
            case _:
                return member_id in group.members or len(group.members) < size_max

    def _has_memory(self, group: ClassicGroup, request: JoinGroupRequest) -> bool:
        """Whether the broker has memory for one more member, or for the larger metadata of a known member."""
        before = weight_of_classic(group.members.get(request.member_id))
        return self._table.config.memory.admit(weight_of_request(request) - before)

    # -- new members -------------------------------------------------------------------------------------------------

    def _join_new_group(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: JoinGroupRequest) -> None:
        if request.member_id != NO_MEMBER_ID:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif not self._table.has_room():
            error = ErrorCode.POLICY_VIOLATION
        elif not self._table.config.memory.admit(GROUP_BYTES + weight_of_request(request)):
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        else:
            group = ClassicGroup(request.group_id, turn.wall_ms)
            self._table.add(group)
            # The group exists from now on, even if its first member never joins.
            turn.append(group_key(group.group_id), group_value(group))
            self._join_new_member(turn, ticket, info, group, request, protocols_of(request.protocols))
            return
        turn.reply(ticket, join_refused(info.version, error, request.member_id))

    def _join_new_member(
        self,
        turn: Turn,
        ticket: Ticket,
        info: RequestInfo,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = new_member_id(instance_id, turn)
            if instance_id in group.static_members:
                self._replace_static(turn, ticket, info, group, request, protocols, member_id)
            else:
                self._add(turn, ticket, info, group, request, protocols, member_id)
            return
        member_id = new_member_id(info.client_id, turn)
        if info.version >= KNOWN_MEMBER_ID_FROM:
            key = self._rebalances.schedule_expiry(turn, group, member_id, request.session_timeout_ms)
            group.await_join(member_id, key)
            turn.reply(ticket, join_refused(info.version, ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(turn, ticket, info, group, request, protocols, member_id)

    def _add(
        self,
        turn: Turn,
        ticket: Ticket,
        info: RequestInfo,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        member_id: str,
        session_key: TimerKey | None = None,
    ) -> None:
        member = ClassicMember(
            member_id if session_key is None else session_key[-1],  # one string for both
            request.group_instance_id,
            info.client_id,
            info.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            protocols,
        )
        member.session_key = session_key
        member.is_new = True
        if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.set_join_ticket(member, ticket, info.version)
        self._rebalances.schedule_session(turn, group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalances.prepare_or_complete(turn, group)

    # -- members that come again -------------------------------------------------------------------------------------

    def _join_known_member(
        self,
        turn: Turn,
        ticket: Ticket,
        info: RequestInfo,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.group_instance_id in group.static_members:
                # An id that was given to a dynamic member cannot take over a static one.
                turn.reply(ticket, join_refused(info.version, ErrorCode.FENCED_INSTANCE_ID, member_id))
                return
            self._add(turn, ticket, info, group, request, protocols, member_id, group.pending_join[member_id])
            return
        error = group.check_member(member_id, request.group_instance_id)
        if error is ErrorCode.NONE and group.is_empty:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error:
            turn.reply(ticket, join_refused(info.version, error, member_id))
            return
        member = group.members[member_id]
        match group.state:
            case ClassicState.COMPLETING_REBALANCE:
                # With unchanged metadata this is a retry: the first answer was lost.
                rejoins = member.protocols != protocols
            case ClassicState.STABLE:
                # The leader joins again to start a rebalance, for example because it saw new partitions.
                rejoins = group.is_leader(member_id) or member.protocols != protocols
            case _:
                rejoins = True
        if not rejoins:
            leads = group.state is ClassicState.COMPLETING_REBALANCE and group.is_leader(member_id)
            members = group.joined_members() if leads else []
            turn.reply(ticket, self._rebalances.joined(group, member_id, members))
            return
        group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self._rebalances.wait_for_join(turn, group, member, ticket, info.version)
        self._rebalances.prepare_or_complete(turn, group)

    def _replace_static(
        self,
        turn: Turn,
        ticket: Ticket,
        info: RequestInfo,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        member_id: str,
    ) -> None:
        """A static member was restarted. With unchanged metadata it keeps its assignment, without a rebalance."""
        assert request.group_instance_id is not None
        rebalances = self._rebalances
        leader_before = group.leader_id
        old = group.members[group.static_members[request.group_instance_id]]
        rebalances.dismiss(turn, group, old, ErrorCode.FENCED_INSTANCE_ID)
        turn.cancel_timer(session_key(group, old.member_id))
        member = group.replace_static(request.group_instance_id, member_id)
        member.client_id = info.client_id
        member.client_host = info.client_host
        rebalances.schedule_session(turn, group, member)
        group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        if group.state is not ClassicState.STABLE or group.selected_protocol() != group.protocol_name:
            group.set_join_ticket(member, ticket, info.version)
            if group.state is ClassicState.PREPARING_REBALANCE:
                rebalances.complete_if_all_joined(turn, group)
            else:
                rebalances.prepare(turn, group)
            return
        group.subscribed_topics = group.read_subscriptions()
        turn.append(group_key(group.group_id), group_value(group))
        response = rebalances.joined(group, member_id)
        if info.version < SKIP_ASSIGNMENT_FROM:
            # A client that cannot skip the assignment must not be told that it leads: it would send an assignment
            # that is not wanted.
            response.leader = leader_before or NO_MEMBER_ID
        elif group.is_leader(member_id):
            response.members = group.joined_members()
            response.skip_assignment = True
        turn.reply(ticket, response)


def weight_of_request(request: JoinGroupRequest) -> int:
    return MEMBER_BYTES + weight_of_protocols((protocol.name, protocol.metadata) for protocol in request.protocols)


def new_member_id(prefix: str, turn: Turn) -> str:
    """A member id in Kafka's form: the client id or the instance id, and a random UUID, cut to fit a string."""
    prefix = prefix[:MEMBER_ID_PREFIX_MAX]
    digits = turn.uuid().hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{prefix}-{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
