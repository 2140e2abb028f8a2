"""Looking for damage in a log that is open: batches that do not match their checksums, or are not where they belong.

A log is believed below its recovery point, and a fetch sends bytes that the leader has not looked at. Whoever receives
them compares the checksum. When a receiver cannot use what it got, this finds out whether the log is to blame.
"""

from __future__ import annotations

from penstock.log.log import Log
from penstock.log.segment import DamagedSegment
from penstock.wire.records import HEADER_SIZE, MAGIC, batch_crc, read_header

READ_BYTES = 1 << 20
MAGIC_POSITION = 16


async def first_damage(log: Log, offset: int, *, to_the_end: bool = False) -> int | None:
    """The offset at which the log is damaged, from `offset` on; None if it is not.

    One read of a megabyte is looked at, or all that follows if `to_the_end`.
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
            continue  # compaction or retention has put another segment in its place
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
    """How far batches are whole that should hold `offset` and what follows, and whether that is all of them."""
    position = 0
    before = expected = offset
    while position < len(data):
        left = len(data) - position
        if left < HEADER_SIZE or data[position + MAGIC_POSITION] != MAGIC:
            return expected, False
        header = read_header(data, position)
        # The first batch may begin before `offset`: that lies somewhere in it.
        follows = header.next_offset > expected if not position else header.base_offset >= expected
        if not follows:
            # No checksum covers the offset of a batch: it may be that of the one before which is wrong.
            return before, False
        if not HEADER_SIZE <= header.size_bytes <= left:
            return expected, False
        if batch_crc(data[position : position + header.size_bytes]) != header.crc:
            return expected, False
        before, expected = expected, header.next_offset
        position += header.size_bytes
    return expected, True
