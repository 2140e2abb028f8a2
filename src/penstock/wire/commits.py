"""A fast path for OffsetCommit as clients nearly always send it, without an object per partition.

Without metadata and tagged fields an entry has a fixed size. So a topic's entries are one slice of the request, which
is checked and unpacked as a whole, and the success response is built from the same bytes. Any other request is decoded
by `penstock.wire.codec`: `decode_commit` returns one or the other, and `PlainCommit.request` converts.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock.wire.codec import DEFAULT_LIMITS, Encoded, Limits, Message, decode
from penstock.wire.compression import Buffer
from penstock.wire.errors import WireError
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.records import read_unsigned_varint, write_unsigned_varint

PLAIN_FROM: Final = 8
"""The first flexible version."""
TOPIC_IDS_FROM: Final = 10
ID_BYTES: Final = 16
SHORT_MAX: Final = 127
"""Larger lengths take more than one byte."""

_ENTRY: Final = Struct(">iqiBB")  # partition, offset, leader epoch, length of the metadata, tagged fields
_METADATA_AT: Final = 16
_TAGS_AT: Final = 17
_RESULT_BYTES: Final = 7  # partition, error code, tagged fields
_read_int: Final = Struct(">i").unpack_from

PlainEntries = Iterator[tuple[int, int, int, int, int]]
"""(partition, offset, leader epoch, …)."""


class PlainTopic(NamedTuple):
    """The offsets of one topic."""

    topic: bytes
    """The name in UTF-8, or the topic id."""
    head: bytes
    """The name or id as on the wire, and the count after it."""
    entries: bytes

    def unpacked(self) -> PlainEntries:
        return _ENTRY.iter_unpack(self.entries)


class PlainCommit(Message):
    """A request in which every entry is plain."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    topics: list[PlainTopic]
    version: int
    body: bytes

    def request(self) -> OffsetCommitRequest:
        return decode(OffsetCommitRequest, self.version, self.body)[0]

    def succeeded(self) -> Encoded:
        """The response that reports success for every partition."""
        out = bytearray(4)  # not throttled
        write_unsigned_varint(out, len(self.topics) + 1)
        for _, head, entries in self.topics:
            results = bytearray(len(entries) // _ENTRY.size * _RESULT_BYTES)
            for place in range(4):
                results[place::_RESULT_BYTES] = entries[place :: _ENTRY.size]
            out += head
            out += results
            out.append(0)
        out.append(0)
        return Encoded(bytes(out))


def decode_commit(
    cls: type[OffsetCommitRequest], version: int, buffer: Buffer, position: int = 0, *, limits: Limits = DEFAULT_LIMITS
) -> tuple[PlainCommit | OffsetCommitRequest, int]:
    """The request as a `PlainCommit` if possible, else as decoded by the codec."""
    if version >= PLAIN_FROM:
        body = bytes(memoryview(buffer)[position:])
        plain = _plain(version, body, limits.max_elements)
        if plain is not None:
            return plain, position + len(body)
    return decode(cls, version, buffer, position, limits=limits)


def _plain(version: int, body: bytes, elements_max: int) -> PlainCommit | None:
    try:
        group_id, position = _short_string(body, 0)
        generation = _read_int(body, position)[0]
        member_id, position = _short_string(body, position + 4)
        instance_id = None
        if body[position]:
            instance_id, position = _short_string(body, position)
        else:
            position += 1
        topic_count, position = body[position] - 1, position + 1
        if not 0 <= topic_count < SHORT_MAX:
            return None
        topics = []
        for _ in range(topic_count):
            topic, position = _topic(version, body, position, elements_max)
            topics.append(topic)
            elements_max -= len(topic.entries) // _ENTRY.size
        if position + 1 != len(body) or body[position] or elements_max < topic_count:
            return None
    except (_NotPlainError, IndexError, StructError, UnicodeDecodeError, WireError):
        return None
    return PlainCommit(group_id, generation, member_id, instance_id, topics, version, body)


def _topic(version: int, body: bytes, position: int, elements_max: int) -> tuple[PlainTopic, int]:
    start = position
    if version >= TOPIC_IDS_FROM:
        position += ID_BYTES
        topic = body[start:position]
    else:
        size = body[position]
        if not 0 < size <= SHORT_MAX:
            raise _NotPlainError
        position += size
        topic = body[start + 1 : position]
        if not topic.isascii():
            topic.decode()  # a name that is not UTF-8 is left for the codec to refuse
    count, position = read_unsigned_varint(body, position)
    count -= 1
    end = position + count * _ENTRY.size
    if not 0 <= count <= elements_max or end >= len(body) or body[end]:
        raise _NotPlainError
    entries = body[position:end]
    metadata = entries[_METADATA_AT :: _ENTRY.size]
    if metadata.count(0) + metadata.count(1) != count or any(entries[_TAGS_AT :: _ENTRY.size]):
        raise _NotPlainError
    return PlainTopic(topic, body[start:position], entries), end + 1


def _short_string(body: bytes, position: int) -> tuple[str, int]:
    end = position + body[position]
    if not position < end <= position + SHORT_MAX or end > len(body):
        raise _NotPlainError
    return body[position + 1 : end].decode(), end


class _NotPlainError(Exception):
    """Not a plain request, or an invalid one: the codec decides."""
