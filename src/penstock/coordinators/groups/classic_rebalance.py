"""Rebalances of classic groups: the two phases, their timers, and the sessions of members.

A rebalance starts when the group's members or their metadata change (`prepare`). All members must join again; the phase
ends when all have, or after the longest of their rebalance timeouts (`complete_join`). A group that was empty waits for
the initial delay instead, which is extended while more members join, so that a fleet that starts up causes one
rebalance and not a hundred. Then all members sync and get the leader's assignment (`assign`). A member that does not
sync in time is removed (`_expire_pending_sync`).

All members are visited once per phase. The cost of a single join, leave or expiry does not depend on the size of the
group; otherwise a storm of them would be quadratic.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.coordinators.groups.classic_group import NO_MEMBER_ID, ClassicGroup, ClassicMember, ClassicState
from penstock.coordinators.groups.records import (
    BATCH_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    group_key,
    group_value,
)
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.shard import Ticket, TimerKey, Turn
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.messages.sync_group import SyncGroupResponse

# How long a new member may take to complete its first rebalance (Kafka's constant, KIP-394).
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000

NULL_PROTOCOL_FROM: Final = 7

NOBODY: Final[list[JoinGroupResponseMember]] = []


class Rebalances:
    """The state transitions of classic groups."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._expired = self._expire

    # -- first phase: everybody joins --------------------------------------------------------------------------------

    def prepare_or_complete(self, turn: Turn, group: ClassicGroup) -> None:
        """The members have changed: start a rebalance, or complete the join phase in progress if all have joined."""
        if group.can_rebalance():
            self.prepare(turn, group)
        else:
            self.complete_if_all_joined(turn, group)

    def prepare(self, turn: Turn, group: ClassicGroup) -> None:
        """Start a rebalance: all members must join (again)."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.fail_syncs(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
        turn.cancel_timer(_sync_key(group))
        initial = group.is_empty
        group.transition_to(ClassicState.PREPARING_REBALANCE, turn.wall_ms)
        if initial:
            delay_ms = self._table.config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            turn.set_timer(_join_key(group), delay_ms, partial(self._initial_delay_over, delay_ms, remaining_ms))
        elif group.all_members_joined:
            self.complete_join(turn, group)
        else:
            self._schedule_join(turn, group)

    def complete_if_all_joined(self, turn: Turn, group: ClassicGroup) -> None:
        """Complete the join phase if all have joined, but not during the initial delay: others may still come."""
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and group.previous_state is not ClassicState.EMPTY
            and group.all_members_joined
        ):
            self.complete_join(turn, group)

    def complete_join(self, turn: Turn, group: ClassicGroup) -> None:
        """End the join phase. Remove members that did not join; static ones only when their session ends (KIP-345)."""
        turn.cancel_timer(_join_key(group))
        late = [m for m in group.members.values() if m.join_ticket is None and m.instance_id is None]
        for member in late:
            self.drop(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.members and not group.elect_joined_leader():
            self._schedule_join(turn, group)  # only static members are left and none of them is there
            return
        group.new_member_added = False
        group.start_generation(turn.wall_ms)
        if group.is_empty:
            turn.append(group_key(group.group_id), group_value(group))
            return
        leader_id = group.leader_id
        for member in group.members.values():
            members = group.joined_members() if member.member_id == leader_id else NOBODY
            self.reply_join(turn, group, member, self.joined(group, member.member_id, members))
            self.schedule_session(turn, group, member)
            member.is_new = False
            group.await_sync(member.member_id)
        assert group.awaiting_join == 0, f"{group.group_id}: unanswered JoinGroup in generation {group.generation}"
        turn.set_timer(
            _sync_key(group), group.rebalance_timeout_ms(), partial(self._expire_pending_sync, group.generation)
        )

    def _schedule_join(self, turn: Turn, group: ClassicGroup) -> None:
        turn.set_timer(_join_key(group), group.rebalance_timeout_ms(), self._join_over)

    def _join_over(self, turn: Turn, key: TimerKey) -> None:
        group = self._table.classic(key[1])
        if group is not None and group.state is ClassicState.PREPARING_REBALANCE:
            self.complete_join(turn, group)

    def _initial_delay_over(self, delay_ms: int, remaining_ms: int, turn: Turn, key: TimerKey) -> None:
        group = self._table.classic(key[1])
        if group is None or group.state is not ClassicState.PREPARING_REBALANCE:
            return
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_delay_ms = min(self._table.config.group_initial_rebalance_delay_ms, remaining_ms)
            next_remaining_ms = max(remaining_ms - delay_ms, 0)
            turn.set_timer(key, next_delay_ms, partial(self._initial_delay_over, next_delay_ms, next_remaining_ms))
        else:
            self.complete_join(turn, group)

    # -- second phase: everybody syncs -------------------------------------------------------------------------------

    def assign(self, turn: Turn, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """The leader has decided. Members it does not mention get nothing; those it made up are ignored."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.transition_to(ClassicState.STABLE, turn.wall_ms)
        key = group_key(group.group_id)
        value = group_value(group)
        size_bytes = len(key) + len(value) + RECORD_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES
        if size_bytes > self._table.config.batch_bytes_max:
            # Kafka's answer to a generation that is too large to be stored.
            self.fail_syncs(turn, group, ErrorCode.UNKNOWN_SERVER_ERROR)
            self.prepare(turn, group)
            return
        turn.append(key, value)
        for member in group.members.values():
            if member.sync_ticket is not None:
                self.reply_sync(turn, member, self.synced(group, member))
                self.schedule_session(turn, group, member)

    def fail_syncs(self, turn: Turn, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                self.reply_sync(turn, member, SyncGroupResponse(error_code=error))
                self.schedule_session(turn, group, member)

    def has_synced(self, turn: Turn, group: ClassicGroup, member_id: str) -> None:
        group.has_synced(member_id)
        if not group.pending_sync:
            turn.cancel_timer(_sync_key(group))

    def _expire_pending_sync(self, generation: int, turn: Turn, key: TimerKey) -> None:
        group = self._table.classic(key[1])
        if group is None or group.generation != generation or not group.pending_sync:
            return
        if group.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            for member_id in list(group.pending_sync):
                self.drop(turn, group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
            self.prepare(turn, group)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def schedule_session(
        self, turn: Turn, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """Restart the session timer: the member has just been heard from."""
        key = member.session_key
        if key is None:
            key = member.session_key = session_key(group, member.member_id)
        turn.set_timer(key, member.session_timeout_ms if timeout_ms is None else timeout_ms, self._expired)

    def schedule_expiry(self, turn: Turn, group: ClassicGroup, member_id: str, timeout_ms: int) -> TimerKey:
        """Set the timer for an id that has no member yet. Returns the timer's key."""
        key = session_key(group, member_id)
        turn.set_timer(key, timeout_ms, self._expired)
        return key

    def _expire(self, turn: Turn, key: TimerKey) -> None:
        _, group_id, member_id = key
        group = self._table.classic(group_id)
        if group is None:
            return
        if member_id in group.pending_join:
            group.remove(member_id)
            if group.state is ClassicState.PREPARING_REBALANCE and group.all_members_joined:
                self.complete_join(turn, group)
            return
        member = group.members.get(member_id)
        if member is not None and (member.is_new or not member.awaits_answer):
            self.drop(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
            self.after_removal(turn, group)

    def drop(self, turn: Turn, group: ClassicGroup, member: ClassicMember, error: ErrorCode) -> None:
        """Remove a member and answer its pending requests with the error. The caller updates the group's state."""
        self.dismiss(turn, group, member, error)
        group.remove(member.member_id)
        turn.cancel_timer(session_key(group, member.member_id))

    def dismiss(self, turn: Turn, group: ClassicGroup, member: ClassicMember, error: ErrorCode) -> None:
        """Answer the member's pending requests with the error."""
        if member.join_ticket is not None:
            member_id = member.member_id if error is ErrorCode.FENCED_INSTANCE_ID else NO_MEMBER_ID
            self.reply_join(turn, group, member, join_refused(member.join_version, error, member_id))
        if member.sync_ticket is not None:
            self.reply_sync(turn, member, SyncGroupResponse(error_code=error))

    def after_removal(self, turn: Turn, group: ClassicGroup) -> None:
        """After members were removed: start a rebalance, or complete one that waited for them."""
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self.prepare(turn, group)
        elif group.state is ClassicState.PREPARING_REBALANCE and group.all_members_joined:
            self.complete_join(turn, group)

    def resume(self, turn: Turn, group: ClassicGroup) -> None:
        """Start the sessions of a group loaded from the log: its members have one session timeout to come back."""
        for member in group.members.values():
            self.schedule_session(turn, group, member)
        if len(group.members) > self._table.config.group_max_size:
            # The limit was lowered: the next rebalance lets in as many as fit.
            self.prepare(turn, group)

    def dissolve(self, turn: Turn, group: ClassicGroup, error: ErrorCode) -> None:
        """The group stops being a classic one: cancel timers, answer pending requests, keep its records."""
        turn.cancel_timer(_join_key(group))
        turn.cancel_timer(_sync_key(group))
        for member in group.members.values():
            self.dismiss(turn, group, member, error)
            turn.cancel_timer(session_key(group, member.member_id))
        for member_id in group.pending_join:
            turn.cancel_timer(session_key(group, member_id))
        group.transition_to(ClassicState.DEAD, turn.wall_ms)

    def remove(self, turn: Turn, group: ClassicGroup) -> None:
        """Delete an empty group. The caller deletes its offsets."""
        self.dissolve(turn, group, ErrorCode.UNKNOWN_MEMBER_ID)
        self._table.remove(group)
        turn.append(group_key(group.group_id), None)

    # -- answers -----------------------------------------------------------------------------------------------------

    def joined(
        self, group: ClassicGroup, member_id: str, members: list[JoinGroupResponseMember] = NOBODY
    ) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or NO_MEMBER_ID,
            member_id=member_id,
            members=members,
        )

    def synced(self, group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    def reply_join(self, turn: Turn, group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse) -> None:
        ticket = group.take_join_ticket(member)
        if ticket is not None:
            turn.reply(ticket, response)

    def reply_sync(self, turn: Turn, member: ClassicMember, response: SyncGroupResponse) -> None:
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            turn.reply(ticket, response)

    def wait_for_join(
        self, turn: Turn, group: ClassicGroup, member: ClassicMember, ticket: Ticket, version: int
    ) -> None:
        """Keep the request until the join phase ends. An earlier request of the same member is answered now, because
        its client has given up on it."""
        refused = join_refused(member.join_version, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self.reply_join(turn, group, member, refused)
        group.set_join_ticket(member, ticket, version)

    def wait_for_sync(self, turn: Turn, member: ClassicMember, ticket: Ticket) -> None:
        self.reply_sync(turn, member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_ticket = ticket


def join_refused(version: int, error: ErrorCode, member_id: str = NO_MEMBER_ID) -> JoinGroupResponse:
    """An error answer, without a generation. From version 7 on the protocol can be null."""
    protocol = None if version >= NULL_PROTOCOL_FROM else ""
    return JoinGroupResponse(error_code=error, protocol_name=protocol, member_id=member_id)


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return ("session", group.group_id, member_id)


def _join_key(group: ClassicGroup) -> TimerKey:
    return ("join", group.group_id)


def _sync_key(group: ClassicGroup) -> TimerKey:
    return ("sync", group.group_id)
