"""Walks over the records of one batch and checks that each is what the format says.

This file is a kernel: plain typed Python that mypyc compiles (see the package). Everything that decides, words errors
or touches more than bytes and numbers lives elsewhere (`penstock.wire.record_check`).

A record is a length and then, in that many bytes: attributes, timestamp delta, offset delta, key, value, headers.
Numbers are zigzag varints of at most 32 bits (5 bytes), but for the timestamp delta, which has 64 (10 bytes).
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

    Problem = tuple[int, int, int]
    """Which record (or the number of records, for the batch), one of the kinds below, and the number at fault."""

CUT_OFF: Final = 1
"""The length of a record is malformed, or reaches beyond the batch. Nothing behind it can be read."""
MALFORMED: Final = 2
"""The fields of a record are malformed, or do not add up to its length."""
WRONG_OFFSET: Final = 3
"""The offset delta is not the number of the record in its batch."""
NO_KEY: Final = 4
WRONG_TIMESTAMP: Final = 5
TRAILING_BYTES: Final = 6
"""Of the batch: there are bytes behind its last record."""

REFUSED: Final = -2
"""In place of the largest timestamp, which is -1 or more: at least one record is not right."""

NO_TIMESTAMP: Final = -1
TIMESTAMP_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
TIMESTAMP_MIN: Final = -0x8000_0000_0000_0000

BAD: Final = -1
"""In place of a position: the number there is malformed."""
NULL: Final = -1
"""The size of what is not there."""
BAD_RECORD: Final = -2
"""In place of a key's size."""
WINDOW_BYTES: Final = 64 * 1024
PAUSE_BYTES: Final = 1024 * 1024
PAUSE_PARTS: Final = 0x3FFFF
"""Compiled code keeps the interpreter's lock until it returns: after so much it lets other threads, the loop, go on."""
VARINT_SIZE_MAX: Final = 5
FIELDS_SIZE_MIN: Final = 5
"""The least that the fields behind the attributes take: one byte each."""
BITS_32: Final = 28
BITS_64: Final = 63
"""How far the last byte of the longest number is shifted."""


def walk(
    data: bytes | bytearray | memoryview,
    begin: i64,
    count: i64,
    base_timestamp: i64,
    earliest: i64,
    latest: i64,
    keys_required: bool,
    problems: list[Problem],
    problems_max: i64,
) -> i64:
    """The largest timestamp of the `count` records that `data` must consist of from `begin` on, or REFUSED.

    What is wrong is added to `problems`. The walk ends at the first problem beyond `problems_max`, so 0 asks for
    nothing but the verdict. Records without a timestamp (-1) are in time.

    Compiled code reads only `bytes` fast, so the data is copied, a window at a time: a small one stays in the
    processor's cache, and a batch of any size takes little memory.
    """
    end: i64 = len(data)
    # Compiled code holds constants of this size as objects: convert them once.
    timestamp_max: i64 = TIMESTAMP_MAX
    timestamp_min: i64 = TIMESTAMP_MIN
    window_start: i64 = begin
    window_size: i64 = WINDOW_BYTES
    pause_at: i64 = begin + PAUSE_BYTES
    position: i64 = 0
    index: i64 = 0
    largest: i64 = NO_TIMESTAMP
    refused = False
    while index < count:
        window_start += position
        if window_start >= pause_at:
            sleep(0)
            pause_at = window_start + PAUSE_BYTES
        window = bytes(data[window_start : window_start + window_size])
        window_end: i64 = len(window)
        position = 0
        while index < count:
            start: i64 = position
            size, position = _number(window, position, window_end, BITS_32)
            limit: i64 = position + size
            if position == BAD or size < 0 or limit > window_end:
                needed: i64 = VARINT_SIZE_MAX if position == BAD else limit - start
                if needed <= window_end - start or needed > end - window_start - start:
                    if problems_max > len(problems):
                        problems.append((index, CUT_OFF, 0))
                    return REFUSED
                # It goes on behind the window: begin the next one with it.
                window_size = max(needed, WINDOW_BYTES)
                position = start
                break
            timestamp_delta, offset_delta, key_size = _record(window, position, limit)
            position = limit
            kind: i64 = 0
            detail: i64 = 0
            if key_size == BAD_RECORD:
                kind = MALFORMED
            elif offset_delta != index:
                kind = WRONG_OFFSET
                detail = offset_delta
            elif key_size == NULL and keys_required:
                kind = NO_KEY
            elif (timestamp_delta > 0 and base_timestamp > timestamp_max - timestamp_delta) or (
                timestamp_delta < 0 and base_timestamp < timestamp_min - timestamp_delta
            ):
                kind = WRONG_TIMESTAMP
                detail = timestamp_delta
            else:
                timestamp: i64 = base_timestamp + timestamp_delta
                if (timestamp < earliest or timestamp > latest) and timestamp != NO_TIMESTAMP:
                    kind = WRONG_TIMESTAMP
                    detail = timestamp
                if timestamp > largest:
                    largest = timestamp
            if kind != 0:
                refused = True
                if len(problems) >= problems_max:
                    return REFUSED
                problems.append((index, kind, detail))
            index += 1
    if window_start + position != end:
        refused = True
        if problems_max > len(problems):
            problems.append((count, TRAILING_BYTES, end - window_start - position))
    return REFUSED if refused else largest


