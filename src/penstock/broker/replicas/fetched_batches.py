"""Splits the record batches of a fetch response into pieces to append, decoding only what copying needs.

A leader's log is copied byte for byte, so batches are opaque except for their boundaries, base offsets and leader
epochs. An incomplete last batch is ignored: it is requested again.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from penstock.replication import Fetched
from penstock.wire.messages.fetch import PartitionData
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD

CHUNK_BYTES = 256 * 1024
CHUNK_BATCHES = 500
"""Bytes appended to one partition before yielding to the loop."""

_span = Struct(">qii").unpack_from
"""Base offset, length and leader epoch of a batch."""


def fetched(data: PartitionData, records: memoryview) -> Fetched:
    """Convert the response for the pure core."""
    first_offset = last_epoch = -1
    if len(records) >= HEADER_SIZE:
        first_offset = _span(records, 0)[0]
        last_epoch = _span(records, last_batch(records))[2]
    diverging = None
    if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
        diverging = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    return Fetched(data.error_code, data.high_watermark, data.log_start_offset, diverging, first_offset, last_epoch)


def last_batch(records: memoryview) -> int:
    """The position of the last complete batch."""
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
    """Groups of complete batches, starting with the first that is not in the log."""
    start = position = count = 0
    end = len(records)
    while end - position >= HEADER_SIZE:
        base_offset, length, _ = _span(records, position)
        size = length + LENGTH_OVERHEAD
        if size < HEADER_SIZE or position + size > end:
            break
        if base_offset < end_offset:
            # The log ends inside this batch, which happens after a truncation in the middle of a batch elsewhere: skip
            # it.
            start = position + size
        position += size
        count += 1
        if position - start >= CHUNK_BYTES or count >= CHUNK_BATCHES:
            if position > start:
                yield records[start:position]
            start, count = position, 0
    if position > start:
        yield records[start:position]
