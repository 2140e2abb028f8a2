"""Record batches, version 2: the unit that producers send, logs store and consumers fetch.

A batch is a fixed header of 61 bytes and a payload of records, compressed as a whole. The checksum covers what follows
it, so a broker may set the base offset and the leader epoch, which precede it, without touching the rest. Hot paths
read headers with `HEADER.unpack_from` and never decode records. `iter_records` decodes them, and trusts neither
lengths nor counts nor the decompressed size.

    offset  size  field                       offset  size  field
         0     8  base offset                     27     8  base timestamp
         8     4  batch length (what follows)     35     8  max timestamp
        12     4  partition leader epoch          43     8  producer id
        16     1  magic (2)                       51     2  producer epoch
        17     4  crc32c (of what follows)        53     4  base sequence
        21     2  attributes                      57     4  records count
        23     4  last offset delta               61        records
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from penstock.wire.compression import Buffer, Codec, compress, decompress
from penstock.wire.errors import WireError

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
LENGTH_OVERHEAD = 12  # base offset and batch length are not counted in the batch length
CRC_START = 21  # the first byte that the checksum covers
MAGIC = 2

BASE_OFFSET_POSITION = 0
LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
BASE_TIMESTAMP_POSITION = 27
MAX_TIMESTAMP_POSITION = 35

CODEC_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40  # the base timestamp is when tombstones and markers may be removed (KIP-534)

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
SEQUENCE_MODULUS = 1 << 31  # sequence numbers count up to 2³¹ − 1, then from 0

DEFAULT_MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
# Length, attributes, timestamp delta, offset delta, key length, value length, header count: at least one byte each.
RECORD_SIZE_MIN = 7
RECORD_HEADER_SIZE_MIN = 2
VARINT_SIZE_MAX = 5
UNKNOWN_SIZE = -1
VARLONG_SIZE_MAX = 10


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlRecordType(IntEnum):
    """The type in the key of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    """The fixed part of a batch, field for field as on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return timestamp_type_of(self.attributes)

    @property
    def is_transactional(self) -> bool:
        return is_transactional(self.attributes)

    @property
    def is_control(self) -> bool:
        return is_control(self.attributes)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if has_delete_horizon(self.attributes) else None

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


class Record(msgspec.Struct, frozen=True):
    """One record, with its absolute offset and timestamp (ms)."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def codec_of(attributes: int) -> Codec:
    try:
        return Codec(attributes & CODEC_MASK)
    except ValueError:
        raise WireError(f"unknown compression type {attributes & CODEC_MASK}") from None


def timestamp_type_of(attributes: int) -> TimestampType:
    return TimestampType.LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_FLAG else TimestampType.CREATE_TIME


def is_transactional(attributes: int) -> bool:
    return attributes & TRANSACTIONAL_FLAG != 0


def is_control(attributes: int) -> bool:
    return attributes & CONTROL_FLAG != 0


def has_delete_horizon(attributes: int) -> bool:
    return attributes & DELETE_HORIZON_FLAG != 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; checks only that it is complete."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error:
        raise WireError(
            f"a batch header has {HEADER_SIZE} bytes, but only {max(0, len(buffer) - position)} are left"
        ) from None


def batch_crc(batch: Buffer) -> int:
    """The checksum for the header of this complete batch."""
    return int(crc32c(memoryview(batch)[CRC_START:]))


def check_batch(batch: Buffer) -> BatchHeader:
    """The header of exactly one complete batch, after verifying its length, magic, counts and checksum."""
    header = read_header(batch)
    if header.size_bytes != len(batch) or len(batch) < HEADER_SIZE:
        raise WireError(f"a batch of {len(batch)} bytes states a size of {header.size_bytes}")
    if header.magic != MAGIC:
        raise WireError(f"a batch with magic {header.magic}: only version {MAGIC} is supported")
    if header.last_offset_delta < 0 or not 0 <= header.records_count <= header.last_offset_delta + 1:
        raise WireError(f"a batch of {header.records_count} records with last offset delta {header.last_offset_delta}")
    if (crc := batch_crc(batch)) != header.crc:
        raise WireError(f"the batch's checksum is {header.crc:#010x}, but its bytes give {crc:#010x}")
    return header