def _record(data: bytes, position: i64, limit: i64) -> tuple[i64, i64, i64]:
    """(timestamp delta, offset delta, size of the key) of the record whose fields end at `limit`.

    Each number is looked at here first: nearly all have one byte, and a call costs more than all else.
    """
    position += 1  # attributes: no bit of them has a meaning yet, and Kafka takes any
    if limit - position < FIELDS_SIZE_MIN:
        return 0, 0, BAD_RECORD
    timestamp_delta: i64 = data[position]
    if timestamp_delta < 0x80:
        timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
        position += 1
    else:
        timestamp_delta, position = _number(data, position, limit, BITS_64)
        if position == BAD or position >= limit:
            return 0, 0, BAD_RECORD
    offset_delta: i64 = data[position]
    if offset_delta < 0x80:
        offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
        position += 1
    else:
        offset_delta, position = _number(data, position, limit, BITS_32)
    if position == BAD or position >= limit:
        return 0, 0, BAD_RECORD
    key_size: i64 = data[position]
    if key_size < 0x80:
        key_size = (key_size >> 1) ^ -(key_size & 1)
        position += 1
    else:
        key_size, position = _number(data, position, limit, BITS_32)
    if position == BAD or key_size < NULL or key_size >= limit - position:
        return 0, 0, BAD_RECORD
    if key_size > 0:
        position += key_size
    value_size: i64 = data[position]
    if value_size < 0x80:
        value_size = (value_size >> 1) ^ -(value_size & 1)
        position += 1
    else:
        value_size, position = _number(data, position, limit, BITS_32)
    if position == BAD or value_size < NULL or value_size >= limit - position:
        return 0, 0, BAD_RECORD
    if value_size > 0:
        position += value_size
    if data[position] == 0:
        position += 1  # no headers
    else:
        position = _headers(data, position, limit)
    if position != limit:
        return 0, 0, BAD_RECORD
    return timestamp_delta, offset_delta, key_size


def _headers(data: bytes, position: i64, limit: i64) -> i64:
    """The position behind the headers, or BAD. Each has a name, which is not null, and a value."""
    count, position = _number(data, position, limit, BITS_32)
    if position == BAD or count < 0 or count > limit - position:
        return BAD
    parts: i64 = 0
    while parts < 2 * count:
        size, position = _number(data, position, limit, BITS_32)
        if position == BAD or size < -(parts & 1) or size > limit - position:
            return BAD
        if size > 0:
            position += size
        parts += 1
        if parts & PAUSE_PARTS == 0:
            sleep(0)
    return position


def _number(data: bytes, position: i64, limit: i64, last_shift: i64) -> tuple[i64, i64]:
    """A zigzag varint: (its value, the position behind it), or (0, BAD) if it does not end where it must.

    No step leaves 64 bits, so that the compiled form computes what the interpreted one does.
    """
    bits: i64 = 0
    if limit - position > 1:
        # Nearly all have one or two bytes: lengths and deltas up to 8,191.
        bits = data[position]
        if bits < 0x80:
            return (bits >> 1) ^ -(bits & 1), position + 1
        second: i64 = data[position + 1]
        if second < 0x80:
            bits = (bits & 0x7F) | (second << 7)
            return (bits >> 1) ^ -(bits & 1), position + 2
    last_max: i64 = 0x0F
    if last_shift == BITS_64:
        last_max = 1
    bits = 0
    shift: i64 = 0
    while position < limit:
        byte: i64 = data[position]
        position += 1
        if shift == last_shift and byte > last_max:
            return 0, BAD
        if byte < 0x80:
            half: i64 = 0
            if shift == BITS_64:
                half = (bits >> 1) | (byte << 62)
            else:
                bits |= byte << shift
                half = bits >> 1
            return half ^ -(bits & 1), position
        bits |= (byte & 0x7F) << shift
        shift += 7
    return 0, BAD
