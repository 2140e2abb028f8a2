"""Deletes any number of offsets, with tombstones in portions that fit into a batch.

The records of one turn become one batch, so a group with a hundred thousand offsets cannot be deleted in one turn. Each
portion removes the offsets from memory in the same turn that writes their tombstones. Offsets that are committed
between two portions are not deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.coordinators.groups.records import RECORD_OVERHEAD_BYTES
from penstock.coordinators.groups.table import GroupTable
from penstock.coordinators.shard import TimerKey, Turn

Entry = tuple[str, bytes, bytes | None]
"""Group id, key, and the value to delete; None if an offset is only pending in a transaction."""


class OffsetDeletion:
    """Deletes offsets of one shard."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._runs = 0

    def delete(self, turn: Turn, entries: list[Entry], then: Callable[[Turn], None] | None = None) -> int:
        """Write tombstones for all entries that have not changed; call `then` in the turn of the last one.

        Returns the size of this turn's portion: at most half of a batch.
        """
        self._runs += 1
        return self._portion(self._runs, entries, 0, then, turn)

    def _continue(
        self,
        run: int,
        entries: list[Entry],
        start: int,
        then: Callable[[Turn], None] | None,
        turn: Turn,
        key: TimerKey,
    ) -> None:
        self._portion(run, entries, start, then, turn)

    def _portion(
        self, run: int, entries: list[Entry], start: int, then: Callable[[Turn], None] | None, turn: Turn
    ) -> int:
        offsets = self._table.offsets
        # At most half of a batch: others append to the same batch, and `then` appends a record too.
        portion_bytes_max = self._table.config.batch_bytes_max // 2
        size_bytes = 0
        for position in range(start, len(entries)):
            group_id, key, value = entries[position]
            size_next_bytes = size_bytes + len(key) + RECORD_OVERHEAD_BYTES
            if size_next_bytes > portion_bytes_max and position > start:
                turn.set_timer(("tombstones", str(run)), 0, partial(self._continue, run, entries, position, then))
                return size_bytes
            committed = offsets.groups.get(group_id, {}).get(key)
            if committed is value and offsets.remove(group_id, key):
                turn.append(key, None)
                size_bytes = size_next_bytes
        if then is not None:
            then(turn)
        return size_bytes
