"""The five compression codecs of record batches, with bounded output.

The size of compressed data cannot be trusted: a few kilobytes may expand to gigabytes. So data is always decompressed
*into* a buffer of our own, which is never larger than the caller allows. The buffer starts with the size that the data
claims (`_claimed_bytes`), so that valid data is decompressed once. If it claims too little, the buffer grows
geometrically while the codec reports it as too small. If it claims too much, the extra memory stays untouched.

How clients frame their data:

- gzip, zstd: the plain formats.
- snappy: the Java client writes the xerial framing (a magic, then blocks with a length each); librdkafka writes one
  raw block. Both are read; xerial is written, because every client reads it.
- lz4: the frame format. Kafka's Java reader decodes each block by itself, so frames are written here with
  independent blocks (cramjam's own frames link theirs, which Java misreads past the first 64 KB).
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import ParamSpec, TypeVar

import cramjam

from penstock.wire.errors import WireError

Buffer = bytes | bytearray | memoryview
P = ParamSpec("P")
T = TypeVar("T")
PANIC = "PanicException"
"""The exception type of a Rust panic in pyo3; it cannot be imported."""


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(WireError):
    """The data is not valid for its codec."""


class DecompressedTooLarge(CompressionError):
    """The data expands to more than the caller allows."""


DEFAULT_LEVELS = {Codec.GZIP: 6, Codec.ZSTD: 3}

_FIRST_BYTES_MIN = 64 * 1024
_GROWTH = 4

_CLAIM_BLOCKS_MAX = 64
"""The number of blocks examined to estimate the buffer size. They hold 4 MB of lz4, 8 MB of zstd."""
_DEFLATE_RATIO_MAX = 1032
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE = 0, 1

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
# A snappy copy yields at most 64 bytes from 3, so a block that claims a larger ratio is invalid.
_SNAPPY_RATIO_MAX = 22

# Magic, independent blocks of at most 64 KB without checksums, and the descriptor's checksum.
_LZ4_FRAME_HEADER = bytes.fromhex("04224d18604082")
_LZ4_END_MARK = bytes(4)
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x8000_0000


def _without_panics(function: Callable[P, T]) -> Callable[P, T]:
    """Converts a panic in the codecs' Rust code, which is not an `Exception` and would escape general handlers."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if type(error).__name__ == PANIC:
                raise CompressionError(f"the codec failed: {error}") from None
            raise

    return guarded


@_without_panics
def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compresses `data` as a Kafka client would; snappy has no levels, lz4 is fast unless a level is given."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    if level is None:
        level = DEFAULT_LEVELS[codec]
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    return bytes(cramjam.zstd.compress(data, level))


@_without_panics
def decompress(codec: Codec, data: Buffer, max_bytes: int) -> memoryview:
    """The decompressed data. Raises DecompressedTooLarge beyond `max_bytes`, CompressionError if it is damaged."""
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise DecompressedTooLarge(f"{len(data)} bytes, the limit is {max_bytes}")
        return memoryview(data)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    return _decompress_growing(_INTO[codec], codec, data, max_bytes)


def _decompress_growing(
    into: Callable[[Buffer, bytearray], int], codec: Codec, data: Buffer, max_bytes: int
) -> memoryview:
    size = min(max_bytes, max(_FIRST_BYTES_MIN, _claimed_bytes(codec, data)))
    while True:
        buffer = bytearray(size)
        try:
            return memoryview(buffer)[: into(data, buffer)]
        except cramjam.DecompressionError as error:
            if not _says_buffer_is_full(error):
                raise CompressionError(f"damaged {codec.name.lower()} data: {error}") from None
        del buffer  # before the next one is allocated, so that there are never two
        if size >= max_bytes:
            raise DecompressedTooLarge(
                f"{len(data)} bytes of {codec.name.lower()} expand to more than the limit of {max_bytes}"
            )
        size = min(max_bytes, size * _GROWTH)


def _claimed_bytes(codec: Codec, data: Buffer) -> int:
    """The largest decompressed size if the data is valid and one frame. Only an estimate.

    Kafka's clients do not write the size into a frame's header, because they compress as a stream. But each block of a
    frame has a maximum decompressed size, and all but the last have exactly that.
    """
    if codec == Codec.GZIP:
        return min(int.from_bytes(data[-4:], "little"), len(data) * _DEFLATE_RATIO_MAX)
    if len(data) < len(_LZ4_FRAME_HEADER):
        return 0
    return _claimed_by_lz4(data) if codec == Codec.LZ4 else _claimed_by_zstd(data)


def _claimed_by_lz4(data: Buffer) -> int:
    flags, block_flags = data[4], data[5]
    block_bytes = 1 << (8 + 2 * (block_flags >> 4 & 7))
    position = len(_LZ4_FRAME_HEADER) + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    checksum_bytes = 4 if flags & 0x10 else 0
    claimed = 0
    for _ in range(_CLAIM_BLOCKS_MAX):
        size = int.from_bytes(data[position : position + 4], "little")
        if not size:
            break  # the end of the frame or of the data
        stored = size & ~_LZ4_STORED
        claimed += stored if size & _LZ4_STORED else block_bytes
        position += 4 + stored + checksum_bytes
    return claimed


def _claimed_by_zstd(data: Buffer) -> int:
    flags = data[4]
    is_single_segment = flags >> 5 & 1
    position = 6 - is_single_segment + (0, 1, 2, 4)[flags & 3] + (is_single_segment, 2, 4, 8)[flags >> 6]
    claimed = 0
    for _ in range(_CLAIM_BLOCKS_MAX):
        header = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        claimed += size if kind in (_ZSTD_RAW, _ZSTD_RLE) else _ZSTD_BLOCK_BYTES
        position += 3 + (1 if kind == _ZSTD_RLE else size)
        if is_last or position >= len(data):
            break
    return claimed


def _says_buffer_is_full(error: Exception) -> bool:
    # cramjam has one exception type for all errors; a test checks this text for every codec.
    return "failed to write whole buffer" in str(error)


_INTO: dict[Codec, Callable[[Buffer, bytearray], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> memoryview:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return memoryview(_decompress_snappy_block(view, max_bytes))
    parts = []
    left_bytes = max_bytes
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CompressionError("damaged snappy data: its header is truncated")
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > len(view) - position:
            raise CompressionError(f"damaged snappy data: a block of {size} bytes is truncated")
        block = _decompress_snappy_block(view[position : position + size], left_bytes)
        position += size
        left_bytes -= len(block)
        parts.append(block)
    return memoryview(b"".join(parts))


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_RATIO_MAX:
            raise CompressionError(f"damaged snappy data: {len(block)} bytes claim to hold {size}")
        if size > max_bytes:
            raise DecompressedTooLarge(f"snappy data expands to more than the limit of {max_bytes} bytes")
        buffer = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, buffer)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"damaged snappy data: {error}") from None
    return buffer


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    if level is not None:
        # Independent blocks: Kafka's Java clients can read only those.
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    view = memoryview(data)
    parts = [_LZ4_FRAME_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts.append(len(block).to_bytes(4, "little"))
            parts.append(block)
        else:
            parts.append((len(plain) | _LZ4_STORED).to_bytes(4, "little"))
            parts.append(bytes(plain))
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)
