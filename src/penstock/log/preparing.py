"""Decompressing, checking and recompressing batches off the loop, before a leader appends them.

Decompression takes about a millisecond per megabyte, so larger batches are not decompressed on the loop. They go
through `prepare` in a thread (the codecs are native and release the interpreter lock) and are then appended as
`checked`.
"""

from __future__ import annotations

from penstock.log.config import LogConfig
from penstock.log.validation import AppendOrigin, Batch, check_payload, open_batch, validate_headers
from penstock.wire.compression import Codec, CompressionError, DecompressedTooLarge
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.recompression import Recompression, recompressed


def prepare(
    records: bytearray, config: LogConfig, recompression: Recompression | None, wall_ms: int, bytes_max: int
) -> tuple[bytearray, int]:
    """Returns the batches to append, and the number of bytes decompressed. Raises KafkaError.

    Raises DecompressedTooLarge if the batches together decompress to more than `bytes_max`; the caller may retry with a
    larger limit. A retry is safe: the headers may already be corrected, and correcting them again changes nothing.
    """
    opened = 0
    again: list[bytearray | memoryview] = []
    for batch in validate_headers(memoryview(records), config, AppendOrigin.CLIENT, wall_ms):
        changes = recompression is not None and recompression.codec is not batch.header.codec
        if not changes and not config.opens_batches:
            again.append(batch.view)
            continue
        payload = _open(batch, config, recompression, bytes_max - opened)
        opened += len(payload)
        if config.opens_batches:
            check_payload(batch, payload, config, wall_ms)
        if changes:
            assert recompression is not None
            again.append(_recompressed(batch, payload, recompression))
        else:
            again.append(batch.view)
    if all(isinstance(piece, memoryview) for piece in again):
        return records, opened
    if len(again) == 1 and isinstance(again[0], bytearray):
        return again[0], opened
    return bytearray().join(again), opened


def _recompressed(batch: Batch, payload: memoryview, recompression: Recompression) -> bytearray:
    try:
        return recompressed(batch.view, payload, recompression)
    except CompressionError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch cannot be recompressed: {error}") from None


def _open(batch: Batch, config: LogConfig, recompression: Recompression | None, bytes_max: int) -> memoryview:
    if recompression is None or recompression.codec is not Codec.NONE or bytes_max <= config.max_message_bytes:
        return open_batch(batch, bytes_max)
    try:
        return open_batch(batch, config.max_message_bytes)
    except DecompressedTooLarge:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            "the topic stores batches uncompressed, and this batch is then larger than the topic's max.message.bytes, "
            f"{config.max_message_bytes}",
        ) from None
