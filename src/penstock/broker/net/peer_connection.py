"""One connection to another node: sends frames with a correlation id, and matches answers to requests by it.

Small answers are copied out of one buffer; a large one, which is nearly always records, is received directly into its
own buffer and never copied. A buffer grows with the bytes received, not with the length that the peer declared.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from penstock.runtime import BufferedProtocol, Future, Transport
from penstock.wire.apis import FRAME_BYTES_MAX

ANSWER_BYTES_MAX = 4 * FRAME_BYTES_MAX
"""An answer holds at most one batch more than was asked for; what is longer is not an answer of this protocol."""
BUFFER_BYTES = 64 * 1024
GROW_BYTES = 1024 * 1024

_SIZE = Struct(">i")


class PeerUnavailable(Exception):
    """The peer did not answer: it could not be reached, the connection broke, or time was up.

    `refused`: its host refused the connection, so the process is not running. `closed`: it, or its host, closed the
    connection. `sent`: the request may have reached it, and may have been carried out.
    """

    def __init__(self, reason: str, *, refused: bool = False, sent: bool = False, closed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused
        self.sent = sent
        self.closed = closed


class PeerConnection(BufferedProtocol):
    def __init__(self, name: str, on_lost: Callable[[PeerConnection], None]) -> None:
        self._name = name
        self._on_lost = on_lost
        self.pending: dict[int, Future[bytes | bytearray]] = {}
        self._transport: Transport | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_filled = 0
        self.lost = False
        self.received_bytes = 0
        """Bytes received so far, to detect whether the peer still sends."""

    async def request(self, number: int, frame: bytearray, answer: Future[bytes | bytearray]) -> bytes | bytearray:
        """Send a frame, and wait for the answer that carries its number."""
        if self.lost or self._transport is None:
            raise PeerUnavailable(f"{self._name} closed the connection")
        self.pending[number] = answer
        self._transport.write(frame)
        try:
            return await answer
        finally:
            self.pending.pop(number, None)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ---- the transport's side

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def secured(self, subject: str) -> None:
        """The TLS handshake is done; the name in the certificate was checked by it."""

    def handshake_failed(self, reason: str) -> None:
        """`Runtime.connect` raises ConnectionError with the reason."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._on_lost(self)
        said = f": {exc}" if exc is not None else ""
        for answer in list(self.pending.values()):
            if not answer.done():
                answer.set_exception(
                    PeerUnavailable(f"{self._name} closed the connection{said}", sent=True, closed=True)
                )

    def _frame(self, frame: bytes | bytearray) -> None:
        answer = self.pending.get(int.from_bytes(frame[:4], "big"))
        if answer is not None and not answer.done():
            answer.set_result(frame)

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        large = self._large
        if large is None:
            return self._view[self._filled :]
        if self._large_filled == len(large):
            # It grows with what has come, not with what was announced.
            large += bytes(min(self._large_size, 4 * len(large)) - len(large))
        return memoryview(large)[self._large_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes
        if self._large is not None:
            self._large_filled += nbytes
            if self._large_filled == self._large_size:
                frame, self._large = self._large, None
                self._frame(frame)
            return
        self._filled += nbytes
        position = 0
        while self._filled - position >= 4 and self._large is None:
            (size,) = _SIZE.unpack_from(self._buffer, position)
            if not 4 <= size <= ANSWER_BYTES_MAX:
                self.abort()
                return
            start = position + 4
            if start + size <= self._filled:
                self._frame(bytes(self._view[start : start + size]))
                position = start + size
            elif size > BUFFER_BYTES - 4:
                self._begin_large(size, start)
                return
            else:
                break
        if position:
            left = self._filled - position
            self._buffer[:left] = bytes(self._view[position : self._filled])
            self._filled = left

    def _begin_large(self, size: int, start: int) -> None:
        have = self._filled - start
        self._large = bytearray(min(size, max(GROW_BYTES, have)))
        self._large[:have] = self._view[start : self._filled]
        self._large_size = size
        self._large_filled = have
        self._filled = 0
