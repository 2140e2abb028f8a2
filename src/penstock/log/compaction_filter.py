"""Which records of a batch compaction keeps: the rules of Kafka's cleaner, as functions on bytes.

A record is kept if no later record has the same key. A record without a value (a *tombstone*) is kept until the *delete
horizon* of its batch has passed: a reader that starts at the beginning of the log must have time to see that the key
was deleted. The horizon is set to `delete.retention.ms` from now when a batch is first cleaned. It is stored in the
batch header as a flag and the base timestamp (KIP-534).

Remaining records keep their offsets and timestamps. The header keeps everything that readers and producers rely on:
base offset, last offset, leader epoch, producer, sequence, codec. A batch that loses no record is not changed. A batch
that loses all records is removed, unless its header is still needed (`keep_empty`); then only the header stays.

Nearly all the time of compaction goes into the loop over records. So it is written inline: kept records are copied as
runs of the batch's own bytes, and no record is decoded beyond its key and the length of its value.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b

from penstock.wire.compression import Codec, compress, decompress
from penstock.wire.errors import WireError
from penstock.wire.records import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    codec_of,
    read_varint,
    read_varlong,
    seal,
    write_varint,
)

DECOMPRESSED_BYTES_MAX = 256 << 20
"""The largest decompressed size of one batch. A log with a larger batch is not compacted."""

KEY_BYTES_MAX = 31
"""Keys longer than this are replaced by a digest, which is longer than any key that is not replaced."""
DIGEST_BYTES = 32

_NULL = 1
"""The length −1, as a varint."""

NO_KEY = -1

OffsetMap = dict[bytes, int]
"""For each key: its last offset times two, plus one if the record there is a tombstone."""


def records_of(header: BatchHeader, batch: memoryview) -> bytes:
    """The decompressed records of a batch, as `bytes`: indexing and slicing a memoryview costs about twice as much."""
    return bytes(decompress(codec_of(header.attributes), batch[HEADER_SIZE:], DECOMPRESSED_BYTES_MAX))


def keyed_records(payload: bytes, count: int) -> Iterator[tuple[int, int, int, int]]:
    """For each record: its start, its offset delta, and the start and end of its key (`NO_KEY` if it has none). Raises
    WireError if the records are malformed."""
    position = 0
    try:
        for _ in range(count):
            start = position
            size = payload[position]
            if size < 0x80:
                position += 1
            elif (high := payload[position + 1]) < 0x80:
                size = size & 0x7F | high << 7
                position += 2
            else:
                size, position = read_varint(payload, position)
                size <<= 1
            record_end = position + (size >> 1)
            position += 1
            while payload[position] > 0x7F:
                position += 1
            position += 1
            delta = payload[position]
            if delta < 0x80:
                position += 1
            elif (high := payload[position + 1]) < 0x80:
                delta = delta & 0x7F | high << 7
                position += 2
            else:
                delta, position = read_varint(payload, position)
                delta <<= 1
            length = payload[position]
            if length < 0x80:
                position += 1
            else:
                length, position = read_varint(payload, position)
                length = length << 1 if length >= 0 else _NULL
            if length == _NULL:
                yield start, delta >> 1, position, NO_KEY
            else:
                key_end = position + (length >> 1)
                if key_end >= record_end or length & 1:
                    raise WireError("a key extends beyond its record")
                yield start, delta >> 1, position, key_end
            position = record_end
    except IndexError:
        raise WireError("a record is truncated") from None
    if position != len(payload):
        raise WireError(f"{count} records take {position} of {len(payload)} bytes")


def add_keys(header: BatchHeader, batch: memoryview, offsets: OffsetMap, from_offset: int) -> None:
    """Add the keys of a batch to the map, starting at `from_offset`. Raises WireError if the records are malformed."""
    payload = records_of(header, batch)
    base_offset = header.base_offset
    for _, delta, key_start, key_end in keyed_records(payload, header.records_count):
        if key_end != NO_KEY and base_offset + delta >= from_offset:
            key = payload[key_start:key_end]
            if len(key) > KEY_BYTES_MAX:
                key = blake2b(key, digest_size=DIGEST_BYTES).digest()
            offsets[key] = base_offset + delta << 1 | (payload[key_end] == _NULL)


def filter_batch(
    header: BatchHeader,
    batch: memoryview,
    offsets: OffsetMap,
    *,
    now_ms: int,
    delete_retention_ms: int,
    keep_empty: bool,
) -> memoryview | bytes | None:
    """The batch after compaction; None if nothing remains. The map must hold the keys of all its records.

    Returns the batch itself if nothing changes. Raises WireError if the records are malformed.
    """
    count = header.records_count
    if not count:
        return (batch if _is_empty_form(header) else emptied(header)) if keep_empty else None
    payload = records_of(header, batch)
    horizon_ms = header.delete_horizon_ms
    drops_tombstones = horizon_ms is not None and now_ms >= horizon_ms
    newest = offsets.get
    base_offset = header.base_offset
    runs: list[tuple[int, int]] = []
    run_start = -1
    kept = 0
    has_tombstones = False
    for start, delta, key_start, key_end in keyed_records(payload, count):
        survives = False
        if key_end != NO_KEY:
            key = payload[key_start:key_end]
            if len(key) > KEY_BYTES_MAX:
                key = blake2b(key, digest_size=DIGEST_BYTES).digest()
            if base_offset + delta >= newest(key, -1) >> 1:
                if payload[key_end] != _NULL:
                    survives = True
                elif not drops_tombstones:
                    survives = has_tombstones = True
        if survives:
            kept += 1
            if run_start < 0:
                run_start = start
        elif run_start >= 0:
            runs.append((run_start, start))
            run_start = -1
    if not kept:
        return emptied(header) if keep_empty else None
    sets_horizon = has_tombstones and horizon_ms is None
    if kept == count and not sets_horizon:
        return batch
    if run_start >= 0:
        runs.append((run_start, len(payload)))
    survivors = b"".join([payload[start:end] for start, end in runs])
    return _rebuilt(header, survivors, kept, now_ms + delete_retention_ms if sets_horizon else None)


def pick(
    header: BatchHeader,
    batch: memoryview,
    offsets: OffsetMap,
    survivors: array[int],
    *,
    now_ms: int,
    delete_retention_ms: int,
    keep_empty: bool,
) -> memoryview | bytes | None:
    """Like `filter_batch`, for a batch whose keys were added to the map. `survivors` (the values of the map in
    ascending order) tells which records remain, so most batches need not be decompressed a second time."""
    base_offset = header.base_offset
    count = header.records_count
    span = header.last_offset_delta + 1
    low = bisect_left(survivors, base_offset << 1)
    picked = survivors[low : bisect_left(survivors, base_offset + span << 1, low)]
    if not picked:
        return emptied(header) if keep_empty else None
    has_tombstones = any(value & 1 for value in picked)
    if len(picked) == count and not has_tombstones:
        return batch
    if count != span or (has_tombstones and header.attributes & DELETE_HORIZON_FLAG):
        return filter_batch(
            header, batch, offsets, now_ms=now_ms, delete_retention_ms=delete_retention_ms, keep_empty=keep_empty
        )
    payload = records_of(header, batch)
    starts = _starts_of(payload, count)
    parts = []
    for value in picked:
        number = (value >> 1) - base_offset
        if _offset_delta_at(payload, starts[number]) != number:
            # The producer numbered the records out of order, so positions cannot be derived from offsets.
            return filter_batch(
                header, batch, offsets, now_ms=now_ms, delete_retention_ms=delete_retention_ms, keep_empty=keep_empty
            )
        parts.append(payload[starts[number] : starts[number + 1]])
    return _rebuilt(header, b"".join(parts), len(parts), now_ms + delete_retention_ms if has_tombstones else None)


def _starts_of(payload: bytes, count: int) -> list[int]:
    """The start of each record, and the end of the last one."""
    starts = []
    position = 0
    try:
        for _ in range(count):
            starts.append(position)
            size = payload[position]
            if size < 0x80:
                position += 1 + (size >> 1)
            elif (high := payload[position + 1]) < 0x80:
                position += 2 + ((size & 0x7F | high << 7) >> 1)
            else:
                size, position = read_varint(payload, position)
                position += size
    except IndexError:
        raise WireError("a record is truncated") from None
    starts.append(position)
    return starts


def _offset_delta_at(payload: bytes, position: int) -> int:
    _, position = read_varint(payload, position)
    position += 1
    while payload[position] > 0x7F:
        position += 1
    return read_varint(payload, position + 1)[0]


def filter_marker(
    header: BatchHeader,
    batch: memoryview,
    *,
    now_ms: int,
    delete_retention_ms: int,
    is_last_of_all: bool,
    keep_empty: bool,
) -> memoryview | bytes | None:
    """The control batch after compaction; None if nothing remains.

    A marker is kept while any batch of its transaction remains, and after that (`is_last_of_all`) for as long as a
    tombstone would be.
    """
    if not header.records_count:
        return (batch if _is_empty_form(header) else emptied(header)) if keep_empty else None
    if not is_last_of_all:
        return batch
    horizon_ms = header.delete_horizon_ms
    if horizon_ms is None:
        payload = records_of(header, batch)
        return _rebuilt(header, payload, header.records_count, now_ms + delete_retention_ms)
    if now_ms < horizon_ms:
        return batch
    return emptied(header) if keep_empty else None


def emptied(header: BatchHeader) -> bytes:
    """Only the header of a batch: it keeps the offsets contiguous and holds the producer's last sequence number."""
    kept = header.attributes & (TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
    # With LogAppendTime the timestamp is the producer's last write; otherwise it belongs to a removed record.
    max_timestamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_FLAG else NO_TIMESTAMP
    return _assembled(
        header._replace(attributes=kept, base_timestamp=NO_TIMESTAMP, max_timestamp=max_timestamp, records_count=0),
        b"",
    )


def _is_empty_form(header: BatchHeader) -> bool:
    return header.size_bytes == HEADER_SIZE and not header.attributes & CODEC_MASK


def _rebuilt(header: BatchHeader, records: bytes, count: int, new_horizon_ms: int | None) -> bytes:
    """The batch with only these records, and with a new delete horizon if one is given."""
    timestamps = _timestamp_deltas(records, count)
    if not header.attributes & TIMESTAMP_TYPE_FLAG:
        header = header._replace(max_timestamp=header.base_timestamp + max(timestamps))
    if new_horizon_ms is not None:
        records = _rebased(records, timestamps, header.base_timestamp - new_horizon_ms)
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=new_horizon_ms)
    return _assembled(header._replace(records_count=count), records)


def _timestamp_deltas(records: bytes, count: int) -> list[int]:
    deltas = []
    position = 0
    for _ in range(count):
        size, position = read_varint(records, position)
        deltas.append(read_varlong(records, position + 1)[0])
        position += size
    return deltas


def _rebased(records: bytes, deltas: list[int], shift_ms: int) -> bytes:
    """The records with their timestamp deltas moved to another base timestamp."""
    out = bytearray()
    position = 0
    for delta in deltas:
        size, position = read_varint(records, position)
        record_end = position + size
        _, rest = read_varlong(records, position + 1)
        stamp = bytearray()
        write_varint(stamp, delta + shift_ms)
        write_varint(out, 1 + len(stamp) + record_end - rest)
        out.append(records[position])
        out += stamp
        out += records[rest:record_end]
        position = record_end
    return bytes(out)


def _assembled(header: BatchHeader, records: bytes) -> bytes:
    codec = codec_of(header.attributes)
    payload = records if codec is Codec.NONE else compress(codec, records)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    out = bytearray(HEADER.pack(*header._replace(batch_length=length, magic=MAGIC, crc=0)))
    out += payload
    seal(out)
    return bytes(out)
