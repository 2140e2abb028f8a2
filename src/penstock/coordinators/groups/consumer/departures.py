"""Removes members that left or were fenced."""

from __future__ import annotations

from penstock.coordinators.groups.consumer import changes
from penstock.coordinators.groups.consumer.conversions import Conversions
from penstock.coordinators.groups.consumer.expressions import GroupExpressions
from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.consumer.member import Member
from penstock.coordinators.groups.consumer.rebalance import bump_epoch_if_due
from penstock.coordinators.groups.consumer.timers import MemberTimers
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.shard import Turn


class Departures:
    def __init__(
        self, table: GroupTable, timers: MemberTimers, expressions: GroupExpressions, conversions: Conversions
    ) -> None:
        self._table = table
        self._timers = timers
        self._expressions = expressions
        self._conversions = conversions

    def remove(self, turn: Turn, group: ConsumerGroup, members: list[Member]) -> None:
        """Remove members and reassign their partitions. If only classic members remain, convert the group."""
        classic = self._conversions.downgraded(turn, group, members)
        for member in members:
            self._timers.cancel_all(turn, group, member.member_id)
        if classic is not None:
            self._conversions.downgrade(turn, group, classic, rebalance=True)
            return
        for member in members:
            regex = member.metadata.topic_regex
            changes.remove_member(turn, group, member.member_id)
            if regex:
                self._expressions.drop_if_unused(turn, group, regex)
        bump_epoch_if_due(turn, group, force=True)

    def fence(self, turn: Turn, group_id: str, member_id: str) -> None:
        """Remove a member that exceeded a timeout, if it is still in the group."""
        group = self._table.consumer(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is not None and member is not None:
            self.remove(turn, group, [member])
