"""Record batches with a correct checksum and invalid contents, and batches that decompress to a huge size."""

from __future__ import annotations

import struct
from functools import cache
from random import Random

from penstock.wire.compression import Codec, compress
from penstock.wire.records import HEADER_SIZE, Record, build_batch, seal, varint

__all__ = ["any_body", "bombs", "poison", "whole"]

TIMESTAMP_MS = 1_750_001_000_000
BOMB_BYTES = 64 << 20
BOMBS_MAX = 16
LENGTH_POSITION, ATTRIBUTES_POSITION = 8, 21
LAST_DELTA_POSITION, MAX_TIMESTAMP_POSITION, COUNT_POSITION = 23, 35, 57
BAD_VARINTS = (b"\xff" * 10, b"\xff\xff\xff\xff\x7f", b"\x80" * 5 + b"\x01", b"\xfe\xff\xff\xff\x0f", b"\x01", b"\x80")


def any_body(rng: Random) -> bytes:
    """The records of one partition of a Produce request: valid, truncated, or invalid."""
    draw = rng.random()
    if draw < 0.25:
        return whole(rng)
    if draw < 0.3:
        return b""
    if draw < 0.4:
        good = whole(rng)
        return good[: rng.randrange(len(good))]
    if draw < 0.45:
        return whole(rng) + whole(rng)
    return poison(rng)


def whole(rng: Random) -> bytes:
    """A batch that any broker would accept."""
    codec = rng.choice((Codec.NONE, Codec.NONE, *Codec))
    if rng.random() < 0.8:
        return build_batch(_records(rng), codec=codec)
    producer_id, sequence = rng.choice((3, 1000)), rng.choice((0, 1))
    return build_batch(_records(rng), codec=codec, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def poison(rng: Random) -> bytes:
    """A batch that claims to have records, has the right checksum, and cannot be decoded."""
    kind = rng.choice((garbage, false_count, bad_varint, broken_codec, wrong_deltas, wrong_header))
    batch = bytearray(kind(rng))
    struct.pack_into(">i", batch, LENGTH_POSITION, len(batch) - 12)
    seal(batch)
    return bytes(batch)


def garbage(rng: Random) -> bytes:
    return whole(rng)[:HEADER_SIZE] + rng.randbytes(rng.choice((0, 1, 7, 100)))


def false_count(rng: Random) -> bytes:
    batch = bytearray(whole(rng))
    count = rng.choice((0, -1, 1, 2, 1_000, 1 << 20, (1 << 31) - 1, -(1 << 31)))
    struct.pack_into(">i", batch, COUNT_POSITION, count)
    if rng.random() < 0.5:
        struct.pack_into(">i", batch, LAST_DELTA_POSITION, max(-1, min(count - 1, (1 << 31) - 1)))
    return bytes(batch)


def bad_varint(rng: Random) -> bytes:
    """A bad varint to replace any byte of the records: of a length, a delta, a key's or a header's size."""
    batch = build_batch(_records(rng))
    place = rng.randrange(HEADER_SIZE, len(batch))
    bad = rng.choice((*BAD_VARINTS, varint(rng.choice((-1, -2, 1 << 20, -(1 << 31))))))
    return batch[:place] + bad + batch[place + rng.randrange(2) :]


def broken_codec(rng: Random) -> bytes:
    """Data that does not decompress, or not to records, under any codec or one that does not exist."""
    batch = bytearray(whole(rng)[:HEADER_SIZE])
    codec = rng.choice((1, 2, 3, 4, 5, 6, 7))
    batch[ATTRIBUTES_POSITION + 1] = codec
    real = Codec(codec) if codec <= max(Codec) else Codec.GZIP
    packed = bytearray(compress(real, rng.choice((b"", rng.randbytes(50), bytes(200)))))
    if rng.random() < 0.6 and packed:
        packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
    return bytes(batch) + (bytes(packed) if rng.random() < 0.7 else rng.randbytes(30))


def wrong_deltas(rng: Random) -> bytes:
    """Offsets that are not consecutive, or not those that the header states."""
    offsets = sorted(rng.sample(range(10), 3))
    records = [Record(timestamp=TIMESTAMP_MS, value=b"x", offset=offset) for offset in offsets]
    batch = bytearray(build_batch(records, keep_offsets=True, last_offset_delta=10))
    struct.pack_into(">i", batch, LAST_DELTA_POSITION, rng.choice((-1, 0, 1, 2, 9, (1 << 31) - 1)))
    return bytes(batch)


def wrong_header(rng: Random) -> bytes:
    """Attributes and timestamps that contradict the records."""
    batch = bytearray(whole(rng))
    if rng.random() < 0.5:
        struct.pack_into(">q", batch, MAX_TIMESTAMP_POSITION, rng.choice((-1, 0, 1 << 60, -(1 << 63), (1 << 63) - 1)))
    else:
        struct.pack_into(">h", batch, ATTRIBUTES_POSITION, rng.choice((0x10, 0x20, 0x30, 0x40, 0x80, 0x7FFF, -1)))
    return bytes(batch)


@cache
def _bomb(codec: Codec) -> bytes:
    return build_batch([Record(timestamp=TIMESTAMP_MS, value=bytes(BOMB_BYTES))], codec=codec)


def bombs(rng: Random) -> list[bytes]:
    """Several batches of a few kilobytes that decompress to many megabytes each, for one request."""
    return [_bomb(rng.choice((Codec.GZIP, Codec.ZSTD))) for _ in range(rng.randint(BOMBS_MAX // 2, BOMBS_MAX))]


def _records(rng: Random) -> list[Record]:
    return [
        Record(
            timestamp=TIMESTAMP_MS + rng.randrange(5),
            key=rng.choice((None, b"", b"k")),
            value=rng.choice((None, b"", b"value", rng.randbytes(20))),
            headers=rng.choice(((), (), (("h", b"v"), ("n", None)))),
        )
        for _ in range(rng.choice((1, 1, 2, 5)))
    ]
