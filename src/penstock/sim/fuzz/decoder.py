"""Decodes record batches without the broker's code, as strictly as independent clients do.

It is slow and small on purpose: every client can read what it accepts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import cramjam
from crc32c import crc32c

__all__ = ["Unreadable", "read_values"]

HEADER = struct.Struct(">qiibIhiqqqhii")
CHECKED_FROM = 21
DECOMPRESS: dict[int, Callable[[bytes], bytes | cramjam.Buffer]] = {
    1: cramjam.gzip.decompress,
    2: lambda data: _xerial(data) if data.startswith(b"\x82SNAPPY\x00") else cramjam.snappy.decompress_raw(data),
    3: cramjam.lz4.decompress,
    4: cramjam.zstd.decompress,
}


class Unreadable(Exception):
    """A client could not read past this point."""


class Value(NamedTuple):
    offset: int
    value: bytes | None


def read_values(data: bytes) -> Iterator[Value]:
    """Offset and value of every record; skips control batches. Raises `Unreadable`."""
    position = 0
    while position < len(data):
        if len(data) - position < HEADER.size:
            raise Unreadable("a batch ends inside its header")
        (base, length, _, magic, crc, attributes, last_delta, *_, count) = HEADER.unpack_from(data, position)
        end = position + 12 + length
        if magic != 2 or length < HEADER.size - 12 or end > len(data):
            raise Unreadable(f"no batch at {base}: magic {magic}, {length} bytes")
        if crc32c(data[position + CHECKED_FROM : end]) != crc:
            raise Unreadable(f"the checksum of the batch at {base} is wrong")
        if not attributes & 0x20:
            yield from _records(_unfold(data[position + HEADER.size : end], attributes & 7), base, last_delta, count)
        position = end


def _unfold(data: bytes, codec: int) -> bytes:
    if codec == 0:
        return data
    if codec not in DECOMPRESS:
        raise Unreadable(f"codec {codec} does not exist")
    try:
        return bytes(DECOMPRESS[codec](data))
    except Exception as error:
        raise Unreadable(f"records that do not decompress: {error}") from error


def _xerial(data: bytes) -> bytes:
    out, position = bytearray(), 16
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        out += bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))
        position += 4 + size
    return bytes(out)


def _records(data: bytes, base: int, last_delta: int, count: int) -> Iterator[Value]:
    position, newest = 0, -1
    try:
        for _ in range(count):
            size, position = _varint(data, position)
            end = position + size
            if size < 0 or end > len(data):
                raise Unreadable(f"a record at {base} ends beyond its batch")
            position += 1
            _, position = _varint(data, position)
            delta, position = _varint(data, position)
            _, position = _bytes(data, position, end)
            value, position = _bytes(data, position, end)
            headers, position = _varint(data, position)
            if headers < 0:
                raise Unreadable("a negative number of headers")
            for _ in range(headers):
                key, position = _bytes(data, position, end)
                _, position = _bytes(data, position, end)
                if key is None:
                    raise Unreadable("a header without a key")
            if position != end or not newest < delta <= last_delta:
                raise Unreadable(f"a record at {base} with {end - position} bytes left over, or with delta {delta}")
            newest = delta
            yield Value(base + delta, value)
    except IndexError:
        raise Unreadable(f"the batch at {base} ends within a record") from None
    if position != len(data) or count < 0:
        raise Unreadable(f"the batch at {base} says {count} records and has {len(data) - position} bytes more")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise Unreadable("a varint does not end")


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < 0:
        return None, position
    if position + size > end:
        raise Unreadable("a field ends beyond its record")
    return data[position : position + size], position + size
