"""Produce requests, read by hand from a receive buffer: where each partition's records are, and nothing is copied.

`read_produce` reads any request of versions 3 to 13. `read_single` is its specialised form for the request that nearly
all are: flexible, without a transactional id, one batch for one partition. Where both can read a request they say the
same; a test compares them.

Both raise ValueError, IndexError, struct.error or WireError for a malformed request.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.wire.records import HEADER_SIZE, read_unsigned_varint

FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13

PARTS_PER_REQUEST_MAX = 10_000
"""Topics and partitions. Each costs more than the few bytes that it takes in the request."""
TAGGED_FIELDS_MAX = 100_000
"""In the whole request: newer clients may have some in each of its parts."""

Buffer = bytearray | memoryview | bytes

_short = Struct(">h").unpack_from
_int = Struct(">i").unpack_from
_acks_timeout = Struct(">hi").unpack_from
_index_length = Struct(">ii").unpack_from

NULL = 0
ONE = 2
"""How flexible versions write an absent string, and an array of one."""
SINGLE_BYTES_MIN = 80


PartitionRecords = tuple[int, int, int]
"""The index of a partition, and where its records begin and end in the buffer."""


class Produced(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[bytes, list[PartitionRecords]]]
    """Each topic as the request names it: by name, from v13 on by id."""


Single = tuple[bytes, bytes, int, int, int, int, int]
"""A request with one batch for one partition; a plain tuple, because nearly every request makes one. The topic as it
stands in the request (with its length, if it is a name: the answer repeats it), the topic, acks, the time-out in ms,
then the `PartitionRecords`."""


def read_single(buffer: Buffer, view: memoryview, version: int, p: int, end: int) -> Single | None:
    """The request, if it is of the usual form; None for all others."""
    if version < FLEXIBLE_FROM or end - p < SINGLE_BYTES_MIN or buffer[p] != NULL or buffer[p + 7] != ONE:
        return None
    acks, timeout_ms = _acks_timeout(buffer, p + 1)
    if version >= TOPIC_IDS_FROM:
        named = topic = bytes(view[p + 8 : p + 24])
        p += 24
    else:
        length = buffer[p + 8]
        if length > 127 or length < 2 or p + length + 24 > end:
            return None
        named = bytes(view[p + 8 : p + 8 + length])
        topic = named[1:]
        p += 8 + length
    if buffer[p] != ONE:
        return None
    index = _int(buffer, p + 1)[0]
    size, start = read_unsigned_varint(buffer, p + 5)
    stop = start + size - 1
    if stop + 3 != end or size < HEADER_SIZE:
        return None  # tagged fields, or cut off
    return named, topic, acks, timeout_ms, index, start, stop


def read_produce(buffer: Buffer, view: memoryview, version: int, p: int, end: int) -> Produced:
    flexible = version >= FLEXIBLE_FROM
    if flexible:
        length, p = read_unsigned_varint(buffer, p)
        length -= 1
    else:
        length = _short(buffer, p)[0]
        p += 2
    transactional_id = None
    if length >= 0:
        transactional_id = str(view[p : p + length], "utf-8", "replace")
        p += length
    acks, timeout_ms = _acks_timeout(buffer, p)
    topic_count, p = _count(buffer, p + 6, flexible)
    if p > end:
        raise ValueError("it ends early")
    topics: list[tuple[bytes, list[PartitionRecords]]] = []
    parts = 0
    tags = TAGGED_FIELDS_MAX
    for _ in range(topic_count):
        if version >= TOPIC_IDS_FROM:
            topic = bytes(view[p : p + 16])
            p += 16
        else:
            if flexible:
                length, p = read_unsigned_varint(buffer, p)
                length -= 1
            else:
                length = _short(buffer, p)[0]
                p += 2
            if length < 0:
                raise ValueError("a topic without a name")
            topic = bytes(view[p : p + length])
            p += length
        partition_count, p = _count(buffer, p, flexible)
        if p > end:
            raise ValueError("it ends early")
        parts += 1 + max(partition_count, 0)
        if parts > PARTS_PER_REQUEST_MAX:
            raise ValueError(f"more than {PARTS_PER_REQUEST_MAX} topics and partitions in one request")
        partitions: list[PartitionRecords] = []
        topics.append((topic, partitions))
        for _ in range(partition_count):
            if flexible:
                index = _int(buffer, p)[0]
                size, p = read_unsigned_varint(buffer, p + 4)
                size -= 1
            else:
                index, size = _index_length(buffer, p)
                p += 8
            start = p
            p += max(size, 0)
            if p > end:
                raise ValueError("it ends early")
            partitions.append((index, start, p))
            if flexible:
                p, tags = _skip_tags(buffer, p, end, tags)
        if flexible:
            p, tags = _skip_tags(buffer, p, end, tags)
    return Produced(transactional_id, acks, timeout_ms, topics)


def _count(buffer: Buffer, p: int, flexible: bool) -> tuple[int, int]:
    """(the length of an array, the position behind it)"""
    if flexible:
        count, p = read_unsigned_varint(buffer, p)
        return count - 1, p
    return _int(buffer, p)[0], p + 4


def _skip_tags(buffer: Buffer, p: int, end: int, left: int) -> tuple[int, int]:
    """(the position behind the tagged fields, how many the rest of the request may have)"""
    if buffer[p] == 0:
        return p + 1, left
    count, p = read_unsigned_varint(buffer, p)
    left -= count
    if left < 0:
        raise ValueError(f"more than {TAGGED_FIELDS_MAX} tagged fields in one request")
    for _ in range(count):
        _, p = read_unsigned_varint(buffer, p)
        size, p = read_unsigned_varint(buffer, p)
        p += size
        if p > end:
            raise ValueError("a tagged field ends beyond the request")
    return p, left
