"""A proxy before a broker that sees every request and every answer as a frame, and may keep it back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class FrameProxy:
    """Listens from the beginning, so that a broker may advertise it before it is itself ready."""

    def __init__(self, port: int, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", port))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def passes_request(self, frame: bytes, client: socket.socket) -> bool:
        """Whether this request is to reach the broker."""
        return True

    def passes_answer(self, frame: bytes) -> bool:
        """Whether this answer is to reach the client."""
        return True

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self._broker_port))
                except OSError:
                    _end(client)
                    continue
                threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
                threading.Thread(target=self._answers, args=(broker, client), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while frame := _frame(client):
                if self.passes_request(frame, client):
                    broker.sendall(framed(frame))
        _end(broker)

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while frame := _frame(broker):
                if self.passes_answer(frame):
                    client.sendall(framed(frame))
        _end(client)


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _frame(source: socket.socket) -> bytes:
    """Empty at the end of the stream."""
    head = _exactly(source, 4)
    return _exactly(source, int.from_bytes(head, "big")) if head else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return data


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
