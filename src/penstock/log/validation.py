"""Validation of batches before a leader appends them: the checks of Kafka's `LogValidator`, with its error codes.

A typical batch passes the few comparisons in `Writer.append_leader` and is not validated here. All others are: several
batches at once, flags, compressed batches, LogAppendTime, limits on timestamps, anything wrong.

Batches that decompress to more than a small limit must not be decompressed on the loop. `validate` raises
`TooLargeForLoop` for them; the caller then prepares them in a thread (`penstock.log.preparing`) and appends the result
as `checked`.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from penstock.log.config import LogConfig
from penstock.wire.compression import Codec, CompressionError, DecompressedTooLarge, decompress
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.record_check import TIMESTAMP_MAX, TIMESTAMP_MIN, RecordRules, check_records
from penstock.wire.records import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    RECORD_SIZE_MIN,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    batch_crc,
    read_header,
    seal,
)

ON_LOOP_BYTES_MAX = 64 * 1024
"""The most that the batches of one append may decompress to on the loop: about 0.1 ms of work."""

_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_ATTRIBUTES_POSITION = CRC_POSITION + 4


class AppendOrigin(IntEnum):
    """The origin of an append, which decides how much must be checked."""

    CLIENT = 0
    COORDINATOR = 1
    RAFT_LEADER = 2


class Batch:
    """One batch of an append: its header, and its bytes in the receive buffer."""

    __slots__ = ("header", "view")

    def __init__(self, header: BatchHeader, view: memoryview) -> None:
        self.header = header
        self.view = view


class TooLargeForLoop(Exception):
    """The batches decompress to more than may be processed on the loop. Nothing was appended."""


def validate(
    records: memoryview, config: LogConfig, origin: AppendOrigin, wall_ms: int, *, checked: bool = False
) -> list[Batch]:
    """Split an append into batches and check them. Raises KafkaError, which refuses all of them.

    `checked`: `penstock.log.preparing` has already checked the records.
    """
    batches = validate_headers(records, config, origin, wall_ms, checked=checked)
    if origin is AppendOrigin.CLIENT and not checked and config.opens_batches:
        left = ON_LOOP_BYTES_MAX
        for batch in batches:
            try:
                payload = open_batch(batch, left)
            except DecompressedTooLarge:
                raise TooLargeForLoop from None
            if batch.header.codec is not Codec.NONE:
                left -= len(payload)
            check_payload(batch, payload, config, wall_ms)
    return batches


def validate_headers(
    records: memoryview, config: LogConfig, origin: AppendOrigin, wall_ms: int, *, checked: bool = False
) -> list[Batch]:
    """All checks that need no decompression. With `checked` the checksums are not verified again."""
    batches = split(records, verify_crc=not checked)
    for batch in batches:
        _check_batch(batch, config, origin)
        if origin is AppendOrigin.CLIENT:
            _check_timestamps(batch, config, wall_ms)
    return batches


def open_batch(batch: Batch, bytes_max: int) -> memoryview:
    """The records of a batch. Raises DecompressedTooLarge if they decompress to more than `bytes_max`."""
    header = batch.header
    packed = batch.view[HEADER_SIZE:]
    if header.codec is Codec.NONE:
        return packed
    if header.records_count * RECORD_SIZE_MIN > bytes_max:
        raise DecompressedTooLarge(f"{header.records_count} records decompress to more than {bytes_max} bytes")
    try:
        return decompress(header.codec, packed, bytes_max)
    except DecompressedTooLarge:
        raise
    except CompressionError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch cannot be decompressed: {error}") from None


def check_payload(batch: Batch, payload: memoryview, config: LogConfig, wall_ms: int) -> None:
    """Check every record, and put the largest timestamp into the header: indexes, rolling and retention rely on it."""
    header = batch.header
    earliest, latest = TIMESTAMP_MIN, TIMESTAMP_MAX
    if not config.log_append_time:
        earliest = max(earliest, wall_ms - config.timestamp_before_max_ms)
        latest = min(latest, wall_ms + config.timestamp_after_max_ms)
    rules = RecordRules(earliest, latest, config.compacts)
    largest = check_records(payload, header.records_count, header.base_timestamp, rules)
    if largest != header.max_timestamp and not config.log_append_time:
        set_max_timestamp(batch, header.attributes, largest)


def split(records: memoryview, *, partial_tail: bool = False, verify_crc: bool = True) -> list[Batch]:
    """Split bytes into complete batches, verifying checksums if `verify_crc`. `partial_tail` ignores an incomplete last
    batch: a fetch response limited in bytes may end with one."""
    batches = []
    position = 0
    end = len(records)
    while position < end:
        if end - position > MAGIC_POSITION and records[position + MAGIC_POSITION] != MAGIC:
            raise _wrong_magic(records[position + MAGIC_POSITION])
        if end - position < HEADER_SIZE:
            if partial_tail:
                break
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{end - position} bytes are too short for a batch header")
        header = read_header(records, position)
        size = header.size_bytes
        if size > end - position and partial_tail:
            break
        if size < HEADER_SIZE or size > end - position:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"the batch header declares {size} bytes, but {end - position} arrived"
            )
        view = records[position : position + size]
        if verify_crc and batch_crc(view) != header.crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
        batches.append(Batch(header, view))
        position += size
    if not batches and not partial_tail:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the request contains no batch")
    return batches


def set_log_append_time(batch: Batch, wall_ms: int) -> None:
    """Set the timestamp of a batch to the broker's time, for `message.timestamp.type=LogAppendTime`."""
    set_max_timestamp(batch, batch.header.attributes | TIMESTAMP_TYPE_FLAG, wall_ms)


