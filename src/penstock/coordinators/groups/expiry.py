"""Removes expired offsets and groups (KIP-211).

All groups are checked every `offsets.retention.check.interval.ms`. Offsets are kept as long as their group has
members subscribed to the topic, and `offsets.retention.minutes` longer, counted

- for an empty classic group: from when it became empty,
- for a stable classic consumer group, for topics it is not subscribed to: from the commit,
- for a group of the consumer protocol: likewise,
- for a group that never had members ("simple"): from the commit.
If an old client set its own retention, only that counts.

A group that is empty and has no offsets left is deleted. The check is spread over several turns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicState
from penstock.coordinators.groups.deletion import OffsetDeletion
from penstock.coordinators.groups.records import NO_EXPIRY, decode_offset_value, offset_key_partition
from penstock.coordinators.groups.table import AnyGroup, GroupTable
from penstock.coordinators.shard import TimerKey, Turn

_TIMER: Final = ("expiry",)

# Groups checked per turn: a few milliseconds of work.
OFFSETS_PER_TURN_MAX: Final = 2_000

COMMIT_TIME: Final = -1


class Expiry:
    """Removes expired offsets of one shard. `remove` deletes an empty group."""

    def __init__(self, table: GroupTable, deletion: OffsetDeletion, remove: Callable[[Turn, AnyGroup], None]) -> None:
        self._table = table
        self._deletion = deletion
        self._remove = remove

    def schedule(self, turn: Turn) -> None:
        turn.set_timer(_TIMER, self._table.config.offsets_retention_check_interval_ms, self._start)

    def _start(self, turn: Turn, key: TimerKey) -> None:
        self._continue(self._table.group_ids(), 0, turn, key)

    def _continue(self, group_ids: list[str], start: int, turn: Turn, key: TimerKey) -> None:
        looked_at = 0
        written_bytes = 0
        for position in range(start, len(group_ids)):
            # One group adds at most half of a batch.
            if looked_at >= OFFSETS_PER_TURN_MAX or written_bytes > self._table.config.batch_bytes_max // 4:
                turn.set_timer(_TIMER, 0, partial(self._continue, group_ids, position))
                return
            looked_at += 1 + len(self._table.offsets.groups.get(group_ids[position], ()))
            written_bytes += self.clean(turn, group_ids[position])
        self.schedule(turn)

    def clean(self, turn: Turn, group_id: str) -> int:
        """Write tombstones for expired offsets, and for the group if it is empty then. Returns their size."""
        group = self._table.find_managed(turn, group_id)
        since_ms = self._since(group)
        if since_ms is None:
            return 0
        expired: list[tuple[str, bytes, bytes | None]] = []
        offsets = self._table.offsets
        committed = offsets.groups.get(group_id, {})
        for key, value in committed.items():
            topic, _ = offset_key_partition(key)
            if (
                not (group is not None and group.is_subscribed_to(topic))
                and self._is_expired(turn.wall_ms, value, since_ms)
                and not offsets.is_pending(group_id, key)
            ):
                expired.append((group_id, key, value))
        if len(expired) < len(committed) or offsets.has_open_transactions(group_id):
            return self._deletion.delete(turn, expired)
        return self._deletion.delete(turn, expired, partial(self._delete_if_done, group_id)) + len(group_id)

    def _since(self, group: AnyGroup | None) -> int | None:
        """When retention starts: a time, COMMIT_TIME for the time of each commit, None for never."""
        if not isinstance(group, ClassicGroup) or group.protocol_type is None:
            return COMMIT_TIME
        if group.is_empty:
            return group.state_timestamp_ms  # -1 (an old record without it) means the time of the commit
        if group.is_consumer_protocol and group.subscribed_topics is not None and group.state is ClassicState.STABLE:
            return COMMIT_TIME
        return None

    def _is_expired(self, wall_ms: int, value: bytes, since_ms: int) -> bool:
        committed = decode_offset_value(value)
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return wall_ms >= committed.expire_timestamp_ms
        if since_ms == COMMIT_TIME:
            since_ms = committed.commit_timestamp_ms
        return wall_ms - since_ms >= self._table.config.offsets_retention_ms

    def _delete_if_done(self, group_id: str, turn: Turn) -> None:
        group = self._table.groups.get(group_id)
        if group is None or not group.is_empty or group_id in self._table.offsets.groups:
            return
        if not (isinstance(group, ClassicGroup) and group.pending_join):
            self._remove(turn, group)
