"""Requests from this node to other nodes: connections, correlation ids, versions, time-outs, back-off.

    response = await peers.call((host, port), FetchRequest(…), timeout_ms=30_000, channel="fetch-2")
    response = await peers.call(2, OffsetForLeaderEpochRequest(…), timeout_ms=30_000)   # broker 2, where it listens
    response = await peers.controller_call(AlterPartitionRequest(…), timeout_ms=30_000) # whoever is active controller

A *channel* is one connection to one address. A node answers the requests of a connection in order and one after the
other, so what may wait for long (a fetch that is parked) has a channel of its own, under a name of its own.

A connection is opened by the first request that needs it, asks which versions the peer speaks (so that nodes of two
releases work together), and stays. Whatever goes wrong with it ends every request on it with `PeerUnavailable`; whether
to ask again is for the caller to decide. A request that is not answered in time ends its connection too: the
answers to all requests behind it would wait for the one that is missing.

`controller_call` is the exception: it goes on until a node answers that says it is the active controller, or time is
up. On the node that is active itself it needs no connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, NamedTuple

from penstock.runtime import BufferedProtocol, Future, Runtime, Transport
from penstock.runtime.eventlog import EventLog
from penstock.wire.apis import FRAME_BYTES_MAX, ServedApi, api_named
from penstock.wire.codec import Limits, Message, decode, encode
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.headers import read_response_header, write_request_header
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CONNECT_TIMEOUT_MS = 3_000
BACKOFF_FIRST_MS = 20
BACKOFF_MAX_MS = 500
CONTROLLER_RETRY_MS = 50
"""How long a request that found no active controller waits before it looks again; a new one wakes it earlier."""
PENDING_MAX = 10_000
"""Requests without an answer on one channel."""
ANSWER_BYTES_MAX = 4 * FRAME_BYTES_MAX
"""An answer holds at most one batch more than was asked for; what is longer is not an answer of this protocol."""
BUFFER_BYTES = 64 * 1024
GROW_BYTES = 1024 * 1024
ANSWER_LIMITS = Limits(max_elements=10_000_000)
API_VERSIONS_VERSION = 3

_SIZE = Struct(">i")

Address = tuple[str, int]


class PeerUnavailable(Exception):
    """The peer did not answer: it could not be reached, the connection broke, or time was up.

    `refused`: its host answered that nobody listens there, so the process is gone. `closed`: it, or its host, ended the
    connection. `sent`: the request may have reached it, and may have been carried out.
    """

    def __init__(self, reason: str, *, refused: bool = False, sent: bool = False, closed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused
        self.sent = sent
        self.closed = closed


class Reply(NamedTuple):
    """An answer as it came: the whole frame behind its length, and where the response begins in it."""

    version: int
    frame: bytes | bytearray
    position: int


class ControllerLocation(NamedTuple):
    """Who is the active controller, as this node knows it."""

    node_id: int
    address: Address


class Peers:
    """All outgoing connections of a node."""

    def __init__(self, runtime: Runtime, events: EventLog, node_id: int) -> None:
        self._runtime = runtime
        self._events = events
        self._node_id = node_id
        self._channels: dict[tuple[str, int, str], _Channel] = {}
        self._closed = False
        self._waiting_for_controller: list[Future[None]] = []
        self._controller_calls: dict[int, _Call] = {}
        self._controller_call_ids = 0
        self.broker_address: Callable[[int], Address | None] = lambda node_id: None
        """Where broker `node_id` listens for other brokers; None if it is not known. Set by the server."""
        self.controller_location: Callable[[], ControllerLocation | None] = lambda: None
        """Set by the server."""
        self.local_controller: Callable[[Message, int], Awaitable[Message]] | None = None
        """(request, version): what the controller of this very node answers. Set by nodes that have one."""

    # ---- requests

    async def call(
        self,
        target: int | Address,
        request: Message,
        *,
        timeout_ms: float,
        version: int | None = None,
        channel: str = "",
    ) -> Any:
        """The answer of a broker (by its id) or of whoever listens at an address.

        `version` is the newest the caller wants; the peer may speak only an older one. Record data in the answer is
        not copied: it lives as long as the answer does.
        """
        api = api_named(type(request).__name__.removesuffix("Request"))
        reply = await self.exchange(target, request, timeout_ms=timeout_ms, version=version, channel=channel)
        return _decoded(api, reply)

    async def exchange(
        self,
        target: int | Address,
        request: Message,
        *,
        timeout_ms: float,
        version: int | None = None,
        channel: str = "",
    ) -> Reply:
        """The same, for callers that read the answer's bytes themselves."""
        address = self.broker_address(target) if isinstance(target, int) else target
        if address is None:
            raise PeerUnavailable(f"node {target} is not known, or not registered with an address")
        return await self._channel(address, channel).exchange(_Call(self._runtime), request, version, timeout_ms)

    async def controller_call(
        self, request: Message, *, timeout_ms: float, version: int | None = None, channel: str = "controller"
    ) -> Any:
        """The answer of the active controller, whoever that is and becomes meanwhile.

        KafkaError(NOT_CONTROLLER) when time is up without one. A request may reach the controller twice, if the
        connection broke before its answer came.
        """
        runtime = self._runtime
        deadline_ms = runtime.now_ms() + timeout_ms
        api = api_named(type(request).__name__.removesuffix("Request"))
        reason = "no active controller is known"
        while (left_ms := deadline_ms - runtime.now_ms()) > 0 and not self._closed:
            location = self.controller_location()
            response: Message | None = None
            if location is not None and location.node_id == self._node_id:
                assert self.local_controller is not None, "only a controller can be the active one"
                response = await self.local_controller(request, min(version or api.max_version, api.max_version))
                reason = "this node is about to become the active controller"
            elif location is not None:
                try:
                    response = await self._ask_controller(location.address, api, request, version, left_ms, channel)
                    reason = f"node {location.node_id} is not the active controller"
                except PeerUnavailable as error:
                    reason = f"node {location.node_id}: {error.reason}"
            if response is not None and getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                return response
            await self._controller_change(min(CONTROLLER_RETRY_MS, max(1.0, deadline_ms - runtime.now_ms())))
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"{api.name} found no active controller: {reason}")

    async def _ask_controller(
        self, address: Address, api: ServedApi, request: Message, version: int | None, timeout_ms: float, channel: str
    ) -> Message:
        call = _Call(self._runtime)
        self._controller_call_ids += 1
        number = self._controller_call_ids
        self._controller_calls[number] = call
        try:
            return _decoded(api, await self._channel(address, channel).exchange(call, request, version, timeout_ms))
        finally:
            del self._controller_calls[number]

    def controller_changed(self) -> None:
        """Another node, or none, is the active controller now: those who wait for the old one need wait no longer."""
        for call in list(self._controller_calls.values()):
            call.fail(PeerUnavailable("another node became the controller", sent=True))
        waiting, self._waiting_for_controller = self._waiting_for_controller, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _controller_change(self, timeout_ms: float) -> None:
        future: Future[None] = self._runtime.future()
        self._waiting_for_controller.append(future)
        timer = self._runtime.call_later(timeout_ms, _conclude, future)
        await future
        timer.cancel()

    # ---- channels

    def _channel(self, address: Address, name: str) -> _Channel:
        if self._closed:
            raise PeerUnavailable("this node is stopping")
        key = (*address, name)
        channel = self._channels.get(key)
        if channel is None:
            client_id = f"node-{self._node_id}-{name}" if name else f"node-{self._node_id}"
            channel = self._channels[key] = _Channel(self._runtime, self._events, address, client_id)
        return channel

    def disconnect(self, address: Address, channel: str = "") -> None:
        """Close a channel that is no longer needed; requests on it end with PeerUnavailable."""
        found = self._channels.pop((*address, channel), None)
        if found is not None:
            found.close()

    def close(self) -> None:
        """No more requests; those under way end with PeerUnavailable."""
        self._closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self.controller_changed()


