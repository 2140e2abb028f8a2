"""A peer that exchanges frames: four bytes of length, then that many bytes. It works on every runtime."""

from __future__ import annotations

from asyncio import BaseTransport, BufferedProtocol, Future
from collections import deque
from typing import Any, cast

from penstock.runtime import Buffer, Runtime, Tls, Transport

__all__ = ["FrameClient"]

BUFFER_BYTES = 65536
LENGTH_BYTES = 4


class FrameClient(BufferedProtocol):
    """Raw frames in, raw frames out; responses arrive in the order of the requests."""

    def __init__(self, runtime: Runtime) -> None:
        self.transport: Transport | None = None
        self.is_lost = False
        self.lost_error: Exception | None = None
        self.received = 0
        """Frames received and not yet taken."""
        self._runtime = runtime
        self._buffer = bytearray(BUFFER_BYTES)
        self._stream = bytearray()
        self._frames: deque[bytes] = deque()
        self._waiters: deque[Future[bytes]] = deque()
        self._lost_waiters: list[Future[None]] = []

    @classmethod
    async def connect(cls, runtime: Runtime, host: str, port: int, tls: Tls | None = None) -> FrameClient:
        return await runtime.connect(host, port, lambda: cls(runtime), tls)

    def secured(self, subject: str) -> None:
        """The TLS handshake is done."""

    def handshake_failed(self, reason: str) -> None:
        """`connect` raises ConnectionError."""

    async def request(self, frame: Buffer) -> bytes:
        """Sends one frame and waits for the next response. Several may be in flight at once."""
        self.send(frame)
        return await self.receive()

    def send(self, frame: Buffer) -> None:
        self.send_raw(len(frame).to_bytes(LENGTH_BYTES, "big") + bytes(frame))

    def send_raw(self, data: Buffer) -> None:
        """Sends bytes unchanged, for data that is not a frame."""
        if self.is_lost or self.transport is None:
            raise self._lost()
        self.transport.write(bytes(data))

    def receive(self) -> Future[bytes]:
        """The next frame not yet awaited; raises ConnectionError if the connection ends before it is complete."""
        future: Future[bytes] = self._runtime.future()
        if self._frames:
            future.set_result(self._frames.popleft())
        elif self.is_lost:
            future.set_exception(self._lost())
        else:
            self._waiters.append(future)
        return future

    def closed(self) -> Future[None]:
        """A future that is done when the connection has ended."""
        future: Future[None] = self._runtime.future()
        if self.is_lost:
            future.set_result(None)
        else:
            self._lost_waiters.append(future)
        return future

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # --- the protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self.transport = cast(Transport, transport)

    def get_buffer(self, sizehint: int) -> Any:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        stream = self._stream
        stream += memoryview(self._buffer)[:nbytes]
        position = 0
        while len(stream) - position >= LENGTH_BYTES:
            start = position + LENGTH_BYTES
            end = start + int.from_bytes(stream[position:start], "big")
            if end > len(stream):
                break
            self._frame(bytes(stream[start:end]))
            position = end
        del stream[:position]

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.lost_error = exc
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(self._lost())
        for lost_waiter in self._lost_waiters:
            if not lost_waiter.done():
                lost_waiter.set_result(None)
        self._lost_waiters.clear()

    def _frame(self, frame: bytes) -> None:
        self.received += 1
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(frame)
                return
        self._frames.append(frame)

    def _lost(self) -> ConnectionError:
        if isinstance(self.lost_error, ConnectionError):
            return self.lost_error
        return ConnectionResetError(f"the connection has ended ({self.lost_error!r})")
