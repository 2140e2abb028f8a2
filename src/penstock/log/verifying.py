"""Checking an open log for damage: batches with wrong checksums or in the wrong place.

A log is trusted below its recovery point, and a leader sends fetched bytes without checking them; the receiver compares
the checksum. When a receiver reports bad data, this finds out whether the log is damaged.
"""

from __future__ import annotations

from penstock.log.log import Log
from penstock.log.segment import DamagedSegment
from penstock.wire.records import HEADER_SIZE, MAGIC, batch_crc, read_header

READ_BYTES = 1 << 20
MAGIC_POSITION = 16


async def first_damage(log: Log, offset: int, *, to_the_end: bool = False) -> int | None:
    """The first damaged offset of the log, from `offset` on; None if no damage is found.

    Checks one read of a megabyte, or the rest of the log if `to_the_end`.
    """
    offset = max(offset, log.start_offset)
    while offset < log.end_offset:
        version = log.version
        try:
            found = await log.reader.read(offset, READ_BYTES, log.end_offset)
        except DamagedSegment:
            return offset
        found.file.retain()
        try:
            data = await found.file.pread(found.size, found.position)
        except FileNotFoundError:
            if log.version == version:
                raise
            continue  # compaction or retention has replaced the segment
        finally:
            found.file.release()
        if log.version != version:
            continue
        reached, intact = walk(memoryview(data), offset)
        if not intact:
            return reached
        if not to_the_end or reached == offset:
            return None
        offset = reached
    return None


def walk(data: memoryview, offset: int) -> tuple[int, bool]:
    """Check batches that should contain `offset` and its successors. Returns how far they are valid, and whether all
    are."""
    position = 0
    before = expected = offset
    while position < len(data):
        left = len(data) - position
        if left < HEADER_SIZE or data[position + MAGIC_POSITION] != MAGIC:
            return expected, False
        header = read_header(data, position)
        # `offset` may lie inside the first batch, which then begins before it.
        follows = header.next_offset > expected if not position else header.base_offset >= expected
        if not follows:
            # No checksum covers a batch's offset, so the wrong one may be that of the batch before.
            return before, False
        if not HEADER_SIZE <= header.size_bytes <= left:
            return expected, False
        if batch_crc(data[position : position + header.size_bytes]) != header.crc:
            return expected, False
        before, expected = expected, header.next_offset
        position += header.size_bytes
    return expected, True
