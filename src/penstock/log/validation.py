"""What a batch must be before a leader takes it: the checks of Kafka's `LogValidator`, with its error codes.

The common batch passes the few comparisons in `Writer.append_leader` and never comes here. All others do: several
batches at once, flags, compressed batches, LogAppendTime, limits on timestamps, anything wrong.

Batches that unfold to more than a little must not be opened on the loop. `validate` raises `TooLargeForLoop` for them;
whoever appends then has them opened elsewhere (`penstock.log.preparing`) and appends what comes back as `checked`.
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
"""The most that the batches of one append may unfold to where that is done on the loop: some 0.1 ms of work."""

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


class TooLargeForLoop(Exception):
    """The batches are compressed, and unfold to more than may be looked at on the loop. Nothing was appended."""


def validate(
    records: memoryview, config: LogConfig, origin: AppendOrigin, wall_ms: int, *, checked: bool = False
) -> list[Batch]:
    """The batches of an append, or the KafkaError that refuses all of them.

    `checked`: their records were looked at already, by `penstock.log.preparing`.
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
    """All that can be said about batches without opening them; of those that were `checked`, but for the checksums."""
    batches = split(records, verify_crc=not checked)
    for batch in batches:
        _check_batch(batch, config, origin)
        if origin is AppendOrigin.CLIENT:
            _check_timestamps(batch, config, wall_ms)
    return batches


def open_batch(batch: Batch, bytes_max: int) -> memoryview:
    """The records of a batch. DecompressedTooLarge if they are compressed and more than `bytes_max`."""
    header = batch.header
    packed = batch.view[HEADER_SIZE:]
    if header.codec is Codec.NONE:
        return packed
    if header.records_count * RECORD_SIZE_MIN > bytes_max:
        raise DecompressedTooLarge(f"{header.records_count} records take more than {bytes_max} bytes")
    try:
        return decompress(header.codec, packed, bytes_max)
    except DecompressedTooLarge:
        raise
    except CompressionError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch cannot be decompressed: {error}") from None


def check_payload(batch: Batch, payload: memoryview, config: LogConfig, wall_ms: int) -> None:
    """Check every record, and put their largest timestamp into the header: indexes, rolling and retention trust it."""
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
    """Cut into batches, each whole and, if that is verified, with a right checksum. With `partial_tail` an incomplete
    last one is left out, as a fetch that is limited in bytes may end in one."""
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
        if verify_crc and batch_crc(view) != header.crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
        batches.append(Batch(header, view))
        position += size
    if not batches and not partial_tail:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there is no batch in the request")
    return batches


def set_log_append_time(batch: Batch, wall_ms: int) -> None:
    """Stamp a batch with the broker's time, as `message.timestamp.type=LogAppendTime` asks."""
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


def _check_timestamps(batch: Batch, config: LogConfig, wall_ms: int) -> None:
    header = batch.header
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    if config.opens_batches or config.log_append_time:
        return  # each record will be looked at, or its timestamp does not count
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
            ErrorCode.INVALID_RECORD, f"a message of format {magic}: since Kafka 4 only batches of format 2 are taken"
        )
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of the unknown format {magic}")
