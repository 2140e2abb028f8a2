# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False
"""Walks over the records of one batch and checks that each is what the format says.

This file is a kernel: plain Python that Cython compiles (see the package). Everything that decides, words errors or
touches more than bytes and numbers lives elsewhere (`penstock.wire.record_check`).

A record is a length and then, in that many bytes: attributes, timestamp delta, offset delta, key, value, headers.
Numbers are zigzag varints of at most 32 bits (5 bytes), but for the timestamp delta, which has 64 (10 bytes).

The compiled form does not check indexes, and computes in 64 bits. So these rules hold here:

- A byte is read only after `position < limit` was checked, where `limit` is never beyond the end of the data.
- A position never decreases: only sizes that are not negative are added to it.
- No result of a computation leaves 64 bits.
- Every variable is declared in `record_walk.pxd`; one that is not would be an object, and slow.

The interpreted form raises IndexError where the first rule is broken, which is how the tests find it.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    Data = bytes | bytearray | memoryview
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

ABSENT: Final = -1
"""The size of a key or value that is null."""
WIDTH_32: Final = 5
WIDTH_64: Final = 10
"""The most bytes that a number of 32 or 64 bits takes."""
PAUSE_BYTES: Final = 1024 * 1024
"""Compiled code keeps the interpreter's lock until it returns: after so much it lets other threads, the loop, go on."""


def walk(
    data: Data,
    begin: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    keys_required: bool,
    problems: list[Problem],
    problems_max: int,
) -> int:
    """The largest timestamp of the `count` records that `data` must consist of from `begin` on, or REFUSED.

    What is wrong is added to `problems`. The walk ends at the first problem beyond `problems_max`, so 0 asks for
    nothing but the verdict. Records without a timestamp (-1) are in time.
    """
    end = len(data)
    position = begin
    pause_at = begin + PAUSE_BYTES
    largest = NO_TIMESTAMP
    refused = False
    index = 0
    while index < count:
        if position >= pause_at:
            sleep(0)
            pause_at = position + PAUSE_BYTES
        width = _width(data, position, end, WIDTH_32)
        size = _number(data, position, width)
        position += width
        if width == 0 or size < 0 or size > end - position:
            if problems_max > len(problems):
                problems.append((index, CUT_OFF, 0))
            return REFUSED
        limit = position + size
        # Behind the attributes, of which no bit has a meaning yet: Kafka takes any.
        timestamp_at = position + 1
        timestamp_width = _width(data, timestamp_at, limit, WIDTH_64)
        offset_at = timestamp_at + timestamp_width
        offset_width = _width(data, offset_at, limit, WIDTH_32)
        key_at = offset_at + offset_width
        key_width = _width(data, key_at, limit, WIDTH_32)
        key_size = _number(data, key_at, key_width)
        kind = 0
        detail = 0
        if (
            timestamp_width == 0
            or offset_width == 0
            or key_width == 0
            or not _rest_fits(data, key_at + key_width, limit, key_size)
        ):
            kind = MALFORMED
        else:
            timestamp_delta = _number(data, timestamp_at, timestamp_width)
            offset_delta = _number(data, offset_at, offset_width)
            if offset_delta != index:
                kind = WRONG_OFFSET
                detail = offset_delta
            elif key_size == ABSENT and keys_required:
                kind = NO_KEY
            elif (timestamp_delta > 0 and base_timestamp > TIMESTAMP_MAX - timestamp_delta) or (
                timestamp_delta < 0 and base_timestamp < TIMESTAMP_MIN - timestamp_delta
            ):
                kind = WRONG_TIMESTAMP
                detail = timestamp_delta
            else:
                timestamp = base_timestamp + timestamp_delta
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
        position = limit
        index += 1
    if position != end:
        refused = True
        if problems_max > len(problems):
            problems.append((count, TRAILING_BYTES, end - position))
    return REFUSED if refused else largest


def _rest_fits(data: Data, position: int, limit: int, key_size: int) -> bool:
    """Whether the key, which begins at `position`, the value and the headers end exactly at `limit`."""
    if key_size < ABSENT or key_size > limit - position:
        return False
    if key_size > 0:
        position += key_size
    width = _width(data, position, limit, WIDTH_32)
    size = _number(data, position, width)
    position += width
    if width == 0 or size < ABSENT or size > limit - position:
        return False
    if size > 0:
        position += size
    if position + 1 == limit and data[position] == 0:
        return True  # no headers
    return _headers_fit(data, position, limit)


def _headers_fit(data: Data, position: int, limit: int) -> bool:
    """Whether the headers end exactly at `limit`. Each has a name, which is not null, and a value."""
    width = _width(data, position, limit, WIDTH_32)
    count = _number(data, position, width)
    position += width
    if width == 0 or count < 0 or count > limit - position:
        return False
    pause_at = position + PAUSE_BYTES
    parts = 0
    while parts < 2 * count:
        width = _width(data, position, limit, WIDTH_32)
        size = _number(data, position, width)
        position += width
        if width == 0 or size < -(parts & 1) or size > limit - position:
            return False
        if size > 0:
            position += size
        parts += 1
        if position >= pause_at:
            sleep(0)
            pause_at = position + PAUSE_BYTES
    return position == limit


def _width(data: Data, position: int, limit: int, width_max: int) -> int:
    """How many bytes the number at `position` takes; 0 if it does not end before `limit` or has too many bits."""
    if position >= limit:
        return 0
    if data[position] < 0x80:
        return 1
    if position + 1 < limit and data[position + 1] < 0x80:
        return 2
    return _width_of_many(data, position, limit, width_max)


def _width_of_many(data: Data, position: int, limit: int, width_max: int) -> int:
    """`_width` of a number with more than two bytes. Few have: two hold lengths and deltas up to 8,191."""
    width = 2
    while width < width_max and position + width < limit:
        last = data[position + width]
        width += 1
        if last < 0x80:
            if (width == WIDTH_32 and width_max == WIDTH_32 and last > 0x0F) or (width == WIDTH_64 and last > 1):
                return 0
            return width
    return 0


def _number(data: Data, position: int, width: int) -> int:
    """The zigzag varint of `width` bytes at `position`; 0 if it has none."""
    if width == 1:
        bits = data[position]
        return (bits >> 1) ^ -(bits & 1)
    if width == 2:
        bits = (data[position] & 0x7F) | (data[position + 1] << 7)
        return (bits >> 1) ^ -(bits & 1)
    return _number_of_many(data, position, width)


def _number_of_many(data: Data, position: int, width: int) -> int:
    if width == 0:
        return 0
    # The lowest bit is the sign. Without it, all that follows fits into 63 bits.
    bits = (data[position] & 0x7F) >> 1
    shift = 6
    place = 1
    while place < width:
        byte = data[position + place]
        bits |= (byte & 0x7F) << shift
        shift += 7
        place += 1
    return bits ^ -(data[position] & 1)
