"""Which leader epoch wrote which part of a log (KIP-101, KIP-320).

Followers and consumers ask where an epoch ended, to find the offset where their history diverges from the leader's.
Entries are (epoch, first offset), both ascending. They are stored in `leader-epoch-checkpoint`, in Kafka's text format
with a checksum that Kafka ignores (`sealing`).

The file need not follow every change: recovery finds entries at or beyond the recovery point again in the batches. So
it is written when the recovery point is about to pass an entry, and when a log is closed.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from penstock.log.sealing import SealBroken, seal, unseal

NO_EPOCH = -1
NO_OFFSET = -1

_VERSION = 0


class EpochsDamaged(Exception):
    """The checkpoint file cannot be read; the epochs must be rebuilt from the batches."""


class EpochCache:
    __slots__ = ("_entries", "is_dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries: list[tuple[int, int]] = entries or []
        self.is_dirty = False
        """The file on disk is out of date."""

    @property
    def latest_epoch(self) -> int:
        return self._entries[-1][0] if self._entries else NO_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`. Conflicting entries are dropped: they never had records."""
        assert epoch >= 0
        assert start_offset >= 0
        entries = self._entries
        if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.is_dirty = True

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 if unknown."""
        index = bisect_right(self._entries, offset, key=_start_offset) - 1
        return self._entries[index][0] if index >= 0 else NO_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is <= `epoch`, and its end offset, as OffsetForLeaderEpoch returns them."""
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return NO_EPOCH, NO_OFFSET
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        index = bisect_right(entries, epoch, key=_epoch)
        floor = entries[index - 1][0] if index else epoch
        return floor, entries[index][1]

    def truncate_end(self, end_offset: int) -> None:
        """Remove entries that begin at or after the log's new end."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
            self.is_dirty = True

    def truncate_start(self, start_offset: int) -> None:
        """Remove epochs that ended before the log's new start; the epoch that contains the new start now begins
        there."""
        entries = self._entries
        index = bisect_right(entries, start_offset, key=_start_offset)
        if index and entries[index - 1][1] != start_offset:
            entries[:index] = [(entries[index - 1][0], start_offset)]
            self.is_dirty = True
        elif index > 1:
            del entries[: index - 1]
            self.is_dirty = True

    def clear(self) -> None:
        self.is_dirty = self.is_dirty or bool(self._entries)
        self._entries = []

    def encode(self) -> bytes:
        lines = [str(_VERSION), str(len(self._entries))]
        lines += [f"{epoch} {start}" for epoch, start in self._entries]
        return seal("\n".join(lines) + "\n")


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """The entries of a checkpoint file. Raises EpochsDamaged."""
    try:
        lines = unseal(data).decode("ascii").split()
        version, count = int(lines[0]), int(lines[1])
        numbers = [int(word) for word in lines[2:]]
    except SealBroken as error:
        raise EpochsDamaged(str(error)) from None
    except (ValueError, IndexError):
        raise EpochsDamaged("not a leader epoch checkpoint") from None
    entries = list(zip(numbers[0::2], numbers[1::2], strict=False))
    rising = all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(entries))
    if version != _VERSION or len(numbers) != 2 * count or not rising:
        raise EpochsDamaged(f"version {version}, {count} entries announced, {len(entries)} found")
    return entries


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_offset(entry: tuple[int, int]) -> int:
    return entry[1]
