"""Loads the state of a shard from its log, in slices that do not block the event loop.

Keys and values are passed to the shard undecoded; the shard decodes them when they are first needed. Records of a
transaction are passed with their producer; the marker that ends it goes to `Shard.replay_end_marker`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from penstock.coordinators.shard import Shard
from penstock.wire.compression import decompress
from penstock.wire.errors import WireError
from penstock.wire.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    RECORD_SIZE_MIN,
    BatchHeader,
    ControlRecordType,
    check_batch,
    codec_of,
    iter_batches,
    iter_records,
    parse_control_key,
    read_varint,
)

SLICE_MS = 5.0
"""Loading yields to the event loop after this long."""
RECORDS_PER_STEP = 64
"""The clock is checked after this many records."""


class Source(Protocol):
    """A log that is read from its start."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    async def read(self, offset: int, end_offset: int) -> bytes:
        """Read at least one complete batch, if there is one, starting with the batch that contains `offset`. An
        incomplete last batch is ignored."""


class Sleeper(Protocol):
    def now_ms(self) -> float: ...
    def sleep(self, delay_ms: float) -> Awaitable[None]: ...


async def load(shard: Shard, source: Source, loop: Sleeper, is_wanted: Callable[[], bool]) -> None:
    """Replay the log up to its current end. Stop early when `is_wanted` returns False."""
    offset, end_offset = source.start_offset, source.end_offset
    while offset < end_offset:
        data = await source.read(offset, end_offset)
        began_ms = loop.now_ms()
        before = offset
        for reached in replay_batches(shard, data, before):
            offset = reached
            if loop.now_ms() - began_ms >= SLICE_MS:
                await loop.sleep(0)
                if not is_wanted():
                    return
                began_ms = loop.now_ms()
        if not is_wanted() or offset == before:
            # Compaction may have removed all records at the end of the log.
            return


def replay_batches(shard: Shard, data: bytes, offset: int) -> Iterator[int]:
    """Replay the batches in `data` from `offset` on, in small steps. Each step yields the next offset to read.

    Raises WireError if the bytes are malformed, and any exception of the shard.
    """
    for header, view in iter_batches(data, partial_tail=True):
        if header.next_offset <= offset:
            continue
        check_batch(view)
        if header.is_control:
            _replay_control(shard, header, view)
        else:
            producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
            if header.is_transactional:
                producer_id, producer_epoch = header.producer_id, header.producer_epoch
            for _ in _replay_records(shard, producer_id, producer_epoch, header, view, offset):
                yield offset
        offset = header.next_offset
        yield offset


def _replay_control(shard: Shard, header: BatchHeader, view: memoryview) -> None:
    for record in iter_records(view, verify_crc=False):
        kind = parse_control_key(record.key)
        if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            shard.replay_end_marker(header.producer_id, header.producer_epoch, kind == ControlRecordType.COMMIT)


def _replay_records(
    shard: Shard, producer_id: int, producer_epoch: int, header: BatchHeader, view: memoryview, offset: int
) -> Iterator[None]:
    """`iter_records`, inlined and without the fields that loading does not need: it runs a million times when a broker
    takes over. Records without a key are skipped."""
    replay = shard.replay
    payload = bytes(decompress(codec_of(header.attributes), view[HEADER_SIZE:], DEFAULT_MAX_DECOMPRESSED_BYTES))
    base_offset = header.base_offset
    p, end = 0, len(payload)
    try:
        for count in range(1, header.records_count + 1):
            byte = payload[p]
            if byte < 0x80:
                size, p = byte >> 1, p + 1
            else:
                size, p = read_varint(payload, p)
            record_end = p + size
            if record_end > end or size < RECORD_SIZE_MIN - 1:
                raise WireError(f"a record of {size} bytes where {end - p} are left")
            p += 1
            while payload[p] >= 0x80:
                p += 1
            byte = payload[p + 1]
            if byte < 0x80:
                at, p = base_offset + (byte >> 1), p + 2
            else:
                delta, p = read_varint(payload, p + 1)
                at = base_offset + delta
            byte = payload[p]
            if byte < 0x80 and not byte & 1:
                size, p = byte >> 1, p + 1
            else:
                size, p = read_varint(payload, p)
            if size >= 0:
                key_end = p + size
                byte = payload[key_end]
                if byte < 0x80 and not byte & 1:
                    size, value_at = byte >> 1, key_end + 1
                else:
                    size, value_at = read_varint(payload, key_end)
                if value_at + size > record_end:
                    raise WireError("a record whose fields end beyond it")
                if at >= offset:
                    value = payload[value_at : value_at + size] if size >= 0 else None
                    replay(at, producer_id, producer_epoch, payload[p:key_end], value)
            p = record_end
            if not count % RECORDS_PER_STEP:
                yield
    except IndexError:
        raise WireError("a record that is cut off") from None
