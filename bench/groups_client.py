"""A client for the benchmarks of groups: many connections of one event loop, each a few microseconds per request.

Nothing of a client library runs here, because 200 full clients would need both cores for themselves. `Connection`
encodes and decodes with `penstock.wire`; `Repeater` sends the same bytes again and again and compares the answers with
the first one, for loads in which the client must cost next to nothing.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import TypeVar, cast

import uvloop

from bench.client import LoadFailed
from penstock.wire.apis import ApiKey
from penstock.wire.codec import DEFAULT_LIMITS, Limits, Message, decoder, encoder
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import read_response_header, write_request_header
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

VERSIONS = {
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.API_VERSIONS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
}

NOT_YET = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""The coordinator is about to be there: ask again."""
RETRY_S = 0.01

_LENGTH = Struct(">i")
_CLIENT_ID = "bench"
_LIMITS = Limits(max_elements=10_000_000)
_CONNECTS_AT_ONCE = 100
_COORDINATOR_TIMEOUT_S = 60
_STALL_TIMEOUT_S = 60

R = TypeVar("R", bound=Message)
T = TypeVar("T")


def run(load: Coroutine[None, None, T]) -> T:
    """Runs a load to its end, without pauses of this process's garbage collector."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(load)
    finally:
        gc.enable()
        gc.unfreeze()


def encode_frame(api_key: ApiKey, request: Message, correlation_id: int = 0) -> bytes:
    """A whole request, its length included."""
    out = bytearray(_LENGTH.size)
    version = VERSIONS[api_key]
    write_request_header(out, api_key, version, correlation_id, _CLIENT_ID)
    encoder(type(request), version)(request, out)
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return bytes(out)


class Connection(asyncio.Protocol):
    """One socket. A broker answers its requests in their order, so that answers need no look-up."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: deque[tuple[ApiKey, type[Message], asyncio.Future[Message]]] = deque()

    @classmethod
    async def open(cls, bootstrap: str) -> Connection:
        host, _, port = bootstrap.rpartition(":")
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return connection

    async def ask(self, api_key: ApiKey, request: Message, response: type[R]) -> R:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise LoadFailed(f"the connection was closed before {type(request).__name__}")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((api_key, response, answer))  # type: ignore[arg-type]
        transport.write(encode_frame(api_key, request))
        return await answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's own class, which is a transport in all but its bases.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        position = 0
        while len(received) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, position)
            end = position + _LENGTH.size + length
            if end > len(received):
                break
            self._answer(bytes(received[position + _LENGTH.size : end]))
            position = end
        del received[:position]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        while self._waiting:
            _, response, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(LoadFailed(f"the connection was closed before {response.__name__}: {exc}"))

    def _answer(self, frame: bytes) -> None:
        api_key, response, answer = self._waiting.popleft()
        version = VERSIONS[api_key]
        _, position = read_response_header(frame, api_key, version)
        message, _ = decoder(response, version)(frame, position, _LIMITS.max_elements, DEFAULT_LIMITS.max_tagged_fields)
        if not answer.done():
            answer.set_result(message)


class Repeater(asyncio.Protocol):
    """Sends the same request `count` times, a few in flight; every answer must be the bytes of the first."""

    def __init__(self, request: bytes, count: int, in_flight_max: int) -> None:
        self.ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._request = request
        self._to_send = count
        self._to_receive = count
        self._in_flight_max = in_flight_max
        self._first = b""
        self._received = b""
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, bootstrap: str, request: bytes, count: int, in_flight_max: int) -> Repeater:
        host, _, port = bootstrap.rpartition(":")
        loop = asyncio.get_running_loop()
        _, repeater = await loop.create_connection(lambda: cls(request, count, in_flight_max), host, int(port))
        return repeater

    def go(self) -> None:
        self._send(min(self._in_flight_max, self._to_send))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's own class, which is a transport in all but its bases.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        if not self._first:
            if len(received) < _LENGTH.size or len(received) < _LENGTH.size + _LENGTH.unpack_from(received)[0]:
                self._received = received
                return
            self._first = received[: _LENGTH.size + _LENGTH.unpack_from(received)[0]]
        count, rest = divmod(len(received), len(self._first))
        if received[: count * len(self._first)] != self._first * count:
            self._fail("the broker's answers to equal requests differ")
            return
        self._received = received[len(received) - rest :]
        self._to_receive -= count
        if self._to_receive == 0:
            self.ended.set_result(self._first)
        elif self._to_send:
            self._send(min(count, self._to_send))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was closed before its last answer: {exc}")

    def _send(self, count: int) -> None:
        assert self._transport is not None
        self._to_send -= count
        self._transport.write(self._request * count)

    def _fail(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(LoadFailed(reason))


@contextmanager
def closing(connections: list[Connection]) -> Iterator[list[Connection]]:
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


async def open_many(bootstrap: str, count: int) -> list[Connection]:
    """In portions, so that the listener's backlog does not overflow."""
    opened: list[Connection] = []
    while len(opened) < count:
        portion = min(_CONNECTS_AT_ONCE, count - len(opened))
        opened += await asyncio.gather(*(Connection.open(bootstrap) for _ in range(portion)))
    return opened


async def all_of(loads: list[Coroutine[None, None, T]]) -> list[T]:
    """Runs them side by side; the first failure ends all, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(load) for load in loads]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def await_coordinator(connection: Connection, group_id: str) -> None:
    """As every member does first; the first one of a cluster has the offsets topic created."""
    deadline_s = time.monotonic() + _COORDINATOR_TIMEOUT_S
    while True:
        request = FindCoordinatorRequest(coordinator_keys=[group_id])
        answer = await connection.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
        error_code = answer.coordinators[0].error_code
        if error_code == ErrorCode.NONE:
            return
        if error_code not in NOT_YET or time.monotonic() > deadline_s:
            raise LoadFailed(f"FindCoordinator: {ErrorCode(error_code).name}")
        await asyncio.sleep(RETRY_S)


async def topic_id_of(connection: Connection, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = (await connection.ask(ApiKey.METADATA, request, MetadataResponse)).topics
    if found.error_code:
        raise LoadFailed(f"Metadata of {topic}: {ErrorCode(found.error_code).name}")
    return found.topic_id


async def within(load: Coroutine[None, None, T], timeout_s: float = _STALL_TIMEOUT_S) -> T:
    """The load's result, or a failure if it takes too long."""
    try:
        async with asyncio.timeout(timeout_s):
            return await load
    except TimeoutError:
        raise LoadFailed(f"not done within {timeout_s:.0f} s") from None
