"""Reads the fields of all records of some batches, one field at a time for all records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.arrow.batches import BadBatch, Batches
from penstock.arrow.positions import BadRecordLengths, Spans, record_starts
from penstock.arrow.varints import VARLONG_SIZE_MAX, Bytes, Ints, read_varints


class Fields(NamedTuple):
    """One element per record; positions refer to the data. A length of −1 is a null."""

    offsets: Ints
    timestamps_ms: Ints
    timestamp_types: Ints
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints
    header_counts: Ints
    header_starts: Ints
    ends: Ints

    def take(self, records: Ints) -> Fields:
        return Fields(*(field[records] for field in self))


def read_fields(raw: memoryview, data: Bytes, batches: Batches, spans: Spans) -> Fields:
    """The fields of the records in these spans; raises BadBatch for a batch with an invalid record."""
    counts = spans.counts
    try:
        starts = record_starts(raw, data, spans)
    except BadRecordLengths as error:
        raise BadBatch(int(batches.base_offsets[error.batch]), error.reason) from None
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = spans.ends

    lengths, attributes_at = read_varints(data, starts)
    timestamp_deltas, at = read_varints(data, attributes_at + 1, VARLONG_SIZE_MAX)
    offset_deltas, at = read_varints(data, at)
    key_lengths, key_starts = read_varints(data, at)
    value_lengths, value_starts = read_varints(data, key_starts + np.maximum(key_lengths, 0))
    header_counts, header_starts = read_varints(data, value_starts + np.maximum(value_lengths, 0))

    # Positions only grow, so if the last one is within the record, all are.
    right = np.where(header_counts == 0, header_starts == ends, header_starts < ends)
    right &= (lengths >= 0) & (key_lengths >= -1) & (value_lengths >= -1) & (header_counts >= 0)
    right &= (offset_deltas >= 0) & (offset_deltas <= np.repeat(batches.last_offset_deltas, counts))
    if not right.all():
        record = int(right.argmin())
        batch = int(np.searchsorted(np.cumsum(counts), record, side="right"))
        which = record - int(counts[:batch].sum())
        raise BadBatch(int(batches.base_offsets[batch]), f"its record {which} has invalid fields")

    timestamps_ms = np.repeat(batches.base_timestamps, counts) + timestamp_deltas
    timestamp_types = np.repeat(batches.timestamp_types, counts)
    if timestamp_types.any():
        timestamps_ms = np.where(timestamp_types == 1, np.repeat(batches.max_timestamps, counts), timestamps_ms)
    return Fields(
        np.repeat(batches.base_offsets, counts) + offset_deltas,
        timestamps_ms,
        timestamp_types,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        header_counts,
        header_starts,
        ends,
    )
