"""Record headers: a list of (name, value) for each record that has some."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrow.columns import HEADERS_TYPE, binary_array
from penstock.arrow.varints import Bytes, Ints, read_varints
from penstock.wire.errors import WireError
from penstock.wire.records import RECORD_HEADER_SIZE_MIN, read_varint

TOGETHER_MIN = 16
"""When fewer records than this have more headers, those are finished one by one."""


class BadHeaders(Exception):
    """The headers of a record are invalid; `record` is its index."""

    def __init__(self, record: int, reason: str) -> None:
        self.record = record
        self.reason = reason
        super().__init__(f"record {record}: {reason}")


class _Places(NamedTuple):
    """The positions of names and values, for all headers of all records."""

    name_starts: Ints
    name_lengths: Ints
    value_starts: Ints
    value_lengths: Ints


def header_array(raw: memoryview, data: Bytes, positions: Ints, ends: Ints, counts: Ints) -> pa.ListArray:
    """The column. `positions` are after the counts; a record without headers gets a null, as in Spark's source."""
    too_many = np.flatnonzero(counts * RECORD_HEADER_SIZE_MIN > ends - positions)
    if too_many.size:
        raise BadHeaders(int(too_many[0]), f"{counts[too_many[0]]} headers do not fit into it")
    edges = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=edges[1:])
    places = _find(raw, data, positions, ends, counts, edges[:-1])
    buffer = pa.py_buffer(raw)
    names = _names(binary_array(buffer, places.name_starts, places.name_lengths))
    values = binary_array(buffer, places.value_starts, places.value_lengths)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(
        pa.array(edges.astype(np.int32)), pairs, type=HEADERS_TYPE, mask=pa.array(counts == 0)
    )


def _names(raw: pa.BinaryArray) -> pa.StringArray:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        # Brokers do not check names. Java replaces invalid UTF-8 by U+FFFD.
        return pa.array([name.decode("utf-8", "replace") for name in raw.to_pylist()], pa.string())


def _find(raw: memoryview, data: Bytes, positions: Ints, ends: Ints, counts: Ints, firsts: Ints) -> _Places:
    places = _Places(*(np.zeros(int(counts.sum()), np.int64) for _ in range(4)))
    records = np.flatnonzero(counts)
    at = positions[records]
    done = 0
    # The first header of every record, then the second of those that have one, and so on.
    while len(records) >= TOGETHER_MIN:
        slots = firsts[records] + done
        name_lengths, name_starts = read_varints(data, at)
        value_lengths, value_starts = read_varints(data, name_starts + np.maximum(name_lengths, 0))
        at = value_starts + np.maximum(value_lengths, 0)
        wrong = np.flatnonzero((name_lengths < 0) | (value_lengths < -1) | (at > ends[records]))
        if wrong.size:
            raise BadHeaders(int(records[wrong[0]]), "a header that has no name, or does not fit")
        for place, found in zip(places, (name_starts, name_lengths, value_starts, value_lengths), strict=True):
            place[slots] = found
        done += 1
        going_on = counts[records] > done
        _check_ends(records[~going_on], at[~going_on], ends)
        records, at = records[going_on], at[going_on]
    for record, position in zip(records.tolist(), at.tolist(), strict=True):
        slots_left = range(int(firsts[record]) + done, int(firsts[record] + counts[record]))
        _finish(raw, places, record, position, int(ends[record]), slots_left)
    return places


def _finish(raw: memoryview, places: _Places, record: int, position: int, end: int, slots: range) -> None:
    try:
        for slot in slots:
            for starts, lengths, smallest in (
                (places.name_starts, places.name_lengths, 0),
                (places.value_starts, places.value_lengths, -1),
            ):
                length, position = read_varint(raw, position)
                if not smallest <= length <= end - position:
                    raise BadHeaders(record, "a header that has no name, or does not fit")
                starts[slot], lengths[slot] = position, length
                position += max(length, 0)
    except (IndexError, WireError):
        raise BadHeaders(record, "a header is truncated") from None
    if position != end:
        raise BadHeaders(record, f"{end - position} bytes after its last header")


def _check_ends(records: Ints, at: Ints, ends: Ints) -> None:
    wrong = np.flatnonzero(at != ends[records])
    if wrong.size:
        raise BadHeaders(int(records[wrong[0]]), "bytes after its last header")
