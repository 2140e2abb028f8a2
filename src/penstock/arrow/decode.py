"""Decodes raw record batches to `pyarrow.RecordBatch`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.arrow.batches import OFFSET_MAX, BadBatch, Batches, read_batches
from penstock.arrow.columns import Constant, arrow_schema, binary_array, timestamp_array
from penstock.arrow.errors import CorruptBatch
from penstock.arrow.fields import Fields, read_fields
from penstock.arrow.headers import BadHeaders, header_array
from penstock.arrow.positions import Spans
from penstock.arrow.transactions import aborted_batches
from penstock.arrow.varints import Bytes
from penstock.wire.compression import Buffer, decompress
from penstock.wire.errors import WireError
from penstock.wire.records import HEADER_SIZE, codec_of

MIB: Final = 1024 * 1024
BATCH_BYTES: Final = 16 * MIB
# Arrow's binary columns have 32-bit offsets, so a RecordBatch must stay well below 2³¹ bytes.
BATCH_BYTES_MAX: Final = 512 * MIB
MAX_DECOMPRESSED_BYTES: Final = 256 * MIB


class RecordDecoder:
    """Decodes the batches of one partition, for the offsets `start` to `end` (exclusive)."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        start: int = 0,
        end: int = OFFSET_MAX,
        include_headers: bool = False,
        check_crcs: bool = True,
        batch_bytes: int = BATCH_BYTES,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        """`batch_bytes`: the size at which to start a new RecordBatch; the records of a batch stay together."""
        assert 0 < batch_bytes <= BATCH_BYTES_MAX, f"a RecordBatch has at most {BATCH_BYTES_MAX} bytes and a batch"
        assert 0 < max_decompressed_bytes <= BATCH_BYTES_MAX, f"the decompressed limit is {BATCH_BYTES_MAX} bytes"
        self.topic = topic
        self.partition = partition
        self.schema = arrow_schema(include_headers)
        self._start = start
        self._end = end
        self._include_headers = include_headers
        self._check_crcs = check_crcs
        self._batch_bytes = batch_bytes
        self._max_decompressed_bytes = max_decompressed_bytes
        self._topics = Constant(topic, pa.string())
        self._partitions = Constant(partition, pa.int32())
        self._timestamp_types = (Constant(0, pa.int32()), Constant(1, pa.int32()))

    def decode(self, data: Buffer, aborted: Sequence[tuple[int, int]] = ()) -> Iterator[pa.RecordBatch]:
        """The records in `data`, which must be complete consecutive batches; never yields an empty RecordBatch.

        Leaves out control batches and the `aborted` transactions, (producer id, first offset), that came with the data.
        Raises CorruptBatch; RecordBatches yielded before are valid.
        """
        raw = memoryview(data)
        if not len(raw):
            return
        try:
            batches = read_batches(raw, np.frombuffer(raw, np.uint8), check_crcs=self._check_crcs)
            wanted = ~batches.are_control & (batches.counts > 0)
            wanted &= (batches.last_offsets >= self._start) & (batches.base_offsets < self._end)
            wanted &= ~aborted_batches(raw, batches, aborted)
            for group, spans, records in self._groups(raw, batches.take(np.flatnonzero(wanted))):
                record_batch = self._build(group, spans, records)
                if record_batch is not None:
                    yield record_batch
        except BadBatch as error:
            raise CorruptBatch(self.topic, self.partition, error.offset, error.reason) from None

    def _groups(self, raw: memoryview, batches: Batches) -> Iterator[tuple[Batches, Spans, memoryview]]:
        """Groups of batches that make one RecordBatch, with the positions of their records and their bytes."""
        compressed = batches.are_compressed
        # Compressed and plain batches may be mixed, but seldom are, so a group has only one kind.
        edges = [0, *(np.flatnonzero(compressed[1:] != compressed[:-1]) + 1).tolist(), len(compressed)]
        for first, last in pairwise(edges):
            if first < last:
                run = batches.take(slice(first, last))
                yield from self._unpacked(raw, run) if compressed[first] else self._plain(raw, run)

    def _plain(self, raw: memoryview, batches: Batches) -> Iterator[tuple[Batches, Spans, memoryview]]:
        """Plain batches are used in place: headers and unwanted batches lie between their records."""
        ends = batches.positions + batches.sizes
        first = 0
        while first < len(ends):
            start = int(batches.positions[first])
            last = max(int(np.searchsorted(ends, start + self._batch_bytes, side="right")), first + 1)
            group = batches.take(slice(first, last))
            starts = group.positions + (HEADER_SIZE - start)
            spans = Spans(starts, starts + (group.sizes - HEADER_SIZE), group.counts)
            yield group, spans, raw[start : int(ends[last - 1])]
            first = last

    def _unpacked(self, raw: memoryview, batches: Batches) -> Iterator[tuple[Batches, Spans, memoryview]]:
        first = 0
        parts: list[memoryview] = []
        size = 0
        for index in range(len(batches.positions)):
            parts.append(self._decompressed(raw, batches, index))
            size += len(parts[-1])
            if size >= self._batch_bytes or index + 1 == len(batches.positions):
                group = batches.take(slice(first, index + 1))
                ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
                starts = np.concatenate(([0], ends[:-1]))
                yield group, Spans(starts, ends, group.counts), memoryview(b"".join(parts))
                first, parts, size = index + 1, [], 0

    def _decompressed(self, raw: memoryview, batches: Batches, index: int) -> memoryview:
        position = int(batches.positions[index])
        packed = raw[position + HEADER_SIZE : position + int(batches.sizes[index])]
        try:
            return decompress(codec_of(int(batches.attributes[index])), packed, self._max_decompressed_bytes)
        except WireError as error:
            raise BadBatch(int(batches.base_offsets[index]), str(error)) from None

    def _build(self, batches: Batches, spans: Spans, raw: memoryview) -> pa.RecordBatch | None:
        """One RecordBatch of these batches; None if none of their records is wanted."""
        data = np.frombuffer(raw, np.uint8)
        fields = read_fields(raw, data, batches, spans)
        if batches.base_offsets[0] < self._start or batches.last_offsets[-1] >= self._end:
            fields = fields.take(np.flatnonzero((fields.offsets >= self._start) & (fields.offsets < self._end)))
        return self._record_batch(raw, data, fields) if len(fields.offsets) else None

    def _record_batch(self, raw: memoryview, data: Bytes, fields: Fields) -> pa.RecordBatch:
        count = len(fields.offsets)
        buffer = pa.py_buffer(raw)
        types = fields.timestamp_types
        mixed = types.any() and not types.all()
        columns = [
            binary_array(buffer, fields.key_starts, fields.key_lengths),
            binary_array(buffer, fields.value_starts, fields.value_lengths),
            self._topics.of_size(count),
            self._partitions.of_size(count),
            pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(fields.offsets)]),
            timestamp_array(fields.timestamps_ms),
            pa.array(types, pa.int32()) if mixed else self._timestamp_types[int(types[0])].of_size(count),
        ]
        if self._include_headers:
            try:
                columns.append(header_array(raw, data, fields.header_starts, fields.ends, fields.header_counts))
            except BadHeaders as error:
                raise BadBatch(int(fields.offsets[error.record]), error.reason) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
