"""What a batch must be before a leader takes it: the checks of Kafka's `LogValidator`, with its error codes.

The common batch passes the few comparisons in `Log.append_leader` and never comes here. Whatever they cannot vouch for
does: several batches at once, flags, LogAppendTime, limits on timestamps, anything wrong.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from penstock.log.compaction_filter import check_keys
from penstock.log.config import NEVER, LogConfig
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.records import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    RECORD_SIZE_MIN,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    batch_crc,
    iter_records,
    read_header,
    seal,
)

DECOMPRESSED_BYTES_MAX = 64 << 20
"""The most that a batch may unfold to where its records must be looked at."""

_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_ATTRIBUTES_POSITION = CRC_POSITION + 4


class AppendOrigin(IntEnum):
    """Who appends, which says how much must be checked."""

    CLIENT = 0
    COORDINATOR = 1
    RAFT_LEADER = 2


class Batch:
    """One batch of an append: its header, and its bytes in the receive buffer."""

    __slots__ = ("header", "view")

    def __init__(self, header: BatchHeader, view: memoryview) -> None:
        self.header = header
        self.view = view


def validate(records: memoryview, config: LogConfig, origin: AppendOrigin, wall_ms: int) -> list[Batch]:
    """The batches of an append, or the KafkaError that refuses all of them."""
    batches = split(records)
    for batch in batches:
        _check_batch(batch, config, origin)
        _check_timestamps(batch, config, origin, wall_ms)
    return batches


def split(records: memoryview, *, partial_tail: bool = False) -> list[Batch]:
    """Cut into batches, each whole and with a right checksum. With `partial_tail` an incomplete last one is left out,
    as a fetch that is limited in bytes may end in one."""
    batches = []
    position = 0
    end = len(records)
    while position < end:
        if end - position > MAGIC_POSITION and records[position + MAGIC_POSITION] != MAGIC:
            raise _wrong_magic(records[position + MAGIC_POSITION])
        if end - position < HEADER_SIZE:
            if partial_tail:
                break
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{end - position} bytes are too few for a batch")
        header = read_header(records, position)
        size = header.size_bytes
        if size > end - position and partial_tail:
            break
        if size < HEADER_SIZE or size > end - position:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"a batch says it has {size} bytes, but {end - position} came"
            )
        view = records[position : position + size]
        if batch_crc(view) != header.crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
        batches.append(Batch(header, view))
        position += size
    if not batches and not partial_tail:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there is no batch in the request")
    return batches


def set_log_append_time(batch: Batch, wall_ms: int) -> None:
    """Stamp a batch with the broker's time, as `message.timestamp.type=LogAppendTime` asks."""
    header = batch.header._replace(
        attributes=batch.header.attributes | TIMESTAMP_TYPE_FLAG,
        max_timestamp=wall_ms,
    )
    _ATTRIBUTES.pack_into(batch.view, _ATTRIBUTES_POSITION, header.attributes)
    _TIMESTAMP.pack_into(batch.view, MAX_TIMESTAMP_POSITION, wall_ms)
    seal(batch.view)
    batch.header = header


def _check_batch(batch: Batch, config: LogConfig, origin: AppendOrigin) -> None:
    header = batch.header
    size = header.size_bytes
    if origin is not AppendOrigin.RAFT_LEADER and size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes, where max.message.bytes of the topic is {config.max_message_bytes}",
        )
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {header.attributes & CODEC_MASK}"
        )
    if header.last_offset_delta < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch with last offset delta {header.last_offset_delta}")
    if origin is AppendOrigin.CLIENT:
        _check_client_batch(header, size)


def _check_client_batch(header: BatchHeader, size: int) -> None:
    count = header.records_count
    uncompressed = header.attributes & CODEC_MASK == Codec.NONE
    if count < 1 or header.last_offset_delta != count - 1:
        problem = f"a batch of {count} records with last offset delta {header.last_offset_delta}"
    elif uncompressed and count * RECORD_SIZE_MIN > size - HEADER_SIZE:
        problem = f"{count} records do not fit into a batch of {size} bytes"
    elif header.base_offset != 0:
        problem = f"a producer's batch has base offset 0, not {header.base_offset}"
    elif header.attributes & (CONTROL_FLAG | DELETE_HORIZON_FLAG):
        problem = "clients may not write control records or set a delete horizon"
    elif header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        problem = f"producer {header.producer_id} sent sequence {header.base_sequence}, epoch {header.producer_epoch}"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_RECORD, problem)


def _check_timestamps(batch: Batch, config: LogConfig, origin: AppendOrigin, wall_ms: int) -> None:
    header = batch.header
    if origin is not AppendOrigin.CLIENT:
        return
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    create_time = not config.log_append_time
    if create_time and header.max_timestamp - wall_ms > config.timestamp_after_max_ms:
        raise _timestamp_out_of_range(header.max_timestamp, config, wall_ms)
    if create_time and config.timestamp_before_max_ms < NEVER:
        _check_records(batch, config, wall_ms)
    if config.compacts:
        _check_keys(batch)


def _check_keys(batch: Batch) -> None:
    try:
        number = check_keys(batch.header, batch.view, DECOMPRESSED_BYTES_MAX)
    except WireError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    if number is not None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"Compacted topic cannot accept message without key (record {number} of a batch)"
        )


def _check_records(batch: Batch, config: LogConfig, wall_ms: int) -> None:
    """The header has no smallest timestamp: look at each record."""
    try:
        for record in iter_records(batch.view, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX, verify_crc=False):
            if record.timestamp != NO_TIMESTAMP:
                age_ms = wall_ms - record.timestamp
                if age_ms > config.timestamp_before_max_ms or -age_ms > config.timestamp_after_max_ms:
                    raise _timestamp_out_of_range(record.timestamp, config, wall_ms)
    except WireError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None


def _timestamp_out_of_range(timestamp: int, config: LogConfig, wall_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {timestamp} is not between {wall_ms - config.timestamp_before_max_ms} and "
        f"{wall_ms + config.timestamp_after_max_ms} (message.timestamp.before.max.ms and .after.max.ms of the topic)",
    )


def _wrong_magic(magic: int) -> KafkaError:
    if magic < MAGIC:
        return KafkaError(
            ErrorCode.INVALID_RECORD, f"a message of format {magic}: since Kafka 4 only batches of format 2 are taken"
        )
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of the unknown format {magic}")