def iter_batches(data: Buffer, *, partial_tail: bool = False) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The consecutive batches in `data`, each as its header and its bytes (a view, no copy).

    With `partial_tail` an incomplete last batch ends the iteration, as in the response to a size-limited fetch;
    otherwise it raises. Payloads and checksums are not checked: see `check_batch`.
    """
    view = memoryview(data)
    position = 0
    end = len(view)
    while position < end:
        if end - position < HEADER_SIZE:
            if partial_tail:
                return
            raise WireError(f"{end - position} bytes after the last batch: too few for another")
        header = read_header(view, position)
        size = header.size_bytes
        if size < HEADER_SIZE:
            raise WireError(f"a batch states a size of {size} bytes, less than its header")
        if header.magic != MAGIC:
            raise WireError(f"a batch with magic {header.magic}: only version {MAGIC} is supported")
        if size > end - position:
            if partial_tail:
                return
            raise WireError(f"a batch of {size} bytes exceeds the {end - position} bytes left")
        yield header, view[position : position + size]
        position += size


def iter_records(
    batch: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES, verify_crc: bool = True
) -> Iterator[Record]:
    """The records of one complete batch, decoded lazily; raises WireError if the bytes are invalid."""
    view = memoryview(batch)
    header = check_batch(view) if verify_crc else read_header(view)
    # Plain bytes: indexing and slicing a view costs about twice as much.
    payload = bytes(decompress(codec_of(header.attributes), view[HEADER_SIZE:], max_decompressed_bytes))
    count = header.records_count
    if count < 0 or count * RECORD_SIZE_MIN > len(payload):
        raise WireError(f"a batch states {count} records in {len(payload)} bytes")
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    log_append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_FLAG else None
    position = 0
    end = len(payload)
    try:
        for _ in range(count):
            size, position = read_varint(payload, position)
            record_end = position + size
            if size < RECORD_SIZE_MIN - 1 or record_end > end:
                raise WireError(f"a record of {size} bytes exceeds the {end - position} bytes left")
            timestamp_delta, position = read_varlong(payload, position + 1)
            offset_delta, position = read_varint(payload, position)
            if not 0 <= offset_delta <= header.last_offset_delta:
                raise WireError(f"offset delta {offset_delta} in a batch that ends at {header.last_offset_delta}")
            key, position = _read_bytes(payload, position, record_end)
            value, position = _read_bytes(payload, position, record_end)
            headers, position = _read_headers(payload, position, record_end)
            if position != record_end:
                raise WireError(f"a record of {size} bytes has fields of {size + position - record_end} bytes")
            timestamp = base_timestamp + timestamp_delta if log_append_time is None else log_append_time
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    except IndexError:
        raise WireError("a record is truncated") from None
    if position != end:
        raise WireError(f"{end - position} bytes after the last of {count} records")


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Builds one complete batch.

    The records get consecutive offsets from `base_offset`, whatever their own `offset` is. With `keep_offsets` they
    keep them, as compaction needs, and the batch keeps the original `last_offset_delta`.
    """
    records = list(records)
    timestamps = [record.timestamp for record in records]
    base_timestamp = timestamps[0] if timestamps else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    payload = bytearray()
    delta = -1
    for index, record in enumerate(records):
        previous, delta = delta, record.offset - base_offset if keep_offsets else index
        assert delta > previous, "offsets must increase within a batch"
        write_record(payload, record, timestamp_delta=record.timestamp - base_timestamp, offset_delta=delta)
    if last_offset_delta is None:
        last_offset_delta = delta
    assert last_offset_delta >= max(delta, 0), "a batch spans at least the offsets of its records"
    packed = payload if codec == Codec.NONE else compress(codec, payload, level)
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_OVERHEAD + len(packed),
        leader_epoch,
        MAGIC,
        0,
        codec
        | (TIMESTAMP_TYPE_FLAG if timestamp_type == TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0),
        last_offset_delta,
        base_timestamp,
        max(timestamps, default=NO_TIMESTAMP),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += packed
    seal(batch)
    return bytes(batch)


def build_keyed_batch(
    pairs: Sequence[tuple[bytes, bytes | None]],
    *,
    timestamp: int,
    codec: Codec = Codec.NONE,
    flags: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytearray:
    """A batch of records with a key, no headers, and one timestamp; a fast path for coordinators."""
    parts: list[bytes] = []
    varints = _VARINTS
    key_size = value_size = UNKNOWN_SIZE
    for delta, (key, value) in enumerate(pairs):
        if value is None:
            body = b"\0\0%b%b%b\1\0" % (varints[delta], varints[len(key)], key)
            parts += (varints[len(body)], body)
            continue
        if len(key) != key_size or len(value) != value_size:
            # Most have the length of the previous one, like the offsets of one commit.
            key_size, value_size = len(key), len(value)
            key_length, value_length = varints[key_size], varints[value_size]
            size = 3 + len(key_length) + key_size + len(value_length) + value_size
        at = varints[delta]
        parts += (varints[size + len(at)], b"\0\0", at, key_length, key, value_length, value, b"\0")
    payload = b"".join(parts)
    packed = payload if codec == Codec.NONE else compress(codec, payload, None)
    count = len(pairs)
    batch = bytearray(HEADER_SIZE)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(packed)
    HEADER.pack_into(
        batch, 0, 0, length, NO_LEADER_EPOCH, MAGIC, 0, codec | flags, count - 1, timestamp, timestamp,
        producer_id, producer_epoch, NO_SEQUENCE, count,
    )  # fmt: skip
    batch += packed
    seal(batch)
    return batch


def seal(batch: bytearray | memoryview) -> None:
    """Writes the checksum of a batch after its bytes were changed."""
    struct.pack_into(">I", batch, CRC_POSITION, batch_crc(batch))


def write_record(out: bytearray, record: Record, *, timestamp_delta: int, offset_delta: int) -> None:
    """Appends one record in its length-prefixed form."""
    key, value, headers = record.key, record.value, record.headers
    body: bytes | bytearray = b"\0%b%b%b%b%b%b%b" % (
        varint(timestamp_delta),
        varint(offset_delta),
        _NULL if key is None else varint(len(key)),
        key or b"",
        _NULL if value is None else varint(len(value)),
        value or b"",
        varint(len(headers)),
    )
    if headers:
        body = bytearray(body)
        for name, content in headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, content)
    out += varint(len(body))
    out += body


