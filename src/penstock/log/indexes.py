"""The sparse indexes of a segment: from offset to position, and from time to offset.

After every `index.interval.bytes` of batches one batch gets an entry in each index (`penstock.log.index_entries`).
Entries are strictly ascending, so a search is a bisection followed by a short walk over batch headers.

Life cycle: the entries of the active segment are collected in memory and written to the file in bulk. The index of a
closed segment is read at its first search. An `IndexCache` tracks all indexes in memory and drops the least recently
used ones above a size limit; a dropped index is, or is first, stored on disk. So the entries in memory are always the
*newest* `total - first` ones; `first` is 0 when all are in memory.

Indexes are synced only when a segment is closed, and the format has no room for a checksum. So the broker keeps a
checksum of the stored files (a `Seal`, saved by a clean stop). Without one it checks a sample of each sector. An index
that fails the check is rebuilt from the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import NamedTuple, Protocol

from crc32c import crc32c

from penstock.log import names
from penstock.log.index_entries import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY,
    TIME_ENTRY_BYTES,
    IndexDamaged,
    check_offset_entries,
    check_time_entries,
    decode_offset_entries,
    encode_offset_entries,
    time_at,
)
from penstock.runtime import Disk, File

INDEX_CACHE_BYTES_MAX = 64 << 20
ENTRIES_UNSTORED_MAX = 512
"""Entries collected in memory before they are written to the file."""

ENTRIES_PER_TOUCH = 64
"""Entries added before the cache is told that an index grew."""

EMPTY_INDEX_BYTES = 512
"""The memory of an index besides its entries."""


class Seal(NamedTuple):
    """The number of entries in the files of an index, and their checksums."""

    entries: int
    crc: int
    times: int
    times_crc: int


class Cached(Protocol):
    """An index that may be in memory."""

    @property
    def memory_bytes(self) -> int: ...

    def drop(self) -> None:
        """Leave memory, after writing to disk what only memory has."""


class IndexCache:
    """The indexes in memory of all logs of a broker; drops the least recently used."""

    __slots__ = ("_indexes", "bytes_max", "size_bytes")

    def __init__(self, bytes_max: int = INDEX_CACHE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self._indexes: OrderedDict[Cached, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._indexes)

    def touch(self, index: Cached) -> None:
        """Mark `index` as most recently used, after a search or an addition."""
        indexes = self._indexes
        size_bytes = index.memory_bytes
        self.size_bytes += size_bytes - indexes.get(index, 0)
        indexes[index] = size_bytes
        indexes.move_to_end(index)
        while self.size_bytes > self.bytes_max and len(indexes) > 1:
            try:
                next(iter(indexes)).drop()
            except OSError:
                return  # an index that cannot be stored stays in memory; the next append reports the disk's error

    def forget(self, index: Cached) -> None:
        self.size_bytes -= self._indexes.pop(index, 0)


class SegmentIndex:
    """Both indexes of one segment."""

    __slots__ = (
        "_cache",
        "_crc",
        "_directory",
        "_disk",
        "_first",
        "_offsets",
        "_positions",
        "_proved",
        "_stale",
        "_stored",
        "_times",
        "_times_crc",
        "_times_first",
        "_times_stored",
        "_trim",
        "base_offset",
        "last_timestamp",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        cache: IndexCache,
        *,
        fresh: bool,
        seal: Seal | None = None,
    ) -> None:
        """`fresh`: the segment is new or will be scanned, so ignore existing files of this name."""
        self.base_offset = base_offset
        self.last_timestamp = -1
        """The timestamp of the newest entry of the time index, if known."""
        self._disk = disk
        self._directory = directory
        self._cache = cache
        self._offsets: array[int] = array("I")
        self._positions: array[int] = array("I")
        self._times = bytearray()
        self._first = self._stored = 0 if fresh else -1
        self._times_first = self._times_stored = self._first
        self._crc: int | None = 0 if fresh else None
        self._times_crc: int | None = self._crc
        """The checksums of the stored entries; None if unknown."""
        self._proved = fresh
        """The files were verified to match what was stored."""
        if seal is not None:
            self._first, self._crc, self._times_first, self._times_crc = seal
            self._stored, self._times_stored = self._first, self._times_first
        self._trim = seal is not None
        """The files may hold more entries than the seal covers, stored by a process that was then killed."""
        self._stale = fresh
        """Existing files hold something else and are removed before the first entry is stored."""

    # ---- searching

    @property
    def is_resident(self) -> bool:
        return self._first == 0 and self._times_first == 0

    @property
    def is_stored(self) -> bool:
        """Whether the files hold all entries that are in memory."""
        return self._first < 0 or (
            not self._stale
            and self._stored == self._first + len(self._offsets)
            and self._times_stored * TIME_ENTRY_BYTES == self._times_first * TIME_ENTRY_BYTES + len(self._times)
        )

    @property
    def is_proved(self) -> bool:
        """Whether the files are known to be intact, or irrelevant because all entries are in memory."""
        return self._proved or self.is_resident

    @property
    def seal(self) -> Seal | None:
        """The seal of the current files; None if entries are not stored yet or the files were never checked."""
        if self._crc is None or self._times_crc is None or not self.is_stored:
            return None
        return Seal(self._stored, self._crc, self._times_stored, self._times_crc)

    @property
    def memory_bytes(self) -> int:
        return EMPTY_INDEX_BYTES + 8 * len(self._offsets) + len(self._times)

    @property
    def entries_known(self) -> int:
        """The number of entries of the offset index, including those on disk if they were counted."""
        return self._first + len(self._offsets)

    def knows_offset(self, offset: int) -> bool:
        """Whether `floor` can answer from memory."""
        return self._first == 0 or (len(self._offsets) > 0 and offset - self.base_offset >= self._offsets[0])

    def floor(self, offset: int) -> int:
        """The position of an indexed batch at or before the batch that contains `offset`: where the header walk
        starts."""
        index = bisect_right(self._offsets, offset - self.base_offset) - 1
        return self._positions[index] if index >= 0 else 0

    def knows_position(self, position: int) -> bool:
        """Whether `boundary` can answer from memory."""
        return self._first == 0 or (len(self._positions) > 0 and position >= self._positions[0])

    def boundary(self, position: int) -> int:
        """The largest known batch boundary that is <= `position`; 0 if there is none."""
        index = bisect_right(self._positions, position) - 1
        return self._positions[index] if index >= 0 else 0

    def floor_offset_of_time(self, timestamp: int) -> int:
        """The offset of an entry such that it and all records before it are older than `timestamp`; or the base
        offset."""
        assert self._times_first == 0, "the time index must be completely in memory"
        times = self._times
        index = bisect_left(range(len(times) // TIME_ENTRY_BYTES), timestamp, key=lambda i: time_at(times, i)[0]) - 1
        return self.base_offset + time_at(times, index)[1] if index >= 0 else self.base_offset

    def last_time(self) -> tuple[int, int]:
        """(timestamp, offset) of the newest entry in memory, or (-1, base offset)."""
        if not self._times:
            return -1, self.base_offset
        timestamp, relative = time_at(self._times, len(self._times) // TIME_ENTRY_BYTES - 1)
        return timestamp, self.base_offset + relative

    def offset_entries(self) -> list[tuple[int, int]]:
        """(last offset, position) of the entries in memory."""
        return [(self.base_offset + o, p) for o, p in zip(self._offsets, self._positions, strict=True)]

    def time_entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of the entries in memory."""
        return [(t, self.base_offset + o) for t, o in TIME_ENTRY.iter_unpack(self._times)]

    # ---- writing

    def add(self, last_offset: int, position: int, timestamp: int, timestamp_offset: int) -> int:
        """Index the batch at `position`; `timestamp` is the segment's largest so far. Returns the number of entries."""
        offsets = self._offsets
        if not len(offsets) % ENTRIES_PER_TOUCH:
            self._cache.touch(self)
        offsets.append(last_offset - self.base_offset)
        self._positions.append(position)
        if timestamp > self.last_timestamp:
            self.add_time(timestamp, timestamp_offset)
        if self._first + len(offsets) - self._stored >= ENTRIES_UNSTORED_MAX:
            self.store()
        return self._first + len(offsets)

    def add_time(self, timestamp: int, timestamp_offset: int) -> None:
        if timestamp > self.last_timestamp:
            self.last_timestamp = timestamp
            self._times += TIME_ENTRY.pack(timestamp, timestamp_offset - self.base_offset)

    def store(self) -> None:
        """Write the missing entries to the files, without a sync."""
        self.store_times()
        file = self._disk.open(self._path(names.OFFSET_INDEX_SUFFIX), create=True)
        if self._trim:
            self._trim = False
            _cut_to(file, self._stored * OFFSET_ENTRY_BYTES)
        skip = self._stored - self._first
        if skip < len(self._offsets):
            data = encode_offset_entries(self._offsets[skip:], self._positions[skip:])
            file.pwrite(data, self._stored * OFFSET_ENTRY_BYTES)
            self._crc = None if self._crc is None else crc32c(data, self._crc)
            self._stored = self._first + len(self._offsets)

    def store_times(self) -> File:
        """The first half of `store`: write the time index. Until the offset index is written too, the files are not
        trusted."""
        self._count_stored()
        if self._stale:
            # Removed and not overwritten: a power loss could leave a mixture of old and new entries.
            self.remove_files()
        file = self._disk.open(self._path(names.TIME_INDEX_SUFFIX), create=True)
        if self._trim:
            _cut_to(file, self._times_stored * TIME_ENTRY_BYTES)
        skip = self._times_stored - self._times_first
        if skip * TIME_ENTRY_BYTES < len(self._times):
            data = bytes(self._times[skip * TIME_ENTRY_BYTES :])
            file.pwrite(data, self._times_stored * TIME_ENTRY_BYTES)
            self._times_crc = None if self._times_crc is None else crc32c(data, self._times_crc)
            self._times_stored = self._times_first + len(self._times) // TIME_ENTRY_BYTES
        return file

    def drop(self) -> None:
        """Free the memory; the entries stay on disk."""
        if len(self._offsets) or self._times:
            self.store()
            self._first += len(self._offsets)
            self._times_first += len(self._times) // TIME_ENTRY_BYTES
            self._offsets, self._positions, self._times = array("I"), array("I"), bytearray()
        self._cache.forget(self)

    def discard(self) -> None:
        """Free the memory and forget the files: the segment was removed."""
        self._offsets, self._positions, self._times = array("I"), array("I"), bytearray()
        self._first = self._times_first = 0
        self._forget_files()
        self._cache.forget(self)

    def truncate(self, position: int, end_offset: int) -> None:
        """Remove the entries of batches from `position` on. The whole index must be in memory.

        The files are removed. The caller must make that durable before anything is appended; otherwise old entries
        could reappear next to new ones.
        """
        assert self.is_resident
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:]
        del self._positions[keep:]
        relative_end = end_offset - self.base_offset
        while self._times and time_at(self._times, len(self._times) // TIME_ENTRY_BYTES - 1)[1] >= relative_end:
            del self._times[-TIME_ENTRY_BYTES:]
        self.last_timestamp = self.last_time()[0]
        self.remove_files()
        self._cache.touch(self)

    def remove_files(self) -> None:
        self._disk.unlink(self._path(names.OFFSET_INDEX_SUFFIX))
        self._disk.unlink(self._path(names.TIME_INDEX_SUFFIX))
        self._forget_files()
        self._stale = False

    def _forget_files(self) -> None:
        self._stored = self._times_stored = 0
        self._crc = self._times_crc = 0

    def replace(self, offsets: array[int], positions: array[int], times: bytearray, upto_position: int) -> None:
        """Use entries that were rebuilt from the log up to `upto_position`; entries beyond it are kept."""
        newer = bisect_left(self._positions, upto_position)
        # A time entry added during the rebuild is either newer and larger than all rebuilt ones, or useless.
        last = time_at(times, len(times) // TIME_ENTRY_BYTES - 1) if times else (-1, -1)
        for timestamp, relative in list(TIME_ENTRY.iter_unpack(self._times)):
            if timestamp > last[0] and relative > last[1]:
                times += TIME_ENTRY.pack(timestamp, relative)
        self._offsets = offsets + self._offsets[newer:]
        self._positions = positions + self._positions[newer:]
        self._times = times
        self._first = self._times_first = 0
        self._proved = True
        self._forget_files()
        self._stale = True
        self.last_timestamp = max(self.last_timestamp, self.last_time()[0])
        self._cache.touch(self)

    # ---- reading the files

    def files(self) -> tuple[File, File]:
        return (
            self._disk.open(self._path(names.OFFSET_INDEX_SUFFIX)),
            self._disk.open(self._path(names.TIME_INDEX_SUFFIX)),
        )

    def try_load(self, size_bytes: int, gap_bytes_max: int) -> bool:
        """Load all entries if the page cache holds them; returns whether it did. Raises IndexDamaged."""
        if self.is_resident:
            self._cache.touch(self)
            return True
        loaded: list[bytes] = []
        for file, size in zip(self.files(), self._stored_bytes(), strict=True):
            buffer = bytearray(size)
            if size and file.try_pread_into(memoryview(buffer), 0) < size:
                return False
            loaded.append(bytes(buffer))
        self._take(loaded[0], loaded[1], size_bytes, gap_bytes_max)
        return True

    async def load(self, size_bytes: int, gap_bytes_max: int) -> None:
        """Load all entries, reading the files off the loop. Raises IndexDamaged."""
        if self.is_resident:
            self._cache.touch(self)
        while not self.is_resident:
            sizes = self._stored_bytes()
            offsets_file, times_file = self.files()
            try:
                offsets_data = await offsets_file.pread(sizes[0], 0) if sizes[0] else b""
                times_data = await times_file.pread(sizes[1], 0) if sizes[1] else b""
            except FileNotFoundError as error:
                raise IndexDamaged(str(error)) from None
            # Meanwhile an append may have stored more, or another task may have loaded it.
            if not self.is_resident and sizes == self._stored_bytes():
                self._take(offsets_data, times_data, size_bytes, gap_bytes_max)

    async def adopt(self, seal: Seal) -> bool:
        """Start with the entries that the seal proves to be in the files; recovery adds the rest as it scans."""
        assert not self._offsets, "the index must be fresh"
        offsets_file, times_file = self.files()
        try:
            offsets_data = await offsets_file.pread(seal.entries * OFFSET_ENTRY_BYTES, 0) if seal.entries else b""
            times_data = await times_file.pread(seal.times * TIME_ENTRY_BYTES, 0) if seal.times else b""
        except FileNotFoundError:
            return False
        if crc32c(offsets_data) != seal.crc or crc32c(times_data) != seal.times_crc:
            return False
        self._offsets, self._positions = decode_offset_entries(offsets_data)
        self._times = bytearray(times_data)
        self.last_timestamp = self.last_time()[0]
        if self._offsets:
            self._cache.touch(self)
        return True

    def _stored_bytes(self) -> tuple[int, int]:
        self._count_stored(must_exist=True)
        return self._stored * OFFSET_ENTRY_BYTES, self._times_stored * TIME_ENTRY_BYTES

    def _count_stored(self, *, must_exist: bool = False) -> None:
        if self._first < 0 or self._times_first < 0:
            self._first = self._stored = self._entries_in(names.OFFSET_INDEX_SUFFIX, OFFSET_ENTRY_BYTES, must_exist)
            self._times_first = self._entries_in(names.TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES, must_exist)
            self._times_stored = self._times_first

    def _entries_in(self, suffix: str, entry_bytes: int, must_exist: bool) -> int:
        path = self._path(suffix)
        try:
            return self._disk.size(path) // entry_bytes
        except FileNotFoundError:
            if must_exist:
                raise IndexDamaged(f"{path} does not exist") from None
            return 0

    def _take(self, offsets_data: bytes, times_data: bytes, size_bytes: int, gap_bytes_max: int) -> None:
        crc, times_crc = crc32c(offsets_data), crc32c(times_data)
        if self._crc not in (None, crc) or self._times_crc not in (None, times_crc):
            raise IndexDamaged(f"{self._path(names.OFFSET_INDEX_SUFFIX)} does not match its checksum")
        offsets, positions = decode_offset_entries(offsets_data[: self._first * OFFSET_ENTRY_BYTES])
        times_data = times_data[: self._times_first * TIME_ENTRY_BYTES]
        check_offset_entries(offsets, positions, size_bytes)
        if not self._offsets and size_bytes - (positions[-1] if positions else 0) > gap_bytes_max:
            raise IndexDamaged(f"{self._path(names.OFFSET_INDEX_SUFFIX)} ends too early for {size_bytes} bytes of log")
        check_time_entries(times_data)
        self._offsets = offsets + self._offsets
        self._positions = positions + self._positions
        self._times[:0] = times_data
        self._first = self._times_first = 0
        self._crc, self._times_crc = crc, times_crc
        self._proved = True
        self.last_timestamp = max(self.last_timestamp, self.last_time()[0])
        self._cache.touch(self)

    def _path(self, suffix: str) -> str:
        return names.path_of(self._directory, self.base_offset, suffix)


def _cut_to(file: File, size: int) -> None:
    if file.size() > size:
        file.truncate(size)
