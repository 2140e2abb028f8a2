"""Visiting the batches of a segment in order: for recovery, and to rebuild an index or the producer state.

The bytes are read in large chunks, off the loop unless they are cached, and the scan yields to the loop after
`slice_ms`. A `Visitor` processes the batches: it takes some complete batches from the front of the view it is given and
keeps no reference to the bytes.
"""

from __future__ import annotations

from array import array
from typing import Protocol

from penstock.log.index_entries import TIME_ENTRY
from penstock.log.producers import ProducerState
from penstock.log.segment import RELATIVE_OFFSET_MAX, SPAN, SPAN_BYTES, Segment
from penstock.runtime import Runtime
from penstock.wire.records import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader

CHUNK_BYTES = 1 << 20
SLICE_MS = 4.0
"""How long a scan may hold the loop at a time."""
BATCHES_PER_VISIT = 256
"""After this many batches a visitor returns, so that the scan can check the clock."""

SPARE_BUFFERS_MAX = 4

_spare_buffers: list[memoryview] = []
_unpack_header = HEADER.unpack_from


class Visitor(Protocol):
    def visit(self, view: memoryview, position: int) -> int:
        """Process up to BATCHES_PER_VISIT complete batches from the front of `view`, which begins at `position` of the
        file.

        Returns their size in bytes; 0 if the first batch is incomplete or invalid.
        """


async def scan(
    runtime: Runtime, segment: Segment, position: int, end: int, visitor: Visitor, *, slice_ms: float = SLICE_MS
) -> int:
    """Pass the batches between two positions to a visitor. Returns where it stopped: at `end`, or at an invalid
    batch."""
    file = segment.file
    buffer = _spare_buffers.pop() if _spare_buffers else memoryview(bytearray(CHUNK_BYTES))
    want = CHUNK_BYTES
    started_ms = runtime.now_ms()
    while position < end:
        size = min(want, end - position)
        # After a process crash most of the file is in the page cache, and using a thread would only cost time.
        view = buffer[:size]
        if len(view) < size or file.try_pread_into(view, position) < size:
            view = memoryview(await file.pread(size, position))
            started_ms = runtime.now_ms()
        want = CHUNK_BYTES
        taken = 0
        while took := visitor.visit(view[taken:], position + taken):
            taken += took
            if runtime.now_ms() - started_ms > slice_ms:
                await runtime.sleep(0)
                started_ms = runtime.now_ms()
        if not taken:
            if len(view) < SPAN_BYTES:
                break
            want = LENGTH_OVERHEAD + SPAN.unpack_from(view)[1]
            if want <= len(view) or position + want > end:
                break
        position += taken
    if len(_spare_buffers) < SPARE_BUFFERS_MAX:
        _spare_buffers.append(buffer)
    return position


async def rebuild_index(runtime: Runtime, segment: Segment, interval_bytes: int) -> None:
    """Rebuild the index of a segment from its batches, and store it."""
    end = segment.size_bytes
    builder = IndexBuilder(segment.base_offset, interval_bytes)
    await scan(runtime, segment, 0, end, builder)
    if segment.is_removed:
        return
    builder.finish()
    segment.index.replace(builder.offsets, builder.positions, builder.times, end)
    # Later starts do not check segments that were synced long ago. A truncated offset index is detected by its size, a
    # truncated time index is not. So the time index is synced before an offset index exists next to it.
    await segment.index.store_times().sync()
    if not segment.is_removed:
        segment.index.store()


class IndexBuilder:
    """Collects the entries of both indexes, exactly as appending would create them."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.offsets: array[int] = array("I")
        self.positions: array[int] = array("I")
        self.times = bytearray()
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._unindexed_bytes = 0
        self._last_time = -1

    def visit(self, view: memoryview, position: int) -> int:
        at = 0
        for _ in range(BATCHES_PER_VISIT):
            if len(view) - at < HEADER_SIZE:
                break
            header = BatchHeader._make(_unpack_header(view, at))
            size = header.size_bytes
            if size < HEADER_SIZE or at + size > len(view):
                break
            relative_offset = header.last_offset - self._base_offset
            # The checksum does not cover the base offset. A batch whose offset is impossible here gets no entries.
            if 0 <= relative_offset <= RELATIVE_OFFSET_MAX:
                # Compaction removed all records of a batch without any, so its timestamp belongs to no record.
                if header.max_timestamp > self.max_timestamp and header.records_count:
                    self.max_timestamp = header.max_timestamp
                    self.max_timestamp_offset = header.last_offset
                if self._unindexed_bytes > self._interval_bytes:
                    self.offsets.append(relative_offset)
                    self.positions.append(position + at)
                    self._add_time()
                    self._unindexed_bytes = 0
            self._unindexed_bytes += size
            at += size
        return at

    def finish(self) -> None:
        self._add_time()

    def _add_time(self) -> None:
        if self.max_timestamp > self._last_time:
            self._last_time = self.max_timestamp
            self.times += TIME_ENTRY.pack(self.max_timestamp, self.max_timestamp_offset - self._base_offset)


class ProducerReplay:
    """Rebuilds the producer state from batches, starting at an offset."""

    def __init__(self, producers: ProducerState, from_offset: int) -> None:
        self.append_ms = 0
        """The append time of the batches, which they do not contain; the file's modification time is close."""
        self._producers = producers
        self._from_offset = from_offset

    def visit(self, view: memoryview, position: int) -> int:
        at = 0
        for _ in range(BATCHES_PER_VISIT):
            if len(view) - at < HEADER_SIZE:
                break
            fields = _unpack_header(view, at)
            size = fields[1] + LENGTH_OVERHEAD
            if size < HEADER_SIZE or at + size > len(view):
                break
            if fields[9] >= 0 and fields[0] >= self._from_offset:
                self._producers.replay(BatchHeader._make(fields), view[at : at + size], self.append_ms)
            at += size
        return at
