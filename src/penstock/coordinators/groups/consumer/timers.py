"""The timers of members. They are cancelled when the member is removed.

    session     nothing heard from it                                 every kind of member
    rebalance   told to give up partitions, has not said it did       members of the consumer protocol
    join        told to join again, did not                           classic members
    sync        joined, did not fetch its assignment                  classic members

A member that exceeds a timeout is fenced. A stall of the broker expires no members: the timers' clock excludes stalls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.consumer.member import Member, MemberState
from penstock.coordinators.shard import TimerKey, Turn

Fence = Callable[[Turn, str, str], None]
"""(turn, group id, member id): remove the member, if it is still in the group."""


class MemberTimers:
    def __init__(self, group_of: Callable[[str], ConsumerGroup | None], fence: Fence) -> None:
        self._group_of = group_of
        self._fence = fence
        self._expired = self._expire

    def set_session(self, turn: Turn, member: Member, timeout_ms: int) -> None:
        turn.set_timer(member.session_key, timeout_ms, self._expired)

    def set_rebalance(self, turn: Turn, group: ConsumerGroup, member: Member) -> None:
        """Set the timer while the member has partitions to revoke in its epoch."""
        key = ("rebalance", group.group_id, member.member_id)
        if member.is_classic or member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            turn.cancel_timer(key)
            return
        callback = partial(self._rebalance_over, group.group_id, member.member_id, member.current.epoch)
        turn.set_timer(key, max(member.metadata.rebalance_timeout_ms, 0), callback)

    def set_join_if_absent(self, turn: Turn, group: ConsumerGroup, member: Member) -> None:
        """Set the timer unless it is running: telling a member to join again does not extend its time."""
        if not member.join_awaited:
            member.join_awaited = True
            key = ("consumer-join", group.group_id, member.member_id)
            turn.set_timer(key, max(member.metadata.rebalance_timeout_ms, 0), self._expired)

    def cancel_join(self, turn: Turn, group: ConsumerGroup, member: Member) -> None:
        member.join_awaited = False
        turn.cancel_timer(("consumer-join", group.group_id, member.member_id))

    def set_sync(self, turn: Turn, group: ConsumerGroup, member: Member) -> None:
        key = ("consumer-sync", group.group_id, member.member_id)
        turn.set_timer(key, max(member.metadata.rebalance_timeout_ms, 0), self._expired)

    def cancel_sync(self, turn: Turn, group: ConsumerGroup, member: Member) -> None:
        turn.cancel_timer(("consumer-sync", group.group_id, member.member_id))

    def cancel_all(self, turn: Turn, group: ConsumerGroup, member_id: str) -> None:
        for kind in ("session", "rebalance", "consumer-join", "consumer-sync"):
            turn.cancel_timer((kind, group.group_id, member_id))

    def _expire(self, turn: Turn, key: TimerKey) -> None:
        self._fence(turn, key[1], key[2])

    def _rebalance_over(self, group_id: str, member_id: str, epoch: int, turn: Turn, key: TimerKey) -> None:
        group = self._group_of(group_id)
        member = group.members.get(member_id) if group is not None else None
        if member is not None and member.current.epoch == epoch:
            self._fence(turn, group_id, member_id)
