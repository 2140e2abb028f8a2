"""Encodes answers to Fetch without the codec.

The codec would make an object of every partition and copy every byte. Here the framing is packed into buffers between
which stand slices of the log's files, to be sent as they are; with many partitions that is most of what a fetch costs.
The tests read every version of them with the codec.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from struct import Struct
from typing import NamedTuple

from penstock.broker.fetch.sessions import NO_SESSION, FetchItem
from penstock.broker.net.outbox import Part
from penstock.broker.net.slices import RUN, at_once
from penstock.log import Slice
from penstock.wire.errors import ErrorCode
from penstock.wire.records import write_unsigned_varint

NO_PREFERRED_REPLICA = -1

_pack_int = Struct(">i").pack
_pack_short = Struct(">h").pack
_pack_int_into = Struct(">i").pack_into
_pack_head = Struct(">ii").pack
_pack_session = Struct(">hi").pack
_pack_long = Struct(">q").pack
_pack_aborted = Struct(">qq").pack
_pack_partition_head = Struct(">ihqq").pack
_pack_partition_v4 = Struct(">ihqqi").pack
_pack_partition_v5 = Struct(">ihqqqi").pack
_pack_partition_v11 = Struct(">ihqqqii").pack
_pack_partition_v12 = Struct(">ihqqqbi").pack
_pack_divergence = Struct(">iqb").pack
_pack_leader = Struct(">iib").pack


class Read(NamedTuple):
    """The result of reading one partition."""

    item: FetchItem
    error: int
    high_watermark: int
    log_start: int
    slice: Slice | None
    last_stable: int | None = None
    """The last stable offset; None if no transaction is open, so that it equals the high watermark."""
    aborted: Sequence[tuple[int, int]] | None = None
    """Aborted transactions in the records (producer id, first offset); None for read_uncommitted."""
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    preferred: int = NO_PREFERRED_REPLICA
    """The replica that the consumer should read from."""


def release(reads: list[Read]) -> None:
    for read in reads:
        if read.slice is not None:
            read.slice.file.release()


def encode(
    version: int, correlation_id: int, session_id: int, reads: list[Read], throttle_ms: int = 0
) -> tuple[list[Part], int]:
    """The framed answer as bytes and file slices, and how many bytes of records it carries."""
    return at_once(encode_in_slices(version, correlation_id, session_id, reads, throttle_ms))


def encode_in_slices(
    version: int, correlation_id: int, session_id: int, reads: list[Read], throttle_ms: int = 0
) -> Generator[None, None, tuple[list[Part], int]]:
    """Like `encode`, with a `yield` after every run of partitions."""
    flexible = version >= 12
    out = bytearray(_pack_head(0, correlation_id))
    first = out
    if flexible:
        out.append(0)
    out += _pack_int(throttle_ms)
    if version >= 7:
        out += _pack_session(0, session_id)
    topics = by_topic(reads)
    _count(out, len(topics), flexible)
    parts: list[Part] = []
    record_bytes = 0
    framing_bytes = 0
    done = 0
    for topic, of_topic in topics:
        if version >= 13:
            out += topic
        elif flexible:
            write_unsigned_varint(out, len(topic) + 1)
            out += topic
        else:
            out += _pack_short(len(topic))
            out += topic
        _count(out, len(of_topic), flexible)
        for item, error, high_watermark, log_start, found, stable, aborted, diverging, leader, preferred in of_topic:
            done += 1
            if not done % RUN:
                yield
            if stable is None:
                stable = high_watermark
            if aborted is not None:
                _add_partition(out, version, (item.index, error, high_watermark, stable), log_start, preferred, aborted)
            elif flexible:
                out += _pack_partition_v12(item.index, error, high_watermark, stable, log_start, 0, preferred)
            elif version >= 11:
                out += _pack_partition_v11(item.index, error, high_watermark, stable, log_start, -1, preferred)
            elif version >= 5:
                out += _pack_partition_v5(item.index, error, high_watermark, stable, log_start, -1)
            else:
                out += _pack_partition_v4(item.index, error, high_watermark, stable, -1)
            size = 0 if found is None else found.size
            if flexible:
                write_unsigned_varint(out, size + 1)
            else:
                out += _pack_int(size)
            if found is not None:
                parts.append(out)
                parts.append(found)
                framing_bytes += len(out)
                record_bytes += size
                out = bytearray()
            if flexible:
                out += partition_tags(diverging, leader)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    if out:
        parts.append(out)
        framing_bytes += len(out)
    _pack_int_into(first, 0, framing_bytes + record_bytes - 4)
    return parts, record_bytes


def _add_partition(
    out: bytearray,
    version: int,
    head: tuple[int, int, int, int],
    log_start: int,
    preferred: int,
    aborted: Sequence[tuple[int, int]],
) -> None:
    """Encode the head of a partition for a read_committed reader."""
    flexible = version >= 12
    out += _pack_partition_head(*head)
    if version >= 5:
        out += _pack_long(log_start)
    _count(out, len(aborted), flexible)
    for transaction in aborted:
        out += _pack_aborted(*transaction)
        if flexible:
            out.append(0)
    if version >= 11:
        out += _pack_int(preferred)


def encode_error(version: int, correlation_id: int, error: ErrorCode, throttle_ms: int = 0) -> bytes:
    """The whole request is refused (an unknown session)."""
    out = bytearray(_pack_head(0, correlation_id))
    flexible = version >= 12
    if flexible:
        out.append(0)
    out += _pack_int(throttle_ms)
    if version >= 7:
        out += _pack_session(error, NO_SESSION)
    _count(out, 0, flexible)
    if flexible:
        out.append(0)
    _pack_int_into(out, 0, len(out) - 4)
    return bytes(out)


def by_topic(reads: list[Read]) -> list[tuple[bytes, list[Read]]]:
    """Group adjacent partitions of one topic, in the order of the request."""
    topics: list[tuple[bytes, list[Read]]] = []
    for read in reads:
        if topics and topics[-1][0] == read.item.topic:
            topics[-1][1].append(read)
        else:
            topics.append((read.item.topic, [read]))
    return topics


def partition_tags(diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> bytes:
    """Tag 0 is the diverging epoch, tag 1 the current leader."""
    if diverging is not None:
        return b"\x01\x00\x0d" + _pack_divergence(*diverging, 0)
    if leader is not None:
        return b"\x01\x01\x09" + _pack_leader(*leader, 0)
    return b"\0"


def _count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _pack_int(count)
