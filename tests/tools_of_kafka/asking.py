"""One request to one broker over a socket of its own: what no tool sends, or not in that version."""

from __future__ import annotations

import socket
from struct import pack, unpack

from penstock.sim.broker import read_answer, request_frame
from penstock.wire.codec import Message
from support.server_process import ServerProcess

TIMEOUT_S = 30
CORRELATION_ID = 7


def ask(server: ServerProcess, request: Message, version: int) -> Message:
    """The answer; ConnectionError if the broker closes the connection instead."""
    host, _, port = server.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        frame = request_frame(request, version, CORRELATION_ID)
        connection.sendall(pack(">i", len(frame)) + frame)
        (size,) = unpack(">i", _exactly(connection, 4))
        return read_answer(_exactly(connection, size), request, version, CORRELATION_ID)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data
