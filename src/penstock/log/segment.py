"""One segment: a `.log` file of consecutive batches, its indexes, and how to find a batch in it.

A search is written once, as a generator that yields requests (`Need`: some bytes of a segment, or its index) and
receives the data. `Reader.try_read` answers from the page cache and gives up at the first byte that is not there;
`Reader.read` reads from the device, off the loop.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import NamedTuple, TypeVar

from penstock.log import names
from penstock.log.aborted import UNKNOWN_COUNT, SegmentAborted
from penstock.log.indexes import EMPTY_INDEX_BYTES, IndexCache, Seal, SegmentIndex
from penstock.runtime import Disk, File
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

OPEN_END = (1 << 63) - 1
"""Marks the end offset of the active segment, which changes with every append; the log knows it."""
UNKNOWN = -2
"""The timestamp has not been looked up yet. (-1 means that there is none.)"""
NO_TIMESTAMP = -1

POSITION_MAX = (1 << 31) - 1
RELATIVE_OFFSET_MAX = (1 << 31) - 1

WALK_BYTES = 16 << 10
"""Bytes per read when walking over batch headers: a little more than an index interval."""

SPAN = Struct(">qi4xb6xi")
"""The header fields that a walk needs: base offset, batch length, magic and last offset delta."""
SPAN_BYTES = SPAN.size
LENGTH_MIN = HEADER_SIZE - LENGTH_OVERHEAD

T = TypeVar("T")


class Segment:
    __slots__ = (
        "_aborted",
        "_aborted_count",
        "_cache",
        "_directory",
        "_disk",
        "_file",
        "_index",
        "_seal",
        "_stored_timestamp",
        "base_offset",
        "end_offset",
        "first_timestamp",
        "has_file",
        "is_removed",
        "max_timestamp",
        "max_timestamp_offset",
        "size_bytes",
        "unindexed_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        cache: IndexCache,
        *,
        size_bytes: int = 0,
        end_offset: int = OPEN_END,
        max_timestamp: int = UNKNOWN,
        max_timestamp_offset: int = -1,
        first_timestamp: int = UNKNOWN,
        aborted_count: int = UNKNOWN_COUNT,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._cache = cache
        self._file: File | None = None
        self._index: SegmentIndex | None = None
        self._aborted: SegmentAborted | None = None
        self._aborted_count = aborted_count
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.size_bytes = size_bytes
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset
        self.first_timestamp = first_timestamp
        """The largest timestamp of the first batch, from which the age of the segment is computed for rolling."""
        self.unindexed_bytes = 0
        self.has_file = True
        self.is_removed = False
        self._seal: Seal | None = None
        self._stored_timestamp = max(max_timestamp, NO_TIMESTAMP)
        """The time index ends with the segment's largest timestamp: true after closing it or a clean stop."""

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, cache: IndexCache) -> Segment:
        """A new, empty segment. Its file is created by `create_file`, so a partition that is never written has none."""
        segment = cls(
            disk,
            directory,
            base_offset,
            cache,
            max_timestamp=NO_TIMESTAMP,
            first_timestamp=NO_TIMESTAMP,
            aborted_count=0,
        )
        segment.has_file = False
        return segment

    def __repr__(self) -> str:
        return f"<Segment {self._directory} {self.base_offset}, {self.size_bytes} bytes>"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path(names.LOG_SUFFIX))
        return self._file

    @property
    def index(self) -> SegmentIndex:
        if self._index is None:
            fresh = not self.has_file
            self._index = SegmentIndex(
                self._disk, self._directory, self.base_offset, self._cache, fresh=fresh, seal=self._seal
            )
            self._index.last_timestamp = self._stored_timestamp
        return self._index

    @index.setter
    def index(self, index: SegmentIndex) -> None:
        self._index = index

    @property
    def aborted(self) -> SegmentAborted:
        """The aborted transactions whose markers are in this segment."""
        if self._aborted is None:
            self._aborted = SegmentAborted(
                self._disk, self._directory, self.base_offset, self._cache, self._aborted_count
            )
        return self._aborted

    @property
    def aborted_count(self) -> int:
        """The number of entries in the index of aborted transactions, if it is known."""
        return self._aborted_count if self._aborted is None else self._aborted.count

    def use_file(self, file: File) -> None:
        """Use a file that temporarily has another name."""
        self._file = file

    def create_file(self) -> None:
        self._file = self._disk.open(self.path(names.LOG_SUFFIX), create=True)
        self._index = SegmentIndex(self._disk, self._directory, self.base_offset, self._cache, fresh=True)
        self.has_file = True

    @property
    def loaded_index(self) -> SegmentIndex | None:
        return self._index

    def path(self, suffix: str) -> str:
        return names.path_of(self._directory, self.base_offset, suffix)

    def note(self, last_offset: int, position: int, size: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Record a batch that is in the file at `position`."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.unindexed_bytes > index_interval_bytes:
            self.index.add(last_offset, position, self.max_timestamp, self.max_timestamp_offset)
            self.unindexed_bytes = 0
        self.unindexed_bytes += size
        self.size_bytes = position + size

    def store_index(self) -> None:
        """Write the whole index to disk, with the largest timestamp as its last entry, as Kafka does on closing."""
        index = self.index
        index.add_time(self.max_timestamp, self.max_timestamp_offset)
        index.store()

    def set_timestamps(self, max_timestamp: int, offset: int) -> None:
        """Set the timestamps of a segment whose stored index already contains them."""
        self.max_timestamp, self.max_timestamp_offset = max_timestamp, offset
        self._stored_timestamp = max(max_timestamp, NO_TIMESTAMP)

    def set_seal(self, seal: tuple[int, int, int, int] | None) -> None:
        self._seal = None if seal is None else Seal(*seal)

    @property
    def seal(self) -> Seal | None:
        """Checksums that prove the index files to be unchanged since they were stored."""
        return self._seal if self._index is None else self._index.seal

    def index_files(self) -> tuple[File, File]:
        return self.index.files()

    def rest(self) -> None:
        """Close the file for now, and tell the cache the size of the index."""
        if self._index is not None and self._index.memory_bytes > EMPTY_INDEX_BYTES:
            self._cache.touch(self._index)
        if self._file is not None:
            self._file.close()

    def forget_indexes(self) -> None:
        """The log was closed as after a crash: its indexes no longer count as memory in use."""
        for index in (self._index, self._aborted):
            if index is not None:
                self._cache.forget(index)

    def discard_indexes(self) -> None:
        """The segment was removed: drop its indexes from memory."""
        if self._index is not None:
            self._index.discard()
        if self._aborted is not None:
            self._aborted.discard()

    def release(self) -> None:
        """Release descriptors and memory; both can be obtained again."""
        if self._index is not None:
            self._index.drop()
        if self._aborted is not None:
            self._aborted.drop()
        if self._file is not None:
            self._file.close()
            self._file = None


class Need(NamedTuple):
    """A request of a search: bytes of a segment, or (with size 0) its index in memory."""

    segment: Segment
    position: int
    size: int
    optional: bool = False
    """If the data is not in memory, answer with an empty buffer."""


Steps = Generator[Need, memoryview, T]


class Found(NamedTuple):
    """The place of a batch, and its first offset."""

    segment: Segment
    position: int
    base_offset: int


def walk(segment: Segment, position: int, offset: int) -> Steps[Found | None]:
    """Walk from the batch at `position` to the first batch whose last offset is >= `offset`."""
    while position < segment.size_bytes:
        buffer = yield Need(segment, position, min(WALK_BYTES, segment.size_bytes - position))
        at = 0
        while len(buffer) - at >= SPAN_BYTES:
            base_offset, length, magic, last_offset_delta = SPAN.unpack_from(buffer, at)
            if magic != MAGIC or length < LENGTH_MIN or base_offset < segment.base_offset:
                raise DamagedSegment(segment, position + at)
            if base_offset + last_offset_delta >= offset:
                return Found(segment, position + at, base_offset)
            at += LENGTH_OVERHEAD + length
        if not at:
            raise DamagedSegment(segment, position)
        position += at
    return None


def walk_bytes(segment: Segment, position: int, end: int, max_bytes: int, min_one: bool) -> Steps[tuple[int, int]]:
    """Walk from the batch at `position` over as many batches as fit into `max_bytes`, at least one if `min_one`.

    Returns their total size and the offset after the last.
    """
    start = position
    next_offset = -1
    while position < end:
        buffer = yield Need(segment, position, min(WALK_BYTES, end - position))
        at = 0
        while len(buffer) - at >= SPAN_BYTES:
            base_offset, length, magic, last_offset_delta = SPAN.unpack_from(buffer, at)
            if magic != MAGIC or length < LENGTH_MIN:
                raise DamagedSegment(segment, position + at)
            at += LENGTH_OVERHEAD + length
            if position + at > end:
                raise DamagedSegment(segment, position + at - LENGTH_OVERHEAD - length)
            if position + at - start > max_bytes and not (min_one and next_offset < 0):
                return position + at - LENGTH_OVERHEAD - length - start, next_offset
            next_offset = base_offset + last_offset_delta + 1
            if position + at - start >= max_bytes:
                return position + at - start, next_offset
        if not at:
            raise DamagedSegment(segment, position)
        position += at
    return min(position, end) - start, next_offset


class DamagedSegment(KafkaError):
    """No valid batch begins where one should: the segment is damaged, or its index is wrong."""

    def __init__(self, segment: Segment, position: int) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{segment.path(names.LOG_SUFFIX)} has no valid batch at position {position}, where one should begin. "
            "Run `penstock log verify` to see the extent of the damage; another replica may have an intact copy.",
        )
        self.segment = segment