def set_max_timestamp(batch: Batch, attributes: int, max_timestamp: int) -> None:
    _ATTRIBUTES.pack_into(batch.view, _ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(batch.view, MAX_TIMESTAMP_POSITION, max_timestamp)
    seal(batch.view)
    batch.header = batch.header._replace(
        attributes=attributes, max_timestamp=max_timestamp, crc=read_header(batch.view).crc
    )


def _check_batch(batch: Batch, config: LogConfig, origin: AppendOrigin) -> None:
    header = batch.header
    size = header.size_bytes
    # A marker is written whatever the topic's limit is: without it the transaction would stay open for ever.
    is_marker = origin is AppendOrigin.COORDINATOR and header.is_control
    if origin is not AppendOrigin.RAFT_LEADER and size > config.max_message_bytes and not is_marker:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes; the topic's max.message.bytes is {config.max_message_bytes}",
        )
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {header.attributes & CODEC_MASK}"
        )
    if header.last_offset_delta < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"invalid last offset delta {header.last_offset_delta}")
    if origin is AppendOrigin.CLIENT:
        _check_client_batch(header, size)


def _check_client_batch(header: BatchHeader, size: int) -> None:
    count = header.records_count
    uncompressed = header.attributes & CODEC_MASK == Codec.NONE
    if count < 1 or header.last_offset_delta != count - 1:
        problem = f"a batch of {count} records has last offset delta {header.last_offset_delta}"
    elif uncompressed and count * RECORD_SIZE_MIN > size - HEADER_SIZE:
        problem = f"{count} records do not fit into a batch of {size} bytes"
    elif header.base_offset != 0:
        problem = f"the base offset of a producer's batch must be 0, not {header.base_offset}"
    elif header.attributes & (CONTROL_FLAG | DELETE_HORIZON_FLAG):
        problem = "clients may not write control records or set a delete horizon"
    elif header.producer_id < 0 and header.is_transactional:
        problem = "a transactional batch must name its producer"
    elif header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        problem = (
            f"producer {header.producer_id} sent sequence {header.base_sequence} and epoch {header.producer_epoch}, "
            "which must not be negative"
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_RECORD, problem)


def _check_timestamps(batch: Batch, config: LogConfig, wall_ms: int) -> None:
    header = batch.header
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    if config.opens_batches or config.log_append_time:
        return  # every record will be checked, or its timestamp does not matter
    if header.max_timestamp - wall_ms > config.timestamp_after_max_ms:
        raise _timestamp_out_of_range(header.max_timestamp, config, wall_ms)


def _timestamp_out_of_range(timestamp: int, config: LogConfig, wall_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {timestamp} is not between {wall_ms - config.timestamp_before_max_ms} and "
        f"{wall_ms + config.timestamp_after_max_ms} (message.timestamp.before.max.ms and .after.max.ms of the topic)",
    )


def _wrong_magic(magic: int) -> KafkaError:
    if magic < MAGIC:
        return KafkaError(
            ErrorCode.INVALID_RECORD, f"message format {magic} is not supported; since Kafka 4 only format 2 is"
        )
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown message format {magic}")
