"""Finds where every record begins: the only thing that must be followed from record to record.

Each record starts with its length, which alone leads to the next one. Following it in Python costs more than the rest
of decoding (0.2 to 0.4 µs per record, most of it waiting for memory), so it is done in parallel: numpy advances one
record in all batches at once. That pays from some dozens of batches on. A large batch is first cut into runs, at
positions that look like the beginning of a record: a zero (no headers), a length, a zero (attributes), and an offset
that continues the sequence. A wrong guess does no harm: the run before it must arrive exactly there, or else everything
is followed from its beginning, record by record.
"""

from __future__ import annotations

import re
from math import isqrt
from typing import NamedTuple

import numpy as np

from penstock.arrow.varints import Bytes, Ints, read_varints
from penstock.wire.errors import WireError
from penstock.wire.records import RECORD_SIZE_MIN, read_varint, read_varlong

IN_STEP_MIN = 32
"""With fewer runs than this, numpy's calls cost more than a Python loop."""
RUN_RECORDS_MIN = 32
RUN_RECORDS_MAX = 256
GUESSES_MAX = 4

_LOOKS_LIKE_A_RECORD = re.compile(rb"\0(?:[\x0c-\x7e]|[\x80-\xff][\0-\x7f]|[\x80-\xff]{2}[\0-\x7f])\0")


class Spans(NamedTuple):
    """The byte ranges of the records of each batch, and their counts."""

    starts: Ints
    ends: Ints
    counts: Ints


class BadRecordLengths(Exception):
    """The record lengths of a batch do not add up to its size."""

    def __init__(self, batch: int, reason: str) -> None:
        self.batch = batch
        self.reason = reason
        super().__init__(f"batch {batch}: {reason}")


def record_starts(raw: memoryview, data: Bytes, spans: Spans) -> Ints:
    """The positions of the records of all batches, in order; `data` is the same bytes as `raw`."""
    too_many = spans.counts * RECORD_SIZE_MIN > spans.ends - spans.starts
    if too_many.any():
        index = int(too_many.argmax())
        size = spans.ends[index] - spans.starts[index]
        raise BadRecordLengths(index, f"{spans.counts[index]} records in {size} bytes")
    at, ends = _runs(raw, spans)
    if len(at) >= IN_STEP_MIN:
        starts = _in_step(raw, data, at, ends, int(spans.counts.max()))
        if starts is not None and _counts_match(starts, spans):
            return starts
    return _one_by_one(raw, spans)


def _in_step(raw: memoryview, data: Bytes, at: Ints, ends: Ints, steps_max: int) -> Ints | None:
    """The records of all runs; None if a run does not arrive at its end."""
    found: list[Ints] = []
    for _ in range(steps_max):
        if at.size < IN_STEP_MIN:
            break
        found.append(at)
        at = _next(data, at)
        going_on = at < ends
        if not going_on.all():
            if (at > ends).any():
                return None
            at, ends = at[going_on], ends[going_on]
    rest: list[int] = []
    for start, end in zip(at.tolist(), ends.tolist(), strict=True):
        if _follow(raw, start, end, rest) != end:
            return None
    if rest:
        found.append(np.array(rest, np.int64))
    # Runs follow each other, so the order of positions is the order of records.
    starts = np.concatenate(found)
    starts.sort()
    return starts


def _next(data: Bytes, at: Ints) -> Ints:
    """The positions of the next records."""
    first = data.take(at)
    second = data.take(at + 1, mode="clip")
    long = first > 0x7F
    size = (first >> 1).astype(np.int64) + 1
    if long.any():
        # Two-byte varint: seven bits of the first byte, the second byte above them; then zigzag, plus its own two
        # bytes.
        size += np.where(long, (second.astype(np.int64) << 6) - 63, 0)
        longer = np.flatnonzero(long & (second > 0x7F))
        if longer.size:
            lengths, behind = read_varints(data, at[longer])
            size[longer] = np.maximum(lengths, 0) + (behind - at[longer])
    return at + size


def _counts_match(starts: Ints, spans: Spans) -> bool:
    firsts = np.searchsorted(starts, spans.starts)
    return np.array_equal(np.diff(np.append(firsts, len(starts))), spans.counts)


def _one_by_one(raw: memoryview, spans: Spans) -> Ints:
    starts: list[int] = []
    for index, (start, end, count) in enumerate(zip(*(column.tolist() for column in spans), strict=True)):
        before = len(starts)
        if _follow(raw, start, end, starts) != end or len(starts) - before != count:
            raise BadRecordLengths(index, f"the lengths of its {count} records do not add up to its size")
    return np.array(starts, np.int64)


def _follow(raw: memoryview, start: int, end: int, starts: list[int]) -> int:
    """Appends the positions of the records from `start` on; returns the end of the last one."""
    data = bytes(raw[start:end])
    size = end - start
    append = starts.append
    position = 0
    while position < size:
        append(start + position)
        first = data[position]
        if first < 0x80:
            position += (first >> 1) + 1
            continue
        if position + 1 == size:
            return end + 1
        second = data[position + 1]
        if second < 0x80:
            position += (first >> 1) + (second << 6) - 62
            continue
        try:
            length, position = read_varint(data, position)
        except (WireError, IndexError):
            return end + 1
        position += max(length, 0)
    return start + position


def _runs(raw: memoryview, spans: Spans) -> tuple[Ints, Ints]:
    """(starts, ends) of the batches, large ones cut where records seem to begin."""
    # A cut costs about a third of a step, which makes this length the best for one large batch.
    run_records = isqrt(int(spans.counts.sum()) // 3)
    run_records = min(max(run_records, RUN_RECORDS_MIN), RUN_RECORDS_MAX)
    if int(spans.counts.max()) < 2 * run_records:
        return spans.starts, spans.ends
    cuts: list[int] = []
    for start, end, count in zip(*(column.tolist() for column in spans), strict=True):
        pieces = count // run_records
        for index in range(1, pieces):
            after = start + (end - start) * index // pieces
            if (cut := _beginning(raw, after, end)) is not None and (not cuts or cut > cuts[-1]):
                cuts.append(cut)
    starts = np.sort(np.append(spans.starts, np.array(cuts, np.int64)))
    ends = np.sort(np.append(spans.ends, np.array(cuts, np.int64)))
    return starts, ends


def _beginning(raw: memoryview, after: int, end: int) -> int | None:
    """A position soon after `after` where a record seems to begin."""
    for _ in range(GUESSES_MAX):
        match = _LOOKS_LIKE_A_RECORD.search(raw, after, end)
        if match is None:
            return None
        position = after = match.start() + 1
        try:
            offset_delta, following = _peek(raw, position)
            if _peek(raw, following)[0] == offset_delta + 1 and following < end:
                return position
        except (IndexError, WireError):
            continue
    return None


def _peek(raw: memoryview, position: int) -> tuple[int, int]:
    """(offset delta, position after the record), if there is a record at that position."""
    length, position = read_varint(raw, position)
    _, after = read_varlong(raw, position + 1)
    offset_delta, _ = read_varint(raw, after)
    return offset_delta, position + max(length, 0)
