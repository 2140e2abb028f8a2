"""The few requests that raw sockets send, by hand: no client library leaves an answer unread, or costs so little."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

_HEADER = Struct(">ihhi")
_LENGTH = Struct(">i")
_CLIENT_ID = b"\x00\x05bench"

_PRODUCE = 0
_PRODUCE_VERSION = 7
_FETCH = 1
_FETCH_VERSION = 11
_API_VERSIONS = 18
_CONNECT_TIMEOUT_S = 30


def connect(bootstrap: str, *, receive_buffer_bytes: int | None = None) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    connection = socket.socket()
    if receive_buffer_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    connection.settimeout(_CONNECT_TIMEOUT_S)
    connection.connect((host, int(port)))
    return connection


def api_versions() -> bytes:
    """An ApiVersions request (version 0)."""
    return _frame(_API_VERSIONS, 0, b"")


def say_api_versions(connection: socket.socket) -> None:
    """Asks for ApiVersions and reads the whole answer, as every client does first."""
    ask(connection, api_versions())


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Sends one request and reads its whole answer."""
    connection.sendall(request)
    length = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))[0]
    return _receive_exactly(connection, length)


def ask_fetch(connection: socket.socket, topic: str, *, max_bytes: int) -> None:
    """Asks for everything of partition 0 from its beginning, up to `max_bytes`; reads nothing."""
    connection.sendall(fetch_request(topic, max_bytes=max_bytes))


def fetch_request(topic: str, *, max_bytes: int) -> bytes:
    """A Fetch request for partition 0 from its beginning."""
    replica, wait_ms, min_bytes, isolation, session, session_epoch = -1, 500, 1, 0, 0, -1
    name = topic.encode()
    body = (
        Struct(">iiiibii").pack(replica, wait_ms, min_bytes, max_bytes, isolation, session, session_epoch)
        + Struct(">ih").pack(1, len(name)) + name
        + Struct(">iiiqqi").pack(1, 0, -1, 0, -1, max_bytes)
        + Struct(">ih").pack(0, 0)
    )  # fmt: skip
    return _frame(_FETCH, _FETCH_VERSION, body)


@dataclass(frozen=True, slots=True)
class ProduceFrame:
    """A whole Produce request of one batch, and what its answer looks like: always of one size."""

    request: bytes
    response_bytes: int
    error_code_at: int


def produce_frame(topic: str, partition: int, value: bytes) -> ProduceFrame:
    """acks=all, not idempotent: the same bytes can be sent again and again."""
    return produce_batch_frame(topic, partition, _batch_of_one(value))


def produce_batch_frame(topic: str, partition: int, batch: bytes) -> ProduceFrame:
    """As `produce_frame`, of a whole batch."""
    name = topic.encode()
    body = (
        Struct(">hhi").pack(-1, -1, 30_000)
        + Struct(">ih").pack(1, len(name)) + name
        + Struct(">iii").pack(1, partition, len(batch)) + batch
    )  # fmt: skip
    before_partition = Struct(">iiih").size + len(name) + Struct(">i").size
    return ProduceFrame(
        request=_frame(_PRODUCE, _PRODUCE_VERSION, body),
        response_bytes=before_partition + Struct(">ihqqq").size + Struct(">i").size,
        error_code_at=before_partition + Struct(">i").size,
    )


def _batch_of_one(value: bytes) -> bytes:
    """A record batch of version 2 with one record: no key, no headers, no compression, no producer id."""
    rest_of_record = b"\x00" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    record = _varint(len(rest_of_record)) + rest_of_record
    now_ms = time.time_ns() // 1_000_000
    after_crc = Struct(">hiqqqhii").pack(0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    after_length = Struct(">ibI").pack(-1, 2, crc32c(after_crc)) + after_crc
    return Struct(">qi").pack(0, len(after_length)) + after_length


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    rest = _CLIENT_ID + body
    return _HEADER.pack(_HEADER.size - _LENGTH.size + len(rest), api_key, version, 1) + rest


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection before its answer was complete")
        parts += part
    return bytes(parts)
