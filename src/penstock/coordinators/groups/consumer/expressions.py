"""Applies regular expressions to groups: a group stores the topics that an expression matches and refreshes them.

A group refreshes when a member sends a heartbeat: at once for a new expression; after topics were created or deleted,
at most every `REFRESH_INTERVAL_MIN_MS`, so that a hundred new topics cause one rebalance; and in any case every
`group.consumer.regex.refresh.interval.ms`.

With an authoriser an expression matches only topics that the member may describe whose heartbeat refreshes it, as in
Kafka. A change of ACLs takes effect with the next refresh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.coordinators.groups.config import GroupConfig
from penstock.coordinators.groups.consumer import changes
from penstock.coordinators.groups.consumer.group import ConsumerGroup, Index, ResolvedRegex
from penstock.coordinators.groups.consumer.rebalance import bump_epoch_if_due
from penstock.coordinators.groups.consumer.regexes import Expressions
from penstock.coordinators.shard import Turn
from penstock.metadata import MetadataDelta
from penstock.wire.errors import KafkaError

REFRESH_INTERVAL_MIN_MS: Final = 10_000


class GroupExpressions:
    """The expressions of all groups of a shard."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._expressions = Expressions(self._resolved)
        self._is_restricted = False
        """Whether there is an authoriser, so that only a heartbeat can tell which topics its member may see."""

    def on_image(self, delta: MetadataDelta) -> None:
        self._expressions.on_image(delta)

    def drop_if_unused(self, turn: Turn, group: ConsumerGroup, regex: str) -> None:
        """A member has dropped the expression: remove it from the group if no other member uses it."""
        if regex not in group.regexes and regex in group.resolved:
            changes.put_resolved(turn, group, regex, None)
        self.forget_if_unused(regex)

    def forget_if_unused(self, regex: str) -> None:
        """Remove the expression from the shard if no group uses it."""
        if regex not in self._index.groups_by_regex:
            self._expressions.forget(regex)

    def refresh(
        self,
        turn: Turn,
        group: ConsumerGroup,
        config: GroupConfig,
        may_describe: Callable[[str], bool] | None = None,
    ) -> bool:
        """Refresh the expressions that are due. True if that changes a member's subscription."""
        self._is_restricted = may_describe is not None
        interval_ms = config.group_consumer_regex_refresh_interval_ms
        looked_at_ms = min((resolved.timestamp_ms for resolved in group.resolved.values()), default=0)
        is_due = not 0 <= turn.wall_ms - looked_at_ms < interval_ms
        if (
            group.expressions_version == self._expressions.version
            and len(group.resolved) == len(group.regexes)
            and not is_due
        ):
            return False
        changed = postponed = False
        for regex in group.regexes:
            topics = self._expressions.topics(turn, regex)
            if topics is None:
                postponed = True
                continue
            if may_describe is not None:
                topics = tuple(topic for topic in topics if may_describe(topic))
            before = group.resolved.get(regex)
            same = before is not None and before.topics == topics
            if before is not None and not same and 0 <= turn.wall_ms - before.timestamp_ms < REFRESH_INTERVAL_MIN_MS:
                postponed = True
            elif not same or is_due:
                changes.put_resolved(turn, group, regex, ResolvedRegex(topics, turn.image.offset, turn.wall_ms))
                changed |= not same and bool(topics or before)
        group.expressions_version = -1 if postponed else self._expressions.version
        return changed

    def _resolved(self, turn: Turn, regex: str) -> None:
        """An expression was resolved after several turns: apply it to the groups that wait for it."""
        for group in list(self._index.groups_by_regex.get(regex, {}).values()):
            if regex in group.resolved or self._is_restricted:
                continue  # the next heartbeat refreshes it
            topics = self._expressions.topics(turn, regex)
            assert topics is not None
            try:
                changes.put_resolved(turn, group, regex, ResolvedRegex(topics, turn.image.offset, turn.wall_ms))
            except KafkaError:
                continue  # too much to be stored: the members' heartbeats say so
            bump_epoch_if_due(turn, group, force=bool(topics))
