"""The columns of Spark's Kafka source, with its names and types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.arrow.varints import Ints

US_PER_MS = 1000
TIMESTAMP_MS_MAX = (2**63 - 1) // US_PER_MS

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("us", "UTC")


def arrow_schema(include_headers: bool = False) -> pa.Schema:
    """The schema of every RecordBatch of a decoder."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, pa.field("headers", HEADERS_TYPE)] if include_headers else fields)


def binary_array(data: pa.Buffer, starts: Ints, lengths: Ints) -> pa.BinaryArray:
    """The slices of `data` at these starts, which are in order and do not overlap; a length of −1 is a null."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    null = lengths < 0
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2] = starts
    edges[1::2] = starts + np.maximum(lengths, 0)
    edges[-1] = edges[-2]
    pieces_and_gaps = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), data])
    every_second = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pieces_and_gaps.take(pa.array(every_second, mask=null if null.any() else None))


def timestamp_array(timestamps_ms: Ints) -> pa.TimestampArray:
    """Milliseconds as Arrow's microseconds; clamped at some 292,000 years."""
    if int(timestamps_ms.max()) > TIMESTAMP_MS_MAX or int(timestamps_ms.min()) < -TIMESTAMP_MS_MAX:
        timestamps_ms = np.clip(timestamps_ms, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
    return pa.Array.from_buffers(TIMESTAMP_TYPE, len(timestamps_ms), [None, pa.py_buffer(timestamps_ms * US_PER_MS)])


class Constant:
    """A column with one value, created once and sliced to size."""

    def __init__(self, value: str | int, kind: pa.DataType) -> None:
        self._scalar = pa.scalar(value, kind)
        self._array = pa.repeat(self._scalar, 0)

    def of_size(self, count: int) -> pa.Array:
        if count > len(self._array):
            self._array = pa.repeat(self._scalar, 1 << (count - 1).bit_length())
        return self._array[:count]
