"""The Prometheus endpoint: `GET /metrics`, on the broker's own loop, with nothing else behind it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime import BufferedProtocol, Runtime, Timer, Transport

REQUEST_BYTES_MAX = 8 * 1024
IDLE_MS = 120_000
"""Longer than anyone waits between two scrapes."""


class MetricsConnection(BufferedProtocol):
    """One HTTP/1.1 connection. Whatever is not a short GET is answered with an error and closed."""

    def __init__(self, runtime: Runtime, render: Callable[[], str]) -> None:
        self._runtime = runtime
        self._render = render
        self._buffer = bytearray(REQUEST_BYTES_MAX)
        self._filled = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._idle: Timer = self._runtime.call_later(IDLE_MS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.cancel()

    def pause_writing(self) -> None:
        """It asks and does not read: no more is rendered until it does."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._idle.cancel()
        self._idle = self._runtime.call_later(IDLE_MS, self._transport.abort)
        end = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if end < 0:
            if self._filled == REQUEST_BYTES_MAX:
                self._answer("431 Request Header Fields Too Large", "the request header is too large\n", close=True)
            return
        words = bytes(self._buffer[:end]).split(b"\r\n", 1)[0].split(b" ")
        self._filled = 0
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            self._answer("405 Method Not Allowed", "only GET /metrics is served here\n", close=True)
        elif words[1].partition(b"?")[0] in (b"/metrics", b"/"):
            self._answer("200 OK", self._render(), head_only=words[0] == b"HEAD")
        else:
            self._answer("404 Not Found", "only /metrics is served here\n")

    def eof_received(self) -> bool:
        return False

    def _answer(self, status: str, text: str, *, close: bool = False, head_only: bool = False) -> None:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: {'close' if close else 'keep-alive'}\r\n\r\n"
        )
        self._transport.write(head.encode() + (b"" if head_only else body))
        if close:
            self._transport.close()
