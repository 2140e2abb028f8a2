"""Connections on the runtime seam.

A connection is in one of these phases, each of which has a time limit:

| phase | waits for | limit |
|---|---|---|
| new | the first byte | `request_ms` |
| idle | the next request | `idle_ms`; closed earlier if a new connection needs its place |
| reading | the rest of a request | `request_ms` from its first byte, then 408 |
| handling | the handler | the handler's own limit |
| writing | the peer to read | `write_ms` |
| leaving | the peer to close | `LINGER_MS` |

A connection that ends with an error goes through the last phase: closing it while bytes from the peer are unread would
reset it, and the peer might never see the error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from penstock.runtime import BufferedProtocol, Future, Listener, Task, Timer, Transport
from penstock.telemetry.http.messages import HttpError, HttpRequest, HttpResponse
from penstock.telemetry.http.reader import Head, RequestReader
from penstock.telemetry.http.routes import Handler, Routes

READ_BYTES = 16 * 1024
LINGER_MS = 1_000

T = TypeVar("T")


class HttpRuntime(Protocol):
    """The part of a `Runtime` that a server needs."""

    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Timer: ...
    def future(self) -> Future[Any]: ...
    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]: ...
    async def listen(self, host: str, port: int, factory: Callable[[], BufferedProtocol]) -> Listener: ...


@dataclass(slots=True, frozen=True, kw_only=True)
class Limits:
    """Limits per peer. All connections together hold at most `connections_max` heads, bodies and responses."""

    connections_max: int = 64
    head_bytes_max: int = 8 * 1024
    request_ms: int = 10_000
    """From the first to the last byte of a request."""
    idle_ms: int = 120_000
    """Longer than any usual scrape interval."""
    write_ms: int = 30_000
    """The time without the peer reading enough of its response."""
    drain_ms: int = 5_000
    """For requests in progress when the server closes."""


DEFAULT_LIMITS = Limits()


class HttpServer:
    """Serves `routes` on each address it listens on. `report` is called if a handler raises anything but HttpError."""

    def __init__(
        self,
        runtime: HttpRuntime,
        routes: Routes,
        report: Callable[[str, Exception], object],
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.runtime = runtime
        self.routes = routes
        self.report = report
        self.limits = limits
        self.is_closing = False
        self._listeners: list[Listener] = []
        self._connections: dict[HttpConnection, None] = {}
        self._idle: dict[HttpConnection, None] = {}
        """Idle connections, in the order in which they became idle."""
        self._emptied: Future[None] | None = None

    async def listen(self, host: str, port: int) -> None:
        """Accept connections at this address; port 0 uses any free port."""
        self._listeners.append(await self.runtime.listen(host, port, lambda: HttpConnection(self)))

    @property
    def port(self) -> int:
        """The port of the first address."""
        return self._listeners[0].port

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        """Stop accepting. Idle connections end now, the others after their response or after `drain_ms`."""
        self.is_closing = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self._idle):
            connection.end()
        if self._connections:
            self.runtime.call_later(self.limits.drain_ms, self.abort)

    async def stop(self) -> None:
        """Close, and wait until all connections have ended."""
        self.close()
        if self._connections:
            self._emptied = self.runtime.future()
            await self._emptied

    def abort(self) -> None:
        """End all remaining connections immediately."""
        for connection in list(self._connections):
            connection.abort()

    # ---- for connections

    def admit(self, connection: HttpConnection) -> bool:
        if self.is_closing:
            return False
        if len(self._connections) >= self.limits.connections_max:
            longest = next(iter(self._idle), None)
            if longest is None:
                return False
            longest.abort()
            self.forget(longest)
        self._connections[connection] = None
        return True

    def set_idle(self, connection: HttpConnection, is_idle: bool) -> None:
        self._idle.pop(connection, None)
        if is_idle:
            self._idle[connection] = None

    def forget(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)
        self._idle.pop(connection, None)
        if self._emptied is not None and not self._connections and not self._emptied.done():
            self._emptied.set_result(None)


class HttpConnection(BufferedProtocol):
    """One connection: it repeatedly reads a request, calls the handler and writes the response."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._runtime = server.runtime
        self._limits = server.limits
        self._reader = RequestReader(self._limits.head_bytes_max)
        self._buffer = bytearray(READ_BYTES)
        self._handler: Handler | None = None
        self._timer: Timer | None = None
        self._has_begun = False
        """Whether part of a request has arrived, so that its time limit is running."""
        self._is_handling = False
        self._is_queued = False
        """Whether another request has arrived and waits for the next turn of the loop."""
        self._is_blocked = False
        self._is_leaving = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if not self._server.admit(self):
            busy = HttpError(503, "too many connections; try again later", headers=(("Retry-After", "1"),))
            self._is_leaving = True
            transport.write(busy.response().encode(keep_alive=False))
            transport.close()
            return
        self._server.set_idle(self, True)
        self._set_timer(self._limits.request_ms, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_leaving = True
        self._set_timer(None)
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_leaving:
            return
        with memoryview(self._buffer) as received:
            self._reader.feed(received[:nbytes])
        self._advance()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """The peer does not read its responses: serve nothing more until it does."""
        self._is_blocked = True
        self._has_begun = False
        self._transport.pause_reading()
        self._set_timer(self._limits.write_ms, self.abort)

    def resume_writing(self) -> None:
        self._is_blocked = False
        if not self._is_leaving:
            self._set_timer(None)
            self._await_request()
            self._advance()

    def end(self) -> None:
        """Close after all written bytes are sent."""
        self._is_leaving = True
        self._transport.close()
        self._set_timer(self._limits.write_ms, self._transport.abort)

    def abort(self) -> None:
        self._is_leaving = True
        self._set_timer(None)
        self._transport.abort()

    # ---- requests

    def _advance(self) -> None:
        """Serve the next request if it has arrived and nothing prevents it."""
        if self._is_handling or self._is_queued or self._is_blocked or self._is_gone:
            return
        try:
            request = self._reader.take(self._accept)
        except HttpError as error:
            self._leave(error.response())
            return
        if request is None:
            self._transport.resume_reading()
            self._await_request()
            return
        assert self._handler is not None
        self._is_handling = True
        self._has_begun = False
        self._server.set_idle(self, False)
        self._set_timer(None)
        # Read nothing more until this request is answered: this limits the memory of a connection.
        self._transport.pause_reading()
        try:
            response = self._handler(request)
        except Exception as error:
            self._respond(request, self._failed(request, error))
            return
        if isinstance(response, HttpResponse):
            self._respond(request, response)
        else:
            self._runtime.spawn(self._respond_later(request, response), "http request")

    def _accept(self, head: Head) -> HttpRequest:
        """Find the handler. If there is none, a request without a body gets an error and the connection stays open; a
        request with a body ends the connection, so that the body need not be read."""
        request, body_bytes = head
        try:
            route, values = self._server.routes.find(request.method, request.path)
        except HttpError as error:
            if body_bytes:
                raise
            self._handler = partial(_refuse, error)
            return request
        if body_bytes > route.body_bytes_max:
            raise HttpError(413, f"the body must not be larger than {route.body_bytes_max} bytes")
        if body_bytes and request.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._handler = route.handler
        return replace(request, values=values) if values else request

    async def _respond_later(self, request: HttpRequest, response: Awaitable[HttpResponse]) -> None:
        try:
            served = await response
        except Exception as error:
            served = self._failed(request, error)
        if not self._is_gone:
            self._respond(request, served)

    def _failed(self, request: HttpRequest, error: Exception) -> HttpResponse:
        if isinstance(error, HttpError):
            return error.response()
        self._server.report(f"{request.method} {request.path}", error)
        return HttpError(500, "the request failed; the server's log says why").response()

    def _respond(self, request: HttpRequest, response: HttpResponse) -> None:
        self._is_handling = False
        keep_alive = request.keep_alive and not self._server.is_closing
        head_only = request.method == "HEAD"
        if not keep_alive and self._reader.is_empty:
            self._transport.write(response.encode(keep_alive=False, head_only=head_only))
            self.end()
        elif not keep_alive:
            self._leave(response, head_only=head_only)
        else:
            self._transport.write(response.encode(keep_alive=True, head_only=head_only))
            if self._reader.is_empty:
                self._advance()
            else:
                self._is_queued = True
                self._runtime.call_later(0, self._next_turn)

    @property
    def _is_gone(self) -> bool:
        """Whether the peer is gone. A broken transport shows it before `connection_lost` is called."""
        return self._is_leaving or self._transport.is_closing()

    def _next_turn(self) -> None:
        self._is_queued = False
        self._advance()

    def _await_request(self) -> None:
        """Limit the time until the next request; a request that has begun keeps its limit."""
        if self._is_handling:
            return
        if self._reader.is_empty:
            self._server.set_idle(self, True)
            self._set_timer(self._limits.idle_ms, self.end)
        elif not self._has_begun:
            self._has_begun = True
            self._server.set_idle(self, False)
            self._set_timer(self._limits.request_ms, self._too_slow)

    def _too_slow(self) -> None:
        if not self._is_gone:
            self._leave(HttpError(408, f"the request took longer than {self._limits.request_ms} ms").response())

    def _leave(self, response: HttpResponse, *, head_only: bool = False) -> None:
        """Respond and end the connection. Further bytes from the peer are dropped until it had time to read the
        response."""
        self._is_leaving = True
        self._server.set_idle(self, False)
        self._transport.resume_reading()
        self._transport.write(response.encode(keep_alive=False, head_only=head_only))
        self._set_timer(LINGER_MS, self.end)

    def _set_timer(self, delay_ms: int | None, callback: Callable[[], object] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay_ms is not None:
            assert callback is not None
            self._timer = self._runtime.call_later(delay_ms, callback)


def _refuse(error: HttpError, request: HttpRequest) -> HttpResponse:
    raise error
