"""Recompresses batches with another codec, for topics with a `compression.type`."""

from __future__ import annotations

from typing import NamedTuple

from penstock.wire.compression import Buffer, Codec, compress
from penstock.wire.records import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    read_header,
    seal,
)

UNCOMPRESSED = 1 << Codec.NONE
"""A bit mask like the result of `codecs_in`."""


class Recompression(NamedTuple):
    """How a topic compresses its batches, whatever the producer chose."""

    codec: Codec
    level: int | None = None

    def changes(self, codecs: int) -> bool:
        """Whether any batch with these codecs (`codecs_in`) must be recompressed."""
        return codecs & ~(1 << self.codec) != 0


def codecs_in(records: Buffer) -> int:
    """The codecs of the batches, as bits: 1 << codec. Stops at the first bytes that are not a batch."""
    found, position, left = 0, 0, len(records)
    while left >= HEADER_SIZE:
        found |= 1 << (records[position + ATTRIBUTES_POSITION + 1] & CODEC_MASK)
        size = int.from_bytes(records[position + LENGTH_POSITION : position + LENGTH_POSITION + 4], "big")
        size += LENGTH_OVERHEAD
        if not HEADER_SIZE <= size < left:
            break
        position += size
        left -= size
    return found


def recompressed(batch: Buffer, payload: Buffer, to: Recompression) -> bytearray:
    """The batch with `payload`, its decompressed records, under another codec. Other header fields are kept."""
    attributes = (read_header(batch).attributes & ~CODEC_MASK) | to.codec
    again = bytearray(batch[:HEADER_SIZE])
    again += payload if to.codec is Codec.NONE else compress(to.codec, payload, to.level)
    again[LENGTH_POSITION : LENGTH_POSITION + 4] = (len(again) - LENGTH_OVERHEAD).to_bytes(4, "big")
    again[ATTRIBUTES_POSITION : ATTRIBUTES_POSITION + 2] = attributes.to_bytes(2, "big", signed=True)
    seal(again)
    return again