def control_key(record_type: ControlRecordType) -> bytes:
    """The key of a control record."""
    return struct.pack(">hh", 0, record_type)


def end_marker(committed: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """The key and value of the control record that ends a transaction."""
    kind = ControlRecordType.COMMIT if committed else ControlRecordType.ABORT
    return control_key(kind), struct.pack(">hi", 0, coordinator_epoch)


def parse_control_key(key: bytes | None) -> int:
    """The type in a control record's key; may be unknown."""
    if key is None or len(key) < 4:
        raise WireError("the key of a control record has no version and type")
    version, record_type = struct.unpack_from(">hh", key)
    if version < 0:
        raise WireError(f"unknown key version {version} of a control record")
    return int(record_type)


def read_unsigned_varint(buffer: Buffer, position: int, size_max: int = VARINT_SIZE_MAX) -> tuple[int, int]:
    """(value, next position). Raises IndexError at the end of the buffer, WireError if the number is too long."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    shift = 7
    for index in range(position + 1, position + size_max):
        byte = buffer[index]
        if byte < 0x80:
            return value | byte << shift, index + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    raise WireError(f"a varint has more than {size_max} bytes")


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """A zigzag-coded int32."""
    value = buffer[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    second = buffer[position + 1]
    if second < 0x80:  # lengths and deltas of up to 8,191: nearly all
        value = value & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    value, position = read_unsigned_varint(buffer, position)
    if value > 0xFFFF_FFFF:
        raise WireError("a varint exceeds 32 bits")
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """A zigzag-coded int64."""
    value = buffer[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    second = buffer[position + 1]
    if second < 0x80:
        value = value & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    value, position = read_unsigned_varint(buffer, position, VARLONG_SIZE_MAX)
    if value > 0xFFFF_FFFF_FFFF_FFFF:
        raise WireError("a varlong exceeds 64 bits")
    return (value >> 1) ^ -(value & 1), position


def write_unsigned_varint(out: bytearray, value: int) -> None:
    assert value >= 0, "unsigned"
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Appends a zigzag-coded signed number of 32 or 64 bits."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def varint(value: int) -> bytes:
    """The bytes that `write_varint` would append."""
    return _VARINTS[value]


class _Varints(dict[int, bytes]):
    """A cache: lengths and offset deltas are mostly the same small numbers."""

    REMEMBERED_MAX = 16_384

    def __missing__(self, value: int) -> bytes:
        out = bytearray()
        write_varint(out, value)
        made = bytes(out)
        if 0 <= value < self.REMEMBERED_MAX:
            self[value] = made
        return made


_VARINTS = _Varints()
_NULL = b"\1"
"""A length of −1."""


def _read_bytes(buffer: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(buffer, position)
    if size < 0:
        if size != -1:
            raise WireError(f"a field has the invalid length {size}")
        return None, position
    stop = position + size
    if stop > end:
        raise WireError(f"a field of {size} bytes exceeds the {max(0, end - position)} bytes left")
    return buffer[position:stop], stop


def _write_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(1)  # −1 in zigzag
    else:
        write_varint(out, len(value))
        out += value


def _read_headers(buffer: bytes, position: int, end: int) -> tuple[Sequence[tuple[str, bytes | None]], int]:
    count, position = read_varint(buffer, position)
    if count == 0:
        return (), position
    if count < 0 or count * RECORD_HEADER_SIZE_MIN > end - position:
        raise WireError(f"{count} record headers cannot fit into {max(0, end - position)} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(buffer, position, end)
        if name is None:
            raise WireError("a record header has no name")
        value, position = _read_bytes(buffer, position, end)
        # Brokers accept any bytes as a name, and Java's clients display them like this.
        headers.append((name.decode(errors="replace"), value))
    return headers, position
