"""Reading from a log: maps an offset to a slice of a file.

The log remembers the ends of recent reads as *marks*: (offset, segment, position). A sequential reader, such as a
consumer, continues at one of them without a search. Any other read bisects the segments, then the segment's index, then
walks over the headers of a few kilobytes of batches. A log is never scanned.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeVar

import msgspec

from penstock.log.core import LogCore
from penstock.log.index_entries import IndexDamaged
from penstock.log.scan import rebuild_index
from penstock.log.segment import (
    LENGTH_MIN,
    SPAN,
    SPAN_BYTES,
    WALK_BYTES,
    DamagedSegment,
    Found,
    Need,
    Segment,
    Steps,
    walk,
    walk_bytes,
)
from penstock.runtime import File
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import HEADER_SIZE

EMPTY_SLICES_MAX = 64
"""How many slices without records may be skipped in one call."""

READ_MARKS_MAX = 64
"""Read ends remembered per log: this many sequential readers need no search."""

T = TypeVar("T")

_scratch = memoryview(bytearray(WALK_BYTES))
_span = _scratch[:SPAN_BYTES]


class Slice(msgspec.Struct, frozen=True):
    """Complete batches in a file. A user that keeps it beyond the current turn of the loop must retain the file."""

    file: File
    position: int
    size: int
    first_offset: int
    """The base offset of the first batch, which is at or before the requested offset."""
    next_offset: int
    """The offset after the last batch; -1 if unknown."""


class LogChanged(Exception):
    """The log was truncated during a read: search again."""


class Reader:
    __slots__ = ("_log", "_marks")

    def __init__(self, log: LogCore) -> None:
        self._log = log
        self._marks: dict[int, tuple[Segment, int]] | None = None

    def forget_marks(self) -> None:
        """Forget all marks because file positions have changed."""
        self._marks = None

    def try_read(self, offset: int, max_bytes: int, upto_offset: int, *, min_one: bool = True) -> Slice | None:
        """Complete batches from the one that contains `offset`, up to the last that ends before `upto_offset`.

        Returns as many as fit into `max_bytes`, as far as the index knows a batch boundary, but at least one if
        `min_one`. All are in one segment. Empty if `offset` is not below `upto_offset`. None if data must be read from
        the device; then `await read(...)`. Raises KafkaError(OFFSET_OUT_OF_RANGE).
        """
        log = self._log
        marks = self._marks
        if marks is not None and offset >= log.start_offset:
            mark = marks.get(offset)
            if mark is not None:
                segment, position = mark
                next_offset = upto_offset
                if upto_offset == log.end_offset and segment is log.active:
                    size = segment.size_bytes - position
                elif upto_offset >= segment.end_offset:
                    size = segment.size_bytes - position
                    next_offset = segment.end_offset
                else:
                    last = marks.get(upto_offset)
                    size = last[1] - position if last is not None and last[0] is segment else 0
                if size > max_bytes:
                    size, next_offset = self._try_fit(segment, position, max_bytes)
                if size > 0:
                    marks[next_offset] = (segment, position + size)
                    if len(marks) > READ_MARKS_MAX:
                        del marks[next(iter(marks))]
                    return Slice(segment.file, position, size, offset, next_offset)
        steps = self._read(offset, max_bytes, upto_offset, min_one)
        try:
            need = next(steps)
            while True:
                segment, position, size, optional = need
                if size:
                    got = segment.file.try_pread_into(_scratch[:size], position)
                    if got < size and got < SPAN_BYTES:
                        if not optional:
                            return None
                        got = 0
                    need = steps.send(_scratch[:got])
                elif segment.index.try_load(segment.size_bytes, log.index_gap_bytes_max):
                    need = steps.send(_scratch[:0])
                else:
                    return None
        except StopIteration as stop:
            found: Slice = stop.value
            return found
        except (IndexDamaged, DamagedSegment, FileNotFoundError):
            return None  # `read` finds the cause and repairs the index if it can

    async def read(self, offset: int, max_bytes: int, upto_offset: int, *, min_one: bool = True) -> Slice:
        """Like `try_read`, but reads from the device off the loop if needed."""
        log = self._log
        rebuilt: Segment | None = None
        while True:
            version = log.version
            try:
                return await self.drive(self._read(offset, max_bytes, upto_offset, min_one))
            except (LogChanged, FileNotFoundError):
                if log.version == version:
                    raise
            except DamagedSegment as error:
                if rebuilt is error.segment:
                    raise
                # The index may be wrong and the segment intact.
                rebuilt = error.segment
                await rebuild_index(log.runtime, rebuilt, log.config.index_interval_bytes)

    def try_pass_empty(self, found: Slice, max_bytes: int, upto_offset: int) -> Slice | None:
        """For consumers: if `found` contains no records, the next slice that does, if any; otherwise `found` itself.

        Compaction leaves batches without records. A client takes a response with only such batches for a truncated one:
        librdkafka doubles its fetch size each time and finally gives up. None if data must be read from the device;
        then `await pass_empty(...)`.
        """
        for _ in range(EMPTY_SLICES_MAX):
            if not _may_be_empty(found):
                break
            view = _scratch[: found.size]
            if found.file.try_pread_into(view, found.position) < found.size:
                return None
            if not _is_empty(view):
                break
            following = self.try_read(found.next_offset, max_bytes, upto_offset)
            if following is None:
                return None
            if not following.size:
                break
            found = following
        return found

    async def pass_empty(self, found: Slice, max_bytes: int, upto_offset: int) -> Slice:
        """Like `try_pass_empty`, but reads from the device off the loop if needed."""
        for _ in range(EMPTY_SLICES_MAX):
            if not _may_be_empty(found) or not _is_empty(await found.file.pread(found.size, found.position)):
                break
            following = await self.read(found.next_offset, max_bytes, upto_offset)
            if not following.size:
                break
            found = following
        return found

    async def locate(self, offset: int) -> Found:
        """The batch that contains `offset`, or the end of the log. Raises LogChanged if the log is truncated
        meanwhile."""
        return await self.drive(self._locate(offset))

    async def drive(self, steps: Steps[T]) -> T:
        """Run a search and read from the device what it asks for. Raises LogChanged."""
        log = self._log
        version = log.version
        try:
            need = next(steps)
            while True:
                data = b""
                if need.size:
                    data = await need.segment.file.pread(need.size, need.position)
                else:
                    await log.load_index(need.segment)
                if log.version != version:
                    raise LogChanged
                need = steps.send(memoryview(data))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def segment_of(self, offset: int) -> Segment:
        log = self._log
        index = bisect_right(log.segments, offset, key=_base_offset) - 1
        return log.segments[max(index, 0)]

    def _read(self, offset: int, max_bytes: int, upto_offset: int, min_one: bool) -> Steps[Slice]:
        log = self._log
        if not log.start_offset <= offset <= log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not between {log.start_offset} and {log.end_offset}",
            )
        if upto_offset > log.end_offset:
            upto_offset = log.end_offset
        if offset >= upto_offset:
            return Slice(log.active.file, log.active.size_bytes, 0, offset, offset)
        segment, position, first_offset = yield from self._locate(offset)
        if upto_offset == log.end_offset or upto_offset >= segment.end_offset:
            end = segment.size_bytes
            next_offset = min(segment.end_offset, log.end_offset)
        else:
            last = yield from self._locate(upto_offset)
            self._mark(last)
            # A batch that extends beyond the limit is excluded, even if it begins before.
            in_next = last.segment is not segment
            end, next_offset = (segment.size_bytes, segment.end_offset) if in_next else last[1:]
        size = end - position
        if size > max_bytes:
            size, next_offset = yield from self._fit(segment, position, end, max_bytes, min_one)
        if size <= 0:
            return Slice(segment.file, position, 0, offset, offset)
        if next_offset >= 0:
            self._mark(Found(segment, position + size, next_offset))
        return Slice(segment.file, position, size, first_offset, next_offset)

    def _try_fit(self, segment: Segment, position: int, max_bytes: int) -> tuple[int, int]:
        """`_fit` for the common case that the index in memory knows a boundary. Otherwise returns size 0."""
        index = segment.index
        if index.knows_position(position + max_bytes):
            boundary = index.boundary(position + max_bytes)
            if boundary > position and segment.file.try_pread_into(_span, boundary) == SPAN_BYTES:
                return boundary - position, SPAN.unpack_from(_span)[0]
        return 0, -1

    def _fit(self, segment: Segment, position: int, end: int, max_bytes: int, min_one: bool) -> Steps[tuple[int, int]]:
        """The size of the batches from `position` that fit into `max_bytes`, and the offset after them."""
        index = segment.index
        if not index.knows_position(position + max_bytes):
            yield Need(segment, 0, 0)
        boundary = index.boundary(position + max_bytes)
        if boundary <= position:
            return (yield from walk_bytes(segment, position, end, max_bytes, min_one))
        # The offset is needed only for the mark, which is not worth a device read.
        header = yield Need(segment, boundary, SPAN_BYTES, optional=True)
        next_offset = SPAN.unpack_from(header)[0] if len(header) == SPAN_BYTES else -1
        return boundary - position, next_offset

    def _locate(self, offset: int) -> Steps[Found]:
        log = self._log
        if offset >= log.end_offset:
            return Found(log.active, log.active.size_bytes, log.end_offset)
        mark = self._marks.get(offset) if self._marks is not None else None
        if mark is not None and mark[1] < mark[0].size_bytes:
            return Found(mark[0], mark[1], offset)
        segment = self.segment_of(offset)
        if offset == segment.base_offset:
            return Found(segment, 0, offset)
        index = segment.index
        if not index.knows_offset(offset):
            yield Need(segment, 0, 0)
        found = yield from walk(segment, index.floor(offset), offset)
        if found is None:
            # The offset is in a gap at the end of a segment: the next batch is the first of the next segment.
            following = self.segment_of(segment.end_offset)
            return Found(following, 0, following.base_offset)
        return found

    def _mark(self, found: Found) -> None:
        """Remember where a batch begins or will begin."""
        if self._marks is None:
            self._marks = {}
        self._marks[found.base_offset] = (found.segment, found.position)
        if len(self._marks) > READ_MARKS_MAX:
            del self._marks[next(iter(self._marks))]


def _may_be_empty(found: Slice) -> bool:
    """Judges by the size, which rules out nearly all slices with records."""
    return not found.size % HEADER_SIZE and 0 < found.size <= WALK_BYTES and found.next_offset >= 0


def _is_empty(batches: memoryview | bytes) -> bool:
    return all(SPAN.unpack_from(batches, position)[1] == LENGTH_MIN for position in range(0, len(batches), HEADER_SIZE))


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
