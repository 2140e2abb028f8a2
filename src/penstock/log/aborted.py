"""The index of aborted transactions: per segment in memory and on disk, and searched over all segments of a log.

A reader of committed records gets whole batches, also those of aborted transactions, and the list of aborted
transactions that overlap them. An entry is in the segment of its transaction's *marker*. So a search begins in the
segment that is read, and goes on to later ones until an entry shows that every transaction open before its marker began
behind the range.

The file is written with the marker. Like the other indexes it is derived from the batches: recovery rebuilds it from
the last snapshot of producers on, a truncation truncates it, and it is removed with its segment. A compacted segment
has none, because compaction removes all records of aborted transactions. A stale entry would be worse than a missing
one: a reader that never sees its marker would drop all later records of the producer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.log import names
from penstock.log.aborted_entries import ABORTED_ENTRY_BYTES, FIELDS, decode_aborted, encode_aborted
from penstock.log.index_entries import IndexDamaged
from penstock.log.transactions import AbortedTransaction
from penstock.runtime import Disk

if TYPE_CHECKING:
    from penstock.log.core import LogCore
    from penstock.log.indexes import IndexCache
    from penstock.log.segment import Segment
    from penstock.log.snapshots import ProducerSnapshots

UNKNOWN_COUNT = -1


class SegmentAborted:
    """The aborted transactions whose markers are in one segment."""

    __slots__ = ("_cache", "_disk", "_numbers", "base_offset", "count", "path")

    def __init__(self, disk: Disk, directory: str, base_offset: int, cache: IndexCache, count: int) -> None:
        self._disk = disk
        self._cache = cache
        self.base_offset = base_offset
        self.path = names.path_of(directory, base_offset, names.ABORTED_INDEX_SUFFIX)
        self.count = count
        """UNKNOWN_COUNT until the file was looked at."""
        self._numbers: array[int] | None = None if count else array("q")
        """Flat, FIELDS per entry; None unless in memory."""

    @property
    def numbers(self) -> array[int] | None:
        """All entries, flat; None unless they are in memory."""
        return self._numbers

    @property
    def memory_bytes(self) -> int:
        return 0 if self._numbers is None else 8 * len(self._numbers)

    def drop(self) -> None:
        """Leave memory; the file has everything."""
        self._cache.forget(self)
        if self.count:
            self._numbers = None

    def discard(self) -> None:
        """The segment was removed."""
        self._cache.forget(self)

    def read(self, end_offset: int) -> array[int]:
        """Read the file, which may wait for the device. Raises IndexDamaged."""
        if not self._disk.exists(self.path):
            data = b""
        else:
            data = self._disk.read_bytes(self.path)
        if self.count not in (UNKNOWN_COUNT, len(data) // ABORTED_ENTRY_BYTES):
            raise IndexDamaged(f"{self.path} has {len(data)} bytes, but must have {self.count} entries")
        return decode_aborted(data, self.base_offset, end_offset)

    def use(self, numbers: array[int]) -> None:
        """Keep in memory what the file contains."""
        self._numbers = numbers
        self.count = len(numbers) // FIELDS
        if self.count:
            self._cache.touch(self)

    def append(self, transactions: list[AbortedTransaction]) -> None:
        """Write entries behind the last one. The caller syncs the file with the segment."""
        if self.count == UNKNOWN_COUNT:
            # The active segment after a clean start: one look at the file's size.
            self.count = self._disk.size(self.path) // ABORTED_ENTRY_BYTES if self._disk.exists(self.path) else 0
            self._numbers = None if self.count else array("q")
        file = self._disk.open(self.path, create=True)
        file.pwrite(encode_aborted(transactions), self.count * ABORTED_ENTRY_BYTES)
        file.close()
        self.count += len(transactions)
        if self._numbers is not None:
            for transaction in transactions:
                self._numbers.extend(transaction)
            self._cache.touch(self)

    def replace(self, kept: int, transactions: list[AbortedTransaction]) -> None:
        """Keep the first entries of the file, and write these behind them."""
        self._cache.forget(self)
        self.count = kept + len(transactions)
        self._numbers = None if self.count else array("q")
        if not self.count:
            self._disk.unlink(self.path)
            return
        file = self._disk.open(self.path, create=True)
        file.truncate(kept * ABORTED_ENTRY_BYTES)
        if transactions:
            file.pwrite(encode_aborted(transactions), kept * ABORTED_ENTRY_BYTES)
        file.close()

    def truncate(self, numbers: array[int], end_offset: int) -> None:
        """Drop entries whose markers are not below `end_offset`. `numbers` are all entries."""
        kept = first_from(numbers, end_offset)
        if kept * FIELDS < len(numbers):
            self.replace(kept, [])


def find_in(numbers: array[int], from_offset: int, upto: int, found: list[AbortedTransaction]) -> bool:
    """Add the entries of one segment that overlap these offsets to `found`. True if no later segment can have more."""
    for at in range(first_from(numbers, from_offset) * FIELDS, len(numbers), FIELDS):
        transaction = AbortedTransaction(*numbers[at : at + FIELDS])
        if transaction.first_offset < upto:
            found.append(transaction)
        if transaction.last_stable_offset >= upto:
            return True
    return False


def first_from(numbers: array[int], offset: int) -> int:
    """The number of the first entry whose marker is at or after `offset`."""
    return bisect_left(range(len(numbers) // FIELDS), offset, key=lambda entry: numbers[entry * FIELDS + 2])


class AbortedTransactions:
    """Searches the indexes of all segments of a log."""

    __slots__ = ("_log", "_segments", "_snapshots", "_version")

    def __init__(self, log: LogCore, snapshots: ProducerSnapshots) -> None:
        self._log = log
        self._snapshots = snapshots
        self._segments: list[Segment] = []
        """Those that have entries, or may have some."""
        self._version = (-1, -1)

    def note(self, segment: Segment, transactions: list[AbortedTransaction]) -> None:
        """Write transactions, whose markers were just appended to `segment`, to its index."""
        if segment.aborted_count <= 0:
            self._log.flusher.names_changed()
            self.changed()
        segment.aborted.append(transactions)

    def changed(self) -> None:
        """Other segments than before have entries."""
        self._version = (-1, -1)

    def try_find(self, from_offset: int, upto: int) -> list[AbortedTransaction] | None:
        """The aborted transactions that overlap these offsets, in the order of their markers. All transactions that
        began before `upto` must have ended. None if an index must be read from the device; then `await find(…)`."""
        found: list[AbortedTransaction] = []
        for segment in self._relevant(from_offset):
            numbers = segment.aborted.numbers
            if numbers is None:
                return None
            if find_in(numbers, from_offset, upto, found):
                break
        return found

    async def find(self, from_offset: int, upto: int) -> list[AbortedTransaction]:
        """Like `try_find`, but reads from the device off the loop if needed."""
        while True:
            version = self._log.version
            found: list[AbortedTransaction] = []
            for segment in self._relevant(from_offset):
                numbers = await self.load(segment)
                if self._log.version != version:
                    break  # truncated or compacted meanwhile: search again
                if find_in(numbers, from_offset, upto, found):
                    return found
            else:
                return found

    async def load(self, segment: Segment) -> array[int]:
        """The entries of a segment, flat; read into memory, and rebuilt if the file is damaged."""
        index = segment.aborted
        while index.numbers is None and not segment.is_removed:
            count, end_offset = index.count, min(segment.end_offset, self._log.end_offset)
            try:
                numbers = await self._log.runtime.offload(index.read, end_offset)
            except IndexDamaged as error:
                self._log.damage += (f"{index.path}: {error}; rebuilt from the log",)
                await self._rebuild(segment)
                continue
            # Entries that were written meanwhile may be missing in what was read.
            if index.count in (count, len(numbers) // FIELDS):
                index.use(numbers)
                self.changed()
                return numbers
        return index.numbers or array("q")

    async def _rebuild(self, segment: Segment) -> None:
        """Rebuild the index of a segment from the batches of the log."""
        log, index = self._log, segment.aborted
        version, count = log.version, index.count
        aborted = await self._snapshots.aborted_in(segment)
        if log.version == version and index.count == count and not segment.is_removed:
            index.replace(0, aborted)
            index.use(array("q", [number for one in aborted for number in one]))
            log.flusher.names_changed()
            if aborted:
                await log.runtime.disk.open(index.path).sync()

    def _relevant(self, from_offset: int) -> Iterable[Segment]:
        log = self._log
        version = (log.version, len(log.segments))
        if version != self._version:
            self._version = version
            self._segments = [segment for segment in log.segments if segment.aborted_count]
        segments = self._segments
        if not segments:
            return ()
        first = bisect_left(segments, from_offset + 1, key=_end_offset)
        return segments[first:]


def _end_offset(segment: Segment) -> int:
    return segment.end_offset
