"""The checks that recovery makes on each batch, and the state it rebuilds from the valid ones.

Lengths and checksums must be right, offsets and epochs ascending. Valid batches rebuild the index of their segment, the
epochs and the producer state, exactly as appending them would.
"""

from __future__ import annotations

from crc32c import crc32c

from penstock.log.config import LogConfig
from penstock.log.epochs import EpochCache
from penstock.log.producers import ProducerState
from penstock.log.scan import BATCHES_PER_VISIT
from penstock.log.segment import RELATIVE_OFFSET_MAX, Segment
from penstock.wire.records import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, SEQUENCE_MODULUS, BatchHeader

CODEC_MAX = 4
SEQUENCE_MASK = SEQUENCE_MODULUS - 1

_unpack_header = HEADER.unpack_from


class Check:
    """The visitor of a recovery: checks each batch and rebuilds the derived state."""

    def __init__(self, config: LogConfig, epochs: EpochCache, producers: ProducerState, from_offset: int) -> None:
        self.epochs = epochs
        self.producers = producers
        self.from_offset = from_offset
        self.expected = 0
        """The smallest offset with which the next batch may begin."""
        self._epoch = -1
        self._append_ms = 0
        self._interval_bytes = config.index_interval_bytes
        self._segment: Segment | None = None

    def begin(self, segment: Segment, append_ms: int) -> None:
        self._segment = segment
        self._append_ms = append_ms

    def visit(self, view: memoryview, position: int) -> int:
        # This loop decides how long a start after a crash takes, so it uses local variables.
        segment = self._segment
        assert segment is not None
        index = segment.index
        expected, current_epoch = self.expected, self._epoch
        largest, largest_offset = segment.max_timestamp, segment.max_timestamp_offset
        unindexed_bytes, interval_bytes = segment.unindexed_bytes, self._interval_bytes
        append_ms = self._append_ms
        # The checksum does not cover the base offset. An index has no room for one that is too far from the segment's.
        segment_end = min(segment.end_offset, segment.base_offset + RELATIVE_OFFSET_MAX + 1)
        header_end = len(view) - HEADER_SIZE
        end = len(view)
        at = 0
        for _ in range(BATCHES_PER_VISIT):
            if at > header_end:
                break
            # fmt: off
            (base_offset, length, epoch, magic, crc, attributes, last_offset_delta, _, max_timestamp,
             producer_id, producer_epoch, base_sequence, count) = fields = _unpack_header(view, at)
            # fmt: on
            batch_end = at + LENGTH_OVERHEAD + length
            if (
                not at + HEADER_SIZE <= batch_end <= end
                or magic != 2
                or not expected <= base_offset < segment_end
                or last_offset_delta < 0
                or epoch < current_epoch
                or crc32c(view[at + 21 : batch_end]) != crc
            ):
                break
            last_offset = base_offset + last_offset_delta
            if epoch != current_epoch:
                current_epoch = epoch
                if epoch > self.epochs.latest_epoch:
                    self.epochs.assign(epoch, base_offset)
            if max_timestamp > largest and count:
                largest, largest_offset = max_timestamp, last_offset
            if unindexed_bytes > interval_bytes:
                index.add(last_offset, position + at, largest, largest_offset)
                unindexed_bytes = 0
            unindexed_bytes += batch_end - at
            if producer_id >= 0 and base_offset >= self.from_offset:
                producer = self.producers.get(producer_id)
                if producer is not None and producer.epoch == producer_epoch and 0 <= attributes <= CODEC_MAX:
                    last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MASK
                    producer.add(last_sequence, last_offset, last_offset_delta, append_ms)
                else:
                    self.producers.replay(BatchHeader._make(fields), view[at:batch_end], append_ms)
            if not at and not position:
                segment.first_timestamp = max_timestamp
            expected = last_offset + 1
            at = batch_end
        self.expected, self._epoch = expected, current_epoch
        segment.max_timestamp, segment.max_timestamp_offset = largest, largest_offset
        segment.unindexed_bytes = unindexed_bytes
        segment.size_bytes = position + at
        return at

    def fits(self, header: BatchHeader) -> bool:
        """Whether the offsets and the epoch in a header fit its place in the log."""
        return (
            header.magic == MAGIC
            and header.base_offset >= self.expected
            and header.size_bytes >= HEADER_SIZE
            and header.last_offset_delta >= 0
            and self._segment is not None
            and header.next_offset <= min(self._segment.end_offset, self._segment.base_offset + RELATIVE_OFFSET_MAX + 1)
        )

    def pass_over(self, header: BatchHeader, position: int) -> None:
        assert self._segment is not None
        self._segment.unindexed_bytes += header.size_bytes
        self._segment.size_bytes = position + header.size_bytes
        self.expected = header.next_offset
