"""The end of a log that recovery cuts off: examined, set aside for a while, and reported.

Recovery truncates a log at the first batch that is incomplete or corrupt. Usually that batch is a torn write and
useless. But a flipped bit in an unsynced batch looks the same, and then the batches that follow it are valid. So the
removed end is set aside (`strays`) unless it is clearly a torn write: a partial batch, or zeros.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.log import names
from penstock.log.scan import BATCHES_PER_VISIT, scan
from penstock.log.segment import Segment
from penstock.log.strays import Strays
from penstock.runtime import Runtime
from penstock.wire.records import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, batch_crc

CHUNK_BYTES = 1 << 20
MAGIC_POSITION = 16
MAGIC_BYTE = bytes([MAGIC])
NOWHERE = -1

_unpack_header = HEADER.unpack_from


class Cut(NamedTuple):
    """A piece that was cut off a log."""

    first_offset: int
    last_offset: int
    """The last offset found in valid batches; the first offset minus one if there are none."""
    size_bytes: int
    kept: str
    """The directory that holds it now."""

    def fields(self) -> dict[str, object]:
        """The fields of the event that reports it."""
        return {
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "size_bytes": self.size_bytes,
            "kept": self.kept,
        }


async def whole_behind(segment: Segment, position: int, size: int, expected: int) -> int:
    """The position of the first valid batch after the invalid one at `position`; -1 if there is none."""
    start = position + 1
    while size - start >= HEADER_SIZE:
        data = await segment.file.pread(min(size - start, CHUNK_BYTES), start)
        at = MAGIC_POSITION - 1
        while (at := data.find(MAGIC_BYTE, at + 1)) >= 0:
            begin = at - MAGIC_POSITION
            if begin + HEADER_SIZE > len(data):
                break
            header = BatchHeader._make(_unpack_header(data, begin))
            if _is_plausible(header, expected, size - start - begin):
                batch = data[begin : begin + header.size_bytes]
                if len(batch) < header.size_bytes:
                    batch = await segment.file.pread(header.size_bytes, start + begin)
                if batch_crc(batch) == header.crc:
                    return start + begin
        if len(data) < CHUNK_BYTES:
            break
        start += CHUNK_BYTES - HEADER_SIZE
    return NOWHERE


async def is_complete(segment: Segment, position: int, size: int, expected: int) -> bool:
    """Whether the batch at `position` has its full length. A torn write does not."""
    data = await segment.file.pread(HEADER_SIZE, position)
    if len(data) < HEADER_SIZE:
        return False
    header = BatchHeader._make(_unpack_header(data))
    if header.magic != MAGIC or not HEADER_SIZE <= header.size_bytes <= size - position:
        return False
    if _is_plausible(header, expected, size - position):
        return True
    # The checksum does not cover the offset.
    return batch_crc(await segment.file.pread(header.size_bytes, position)) == header.crc


async def last_offset(runtime: Runtime, segment: Segment, position: int, size: int) -> int:
    """The last offset of the batches that begin at `position`."""
    found = _LastOffset()
    await scan(runtime, segment, position, size, found)
    return found.offset


async def keep_end(runtime: Runtime, segment: Segment, position: int, size: int, expected: int, aside: str) -> None:
    """Copy the end of a segment into the directory `aside`, durably."""
    disk = runtime.disk
    file = disk.open(names.path_of(aside, expected, names.LOG_SUFFIX), create=True)
    for start in range(position, size, CHUNK_BYTES):
        file.pwrite(await segment.file.pread(min(CHUNK_BYTES, size - start), start), start - position)
    await file.sync()
    await disk.sync_dir(aside)


async def begin_stray(runtime: Runtime, directory: str, expected: int) -> str:
    return await Strays(runtime).begin_part(directory, f"cut off at offset {expected} by a recovery after a crash")


def _is_plausible(header: BatchHeader, expected: int, room: int) -> bool:
    """Whether this may be a batch that follows offset `expected`: every record takes some bytes, so its offsets cannot
    be far away."""
    return (
        HEADER_SIZE <= header.size_bytes <= room
        and expected <= header.base_offset <= expected + (1 << 32)
        and header.last_offset_delta >= 0
        and 0 <= header.records_count <= header.last_offset_delta + 1
    )


class _LastOffset:
    def __init__(self) -> None:
        self.offset = NOWHERE

    def visit(self, view: memoryview, position: int) -> int:
        at = 0
        for _ in range(BATCHES_PER_VISIT):
            if len(view) - at < HEADER_SIZE:
                break
            header = BatchHeader._make(_unpack_header(view, at))
            size = header.size_bytes
            if header.magic != MAGIC or size < HEADER_SIZE or at + size > len(view):
                break
            self.offset = header.last_offset
            at += LENGTH_OVERHEAD + header.batch_length
        return at