class _Call:
    """One request on its way: what it waits for, first a connection and then the answer, can be ended from outside."""

    __slots__ = ("_error", "_future", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._future: Future[Any] | None = None
        self._error: PeerUnavailable | None = None

    def wait(self) -> Future[Any]:
        self._future = self._runtime.future()
        if self._error is not None:
            self._future.set_exception(self._error)
        return self._future

    def fail(self, error: PeerUnavailable) -> None:
        self._error = self._error or error
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)


class _Channel:
    """One connection to one address, opened again when it is needed again."""

    def __init__(self, runtime: Runtime, events: EventLog, address: Address, client_id: str) -> None:
        self._runtime = runtime
        self._events = events
        self._address = address
        self._client_id = client_id
        self._connection: _Connection | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._opening = False
        self._openers: list[Future[None]] = []
        self._greeting: Future[bytes | bytearray] | None = None
        self._attempt = 0
        self._failures = 0
        self._retry_at_ms = 0.0
        self._correlation_id = 0
        self._closed = False

    @property
    def name(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    @property
    def _waiting(self) -> int:
        return len(self._openers) + (len(self._connection.pending) if self._connection is not None else 0)

    async def exchange(self, call: _Call, request: Message, version: int | None, timeout_ms: float) -> Reply:
        if self._waiting >= PENDING_MAX:
            raise PeerUnavailable(f"{self.name} has {PENDING_MAX} requests to answer already")
        timer = self._runtime.call_later(timeout_ms, self._expire, call, timeout_ms)
        try:
            while self._connection is None:
                opened = call.wait()
                self._openers.append(opened)
                self._open()
                await opened
            api = api_named(type(request).__name__.removesuffix("Request"))
            spoken = self._spoken(api, version)
            return await self._send(call, api, request, spoken)
        finally:
            timer.cancel()

    async def _send(self, call: _Call, api: ServedApi, request: Message, version: int) -> Reply:
        connection = self._connection
        assert connection is not None
        self._correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        number = self._correlation_id
        out = bytearray(4)
        write_request_header(out, api.key, version, number, self._client_id)
        encode(request, version, out)
        _SIZE.pack_into(out, 0, len(out) - 4)
        frame = await connection.request(number, out, call.wait())
        try:
            found, position = read_response_header(frame, api.key, version)
        except WireError as error:
            raise PeerUnavailable(f"the answer of {self.name} cannot be read: {error}", sent=True) from None
        assert found == number, "answers are told apart by their correlation id"
        return Reply(version, frame, position)

    def _spoken(self, api: ServedApi, wanted: int | None) -> int:
        low, high = self._versions.get(api.key, (0, -1))
        version = min(api.max_version if wanted is None else wanted, high)
        if version < max(low, api.min_version):
            spoken = f"{low}–{high}" if high >= 0 else "no version"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} speaks {spoken} of {api.name}, this node {api.min_version}–{api.max_version}",
            )
        return version

    def _expire(self, call: _Call, timeout_ms: float) -> None:
        sent = self._connection is not None
        call.fail(PeerUnavailable(f"{self.name} did not answer within {timeout_ms:.0f} ms", sent=sent))
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # ---- connecting

    def _open(self) -> None:
        if self._opening:
            return
        self._opening = True
        self._attempt += 1
        self._runtime.spawn(self._connect(self._attempt), f"connect {self.name}")

    async def _connect(self, attempt: int) -> None:
        wait_ms = self._retry_at_ms - self._runtime.now_ms()
        if wait_ms > 0:
            await self._runtime.sleep(wait_ms)
        timer = self._runtime.call_later(CONNECT_TIMEOUT_MS, self._give_up, attempt)
        connection: _Connection | None = None
        try:
            if self._closed:
                raise PeerUnavailable("this node is stopping")
            connection = await self._runtime.connect(*self._address, lambda: _Connection(self.name, self._lost))
            if attempt != self._attempt:
                raise PeerUnavailable(f"{self.name} took the connection too late")
            versions = await self._greet(connection)
            if attempt != self._attempt or connection.lost:
                raise PeerUnavailable(f"{self.name} closed the connection at once")
            self._opened(connection, versions)
        except PeerUnavailable as error:
            self._failed(attempt, error)
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            self._failed(attempt, PeerUnavailable(f"{self.name}: {error}", refused=refused))
        except WireError as error:
            self._failed(attempt, PeerUnavailable(f"{self.name} does not speak this protocol: {error}"))
        finally:
            timer.cancel()
            if connection is not None and connection is not self._connection:
                connection.abort()

    async def _greet(self, connection: _Connection) -> dict[int, tuple[int, int]]:
        """Ask which versions the peer speaks. It answers once it is ready to serve."""
        api = api_named("ApiVersions")
        out = bytearray(4)
        write_request_header(out, api.key, API_VERSIONS_VERSION, 0, self._client_id)
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version="node")
        encode(request, API_VERSIONS_VERSION, out)
        _SIZE.pack_into(out, 0, len(out) - 4)
        self._greeting = self._runtime.future()
        frame = await connection.request(0, out, self._greeting)
        _, position = read_response_header(frame, api.key, API_VERSIONS_VERSION)
        response, _ = decode(ApiVersionsResponse, API_VERSIONS_VERSION, frame, position, limits=ANSWER_LIMITS)
        if response.error_code != ErrorCode.NONE:
            raise PeerUnavailable(f"{self.name} did not say which versions it speaks")
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}

    def _opened(self, connection: _Connection, versions: dict[int, tuple[int, int]]) -> None:
        self._versions = versions
        self._connection = connection
        self._opening = False
        self._failures = 0
        self._retry_at_ms = 0.0
        openers, self._openers = self._openers, []
        for opener in openers:
            _conclude(opener)

    def _give_up(self, attempt: int) -> None:
        self._failed(attempt, PeerUnavailable(f"{self.name} took no connection within {CONNECT_TIMEOUT_MS} ms"))

    def _failed(self, attempt: int, error: PeerUnavailable) -> None:
        if attempt != self._attempt or not self._opening:
            return
        self._attempt += 1
        self._opening = False
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(error)
        self._failures += 1
        backoff_ms = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(self._failures - 1, 10))
        self._retry_at_ms = self._runtime.now_ms() + backoff_ms * (0.8 + 0.4 * self._runtime.rng.random())
        openers, self._openers = self._openers, []
        for opener in openers:
            if not opener.done():
                opener.set_exception(error)

    # ---- what the connection reports

    def _lost(self, connection: _Connection) -> None:
        if connection is self._connection:
            self._connection = None

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.abort()
        self._failed(self._attempt, PeerUnavailable("this node is stopping"))


class _Connection(BufferedProtocol):
    """Frames: small ones are cut out of one buffer, a large one is received straight into its own."""

    def __init__(self, name: str, on_lost: Callable[[_Connection], None]) -> None:
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

    async def request(
        self, number: int, frame: bytearray, answer: Future[bytes | bytearray]
    ) -> bytes | bytearray:
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


def _decoded(api: ServedApi, reply: Reply) -> Message:
    view = memoryview(reply.frame)
    try:
        message, _ = decode(api.response, reply.version, view, reply.position, limits=ANSWER_LIMITS)
    except WireError as error:
        raise PeerUnavailable(f"its answer to {api.name} cannot be read: {error}", sent=True) from None
    return message


def _conclude(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
