"""The codecs as clients write them, and what they must never do."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire import compression
from penstock.wire.compression import Codec, CompressionError, DecompressedTooLarge, compress, decompress

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
PLENTY = 100_000_000
TEXT = b"the quick brown fox jumps over the lazy dog " * 5_000


@settings(max_examples=100, deadline=None, database=None)
@given(codec=st.sampled_from(Codec), data=st.binary(max_size=2000), times=st.sampled_from((1, 1, 200)))
def test_data_comes_back(codec: Codec, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times), PLENTY) == data * times


@pytest.mark.parametrize("codec", PACKING)
def test_repetitive_data_shrinks(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 10


def test_clients_read_what_we_compress() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert aiokafka_codec.snappy_decode(compress(Codec.SNAPPY, TEXT)) == TEXT
    assert bytes(cramjam.lz4.decompress(compress(Codec.LZ4, TEXT))) == TEXT
    assert bytes(cramjam.zstd.decompress(compress(Codec.ZSTD, TEXT))) == TEXT


def test_we_read_what_clients_compress() -> None:
    assert decompress(Codec.GZIP, gzip.compress(TEXT), PLENTY) == TEXT
    assert decompress(Codec.SNAPPY, aiokafka_codec.snappy_encode(TEXT), PLENTY) == TEXT
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT)), PLENTY) == TEXT
    assert decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT)), PLENTY) == TEXT


def test_raw_snappy_of_librdkafka_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), PLENTY) == TEXT


def test_snappy_is_written_in_the_framing_of_the_java_client() -> None:
    packed = compress(Codec.SNAPPY, b"abc")
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    assert packed[16:] == struct.pack(">i", 5) + b"\x03\x08abc"


def test_lz4_blocks_are_independent_because_java_reads_them_so() -> None:
    packed = compress(Codec.LZ4, TEXT)
    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0x20
    assert packed[-4:] == bytes(4)


def test_a_level_is_honoured_where_there_are_levels() -> None:
    assert len(compress(Codec.ZSTD, TEXT, 19)) <= len(compress(Codec.ZSTD, TEXT, 1))
    assert len(compress(Codec.GZIP, TEXT, 9)) <= len(compress(Codec.GZIP, TEXT, 1))


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKING)
def test_a_bomb_costs_no_more_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, bomb, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_claims_gigabytes_is_refused_unread() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError, match="claim to hold 4294967295"):
            decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(100), 1 << 40)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_zstd_frame_that_claims_gigabytes_is_not_believed() -> None:
    # A frame header with an eight-byte content size of 2⁶⁰, then one block of three bytes.
    frame = bytes.fromhex("28b52ffd e0") + (1 << 60).to_bytes(8, "little") + bytes.fromhex("190000") + b"abc"
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(Codec.ZSTD, frame, 1 << 40)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", PACKING)
def test_damaged_data_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for data in (packed[:-1], packed[: len(packed) // 2], packed[:10], b"\xff" * 50):
        with pytest.raises(CompressionError):
            decompress(codec, data, PLENTY)


@settings(max_examples=100, deadline=None, database=None)
@given(codec=st.sampled_from(PACKING), data=st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(codec: Codec, data: bytes) -> None:
    with suppress(CompressionError):
        assert len(decompress(codec, data, 10_000)) <= 10_000


def streamed_zstd(data: bytes) -> bytes:
    """As the Java client and librdkafka write it: without the size in the frame's header."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


FRAMINGS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    **{codec.name: (codec, partial(compress, codec)) for codec in PACKING if codec is not Codec.SNAPPY},
    "streamed zstd": (Codec.ZSTD, streamed_zstd),
    "lz4 in large blocks with checksums": (
        Codec.LZ4,
        partial(lz4.frame.compress, block_size=lz4.frame.BLOCKSIZE_MAX1MB, block_checksum=True, store_size=True),
    ),
    "lz4 of unknown size": (Codec.LZ4, partial(lz4.frame.compress, store_size=False)),
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("data", [TEXT, TEXT * 8, bytes(1_000_000), Random(1).randbytes(300_000), b"x", b""], ids=len)
def test_honest_data_is_unpacked_once_however_much_it_shrank(
    framing: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, pack = FRAMINGS[framing]
    unpack = compression._INTO[codec]
    attempts: list[int] = []

    def counted(packed: compression.Buffer, buffer: bytearray) -> int:
        attempts.append(len(buffer))
        return unpack(packed, buffer)

    monkeypatch.setitem(compression._INTO, codec, counted)
    assert decompress(codec, pack(data), PLENTY) == data
    assert len(attempts) == 1
    assert attempts[0] <= len(data) + 1024 * 1024


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_data_that_claims_too_little_is_unpacked_all_the_same(codec: Codec) -> None:
    """The first frame is asked, or the last of gzip, and there may be more of them."""
    for parts in ((b"little", TEXT * 20), (TEXT * 20, b"little")):
        assert decompress(codec, b"".join(compress(codec, part) for part in parts), PLENTY) == b"".join(parts)


def test_a_panic_of_the_codecs_is_damaged_data_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rust's panics come as an exception that `except Exception` does not catch."""
    panic = type(compression.PANIC, (BaseException,), {})

    def panics(*_: object) -> None:
        raise panic("index out of bounds")

    monkeypatch.setitem(compression._INTO, Codec.ZSTD, panics)
    with pytest.raises(CompressionError, match="index out of bounds"):
        decompress(Codec.ZSTD, b"anything", 100)
