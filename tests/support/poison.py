"""Batches with a valid checksum that no consumer could read, or not all of it."""

from __future__ import annotations

from random import Random
from struct import pack_into

from penstock.wire.compression import Codec, compress
from penstock.wire.records import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    MAX_TIMESTAMP_POSITION,
    Record,
    build_batch,
    seal,
    varint,
)

COUNT_POSITION = 57
NULL = varint(-1)
SOME = 3
"""Records in the valid form of each batch."""


def plain_payload(timestamp: int, count: int = SOME) -> bytes:
    return build_batch([Record(timestamp=timestamp, key=b"k", value=b"value") for _ in range(count)])[HEADER_SIZE:]


def forged(
    payload: bytes, timestamp: int, *, count: int = SOME, codec: Codec = Codec.NONE, max_timestamp: int | None = None
) -> bytes:
    """A batch whose header says `count` and `codec`, whatever its payload is, with the checksum that belongs to it."""
    batch = bytearray(build_batch([Record(timestamp=timestamp)])[:HEADER_SIZE] + payload)
    pack_into(">i", batch, LENGTH_POSITION, len(batch) - LENGTH_OVERHEAD)
    pack_into(">h", batch, ATTRIBUTES_POSITION, codec)
    pack_into(">i", batch, LAST_OFFSET_DELTA_POSITION, count - 1)
    pack_into(">q", batch, MAX_TIMESTAMP_POSITION, timestamp if max_timestamp is None else max_timestamp)
    pack_into(">i", batch, COUNT_POSITION, count)
    seal(batch)
    return bytes(batch)


def record(fields: bytes, *, length: int | None = None) -> bytes:
    """One record of these fields, attributes first."""
    return varint(len(fields) if length is None else length) + fields


def fields(
    *, offset: bytes = b"\0", key: bytes = NULL, value: bytes = varint(1) + b"v", headers: bytes = b"\0"
) -> bytes:
    return b"\0\0" + offset + key + value + headers


def poison(timestamp: int) -> dict[str, bytes]:
    """Each kind by name; `timestamp` is one that a broker takes."""

    def one(payload: bytes, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
        return forged(payload, timestamp, count=count, codec=codec)

    plain = plain_payload(timestamp)
    garbage = Random(1).randbytes(300)
    kinds = {
        "garbage": one(garbage, 5),
        "a length of too many bytes": one(b"\xff" * 12, 1),
        "a negative length": one(record(fields(), length=-7), 1),
        "a length beyond the batch": one(record(fields(), length=900), 1),
        "a key beyond its record": one(record(fields(key=varint(90) + b"k")), 1),
        "a value beyond its record": one(record(fields(value=varint(90) + b"v")), 1),
        "a header without a name": one(record(fields(headers=varint(1) + NULL + NULL)), 1),
        "more headers than there is room for": one(record(fields(headers=varint(90))), 1),
        "a negative number of headers": one(record(fields(headers=varint(-2))), 1),
        "fields that end before their record": one(record(fields() + b"more"), 1),
        "fields that end with a null value": one(record(fields(value=NULL, headers=b"")), 1),
        "more records than there are": one(plain, SOME + 2),
        "fewer records than there are": one(plain, SOME - 1),
    }
    for codec in Codec:
        if codec is not Codec.NONE:
            name = codec.name.lower()
            kinds[f"{name} of garbage"] = one(compress(codec, garbage), 5, codec)
            kinds[f"{name}, more records than there are"] = one(compress(codec, plain), SOME + 2, codec)
            kinds[f"{name}, fewer records than there are"] = one(compress(codec, plain), SOME - 1, codec)
            kinds[f"no {name} at all"] = one(garbage, 5, codec)
            kinds[f"{name} that is cut off"] = one(compress(codec, plain_payload(timestamp, 200))[:-40], 200, codec)
    return kinds
