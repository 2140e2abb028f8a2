"""The record batches in an answer to a follower: looked at as far as copying them needs, and no further.

A leader's log is copied as it is, so batches are opaque: all that counts is where they begin and end, which offset is
their first, and of which leader they are. What comes behind the last whole one is not there yet: it is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from penstock.replication import Fetched
from penstock.wire.messages.fetch import PartitionData
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD

CHUNK_BYTES = 256 * 1024
CHUNK_BATCHES = 500
"""What is appended of one partition before the loop gets its turn."""

_span = Struct(">qii").unpack_from
"""Base offset, length, leader epoch of a batch."""


def fetched(data: PartitionData, records: memoryview) -> Fetched:
    """The answer, as the pure core looks at it."""
    first_offset = last_epoch = -1
    if len(records) >= HEADER_SIZE:
        first_offset = _span(records, 0)[0]
        last_epoch = _span(records, last_batch(records))[2]
    diverging = None
    if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
        diverging = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    return Fetched(data.error_code, data.high_watermark, data.log_start_offset, diverging, first_offset, last_epoch)


def last_batch(records: memoryview) -> int:
    """Where the last whole batch begins."""
    position = last = 0
    end = len(records)
    while end - position >= HEADER_SIZE:
        size = _span(records, position)[1] + LENGTH_OVERHEAD
        if size < HEADER_SIZE or position + size > end:
            break
        last = position
        position += size
    return last


def chunks(records: memoryview, end_offset: int) -> Iterator[memoryview]:
    """Whole batches, some at a time, from the first that is not in the log already."""
    start = position = count = 0
    end = len(records)
    while end - position >= HEADER_SIZE:
        base_offset, length, _ = _span(records, position)
        size = length + LENGTH_OVERHEAD
        if size < HEADER_SIZE or position + size > end:
            break
        if base_offset < end_offset:
            # Of a batch from whose middle on it was asked: such a log was cut inside a batch elsewhere.
            start = position + size
        position += size
        count += 1
        if position - start >= CHUNK_BYTES or count >= CHUNK_BATCHES:
            if position > start:
                yield records[start:position]
            start, count = position, 0
    if position > start:
        yield records[start:position]
