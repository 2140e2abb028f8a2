"""Serves the requests of all connections: API table, gate, handler and answer; and enforces connection limits.

A request is looked up in the table of served APIs (`penstock.wire.apis`). Produce and Fetch parse their own frames;
all others are decoded by the codec within the API's limits, handed to their handler as typed messages, and the typed
answer is encoded. A handler returns its response, or a pending one (an awaitable, or a coordinator's reply). A pending
request is a barrier for later ones, except for `OVERLAPPING` APIs. The gate (`penstock.broker.gate`) is checked
before; a `KafkaError` that it or the handler raises becomes the answer (`penstock.broker.refusals`).

An error affects only the connection that caused it: an unexpected exception is counted and logged, and closes the
connection; the broker continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from struct import Struct
from typing import Any

from penstock.broker import limits
from penstock.broker.gate import Gate
from penstock.broker.net.access import ListenerInfo
from penstock.broker.net.answering import AnswerBudget
from penstock.broker.net.connection import STARTING, Connection, Slot
from penstock.broker.net.outbox import ChunkPool
from penstock.broker.net.receiving import ReceiveBudget
from penstock.broker.net.request import Request
from penstock.broker.net.slices import Places, RequestSlices
from penstock.broker.net.turns import Turns
from penstock.broker.observability.metrics import BrokerMetrics, RequestMetrics
from penstock.broker.quotas.admission import Admission
from penstock.broker.refusals import refusal
from penstock.broker.replicas.partition import Wakes
from penstock.config import BrokerConfig
from penstock.coordinators.host import PendingReply
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.apis import SERVED, ApiKey, ServedApi, api_name
from penstock.wire.codec import Message, decode, decode_in_slices, encode, encode_in_slices
from penstock.wire.commits import decode_commit
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.headers import read_request_header

ANY_LISTENER = ListenerInfo()
SWEEP_INTERVAL_MS = 10_000
WAITS_AS_ASKED = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DELETE_RECORDS,
    }
)
"""APIs whose requests say how long the answer may take, or that wait for other members of a group."""
DRAIN_POLL_MS = 10
RECEIVE_BUDGET_BYTES = 1 << 30
"""Budget for incomplete requests of all connections together, if `queued.max.request.bytes` is -1."""
FRAMES_AT_ONCE_MAX = 16
"""The receive budget of a controller's listener, in units of its largest request; most are small."""

_head = Struct(">hhih").unpack_from
_pack_head = Struct(">ii").pack
_pack_size_into = Struct(">i").pack_into

OVERLAPPING = (ApiKey.OFFSET_COMMIT,)
"""APIs whose requests are decided in the order of arrival and need not wait for each other's answers."""

DECODERS = {ApiKey.OFFSET_COMMIT: decode_commit}
"""APIs with a fast path for common requests."""

RawHandler = Callable[[Request], None]
"""A handler that parses the frame and sends the answer itself."""

Handler = Callable[[Request, Any], Message | PendingReply | Awaitable[Message]]
"""A handler that also gets the decoded body."""


class Api:
    """One served API: the fields of its row in the table that every request needs."""

    __slots__ = (
        "decode",
        "flexible_from",
        "frame_bytes_max",
        "handler",
        "key",
        "limits",
        "max_version",
        "metrics",
        "min_version",
        "name",
        "overlaps",
        "raw",
        "request",
        "row",
    )

    def __init__(self, served: ServedApi, raw: RawHandler | None, handler: Handler | None) -> None:
        self.row = served
        self.key = served.key
        self.name = served.name
        self.min_version = served.min_version
        self.max_version = served.max_version
        self.flexible_from = served.flexible_from
        self.frame_bytes_max = served.max_frame_bytes
        self.limits = served.limits
        self.request = served.request
        self.decode: Callable[..., tuple[Message, int]] = DECODERS.get(served.key, decode)
        self.raw = raw
        self.handler = handler
        self.overlaps = served.key in OVERLAPPING
        self.metrics = RequestMetrics(served.name)


class Service:
    """The broker as its connections see it (`penstock.broker.net.connection.Service`)."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        events: EventLog,
        metrics: BrokerMetrics,
        wakes: Wakes,
        served: Mapping[ApiKey, ServedApi] = SERVED,
        gate: Gate | None = None,
    ) -> None:
        """`served` is the table of APIs of the listeners that use this service."""
        self.gate = Gate() if gate is None else gate
        self._served = served
        self._runtime = runtime
        self._events = events
        self.metrics = metrics
        self._wakes = wakes
        self._chunks = ChunkPool()
        self._apis: list[Api | None] = [None] * (max(served) + 1)
        self._connections: dict[int, Connection] = {}
        self._numbers = 0
        self._before_login: dict[int, int] = {}
        """Receive buffers of clients that have not logged in, by connection, as far as they have grown."""
        self._before_login_bytes = 0
        self.ready = False
        """Until this is set, connections are accepted but their requests wait."""
        self.admission = Admission(runtime.now_ms)
        self._places = Places(runtime.future)
        self.turns = Turns(runtime.now_ms, runtime.cpu_ms, runtime.call_soon)
        self.answer_budget = AnswerBudget(runtime.now_ms, runtime.call_later, runtime.future)
        self.receive_budget = ReceiveBudget(runtime.now_ms, runtime.call_soon, runtime.call_later)
        self.now_ms = runtime.now_ms
        self.call_soon = runtime.call_soon
        self.call_later = runtime.call_later
        self.direct_socket = runtime.direct_socket
        self.after_turn = wakes.run
        self.configure(config)
        self._swept_ms = runtime.now_ms()
        runtime.call_later(SWEEP_INTERVAL_MS, self._sweep)

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        self.admission.configure(config)
        self.request_bytes_max = config.socket_request_max_bytes
        budget = config.queued_max_request_bytes
        largest = min(self.request_bytes_max, max(served.max_frame_bytes for served in self._served.values()))
        budget = RECEIVE_BUDGET_BYTES if budget < 0 else budget
        if ApiKey.PRODUCE not in self._served:
            budget = min(budget, FRAMES_AT_ONCE_MAX * largest)
        self.receive_budget.configure(budget, largest)

    def add_raw(self, key: ApiKey, handler: RawHandler) -> None:
        self._add(Api(self._served[key], handler, None))

    def add(self, key: ApiKey, handler: Handler) -> None:
        self._add(Api(self._served[key], None, handler))

    def _add(self, api: Api) -> None:
        self._apis[api.key] = api
        self.metrics.requests[api.key] = api.metrics

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def throttled_count(self) -> int:
        return sum(connection.throttled_until_ms > 0 for connection in self._connections.values())

    @property
    def receiving_bytes(self) -> int:
        return self.receive_budget.used

    def connection(self, listener_info: ListenerInfo = ANY_LISTENER) -> Connection:
        """The factory that listeners use."""
        self._numbers += 1
        connection = Connection(self, self._chunks, self._numbers)
        client = self.gate.client(listener_info)
        connection.request = Request(self.gate, client, connection)
        if client.principal is None:
            assert self.gate.authentication is not None
            before_login = self.gate.authentication.frame_bytes_max(listener_info)
            connection.frame_bytes_max = min(before_login, self.request_bytes_max)
        return connection

    # ---- logins

    def secured(self, connection: Connection, subject: str) -> None:
        client = connection.request.client
        if client.principal is not None or self.gate.authentication is None:
            return
        try:
            self.gate.authentication.secured(client, subject)
        except KafkaError as error:
            self._audit_tls(connection, subject, error.message)
            connection.fail(error)
            return
        if client.principal is not None:
            self._audit_tls(connection, str(client.principal), "")
            self.logged_in(connection)

    def _audit_tls(self, connection: Connection, principal: str, refusal: str) -> None:
        """A client was identified by its certificate, or has one that names no user."""
        if self.gate.audit is not None:
            listener = connection.request.client.listener_info.listener
            self.gate.audit.login(
                principal=principal,
                host=connection.host,
                listener=listener,
                mechanism="TLS",
                succeeded=not refusal,
                reason=refusal,
            )

    def logged_in(self, connection: Connection) -> None:
        """The connection has a principal from now on: requests of any size are read."""
        connection.frame_bytes_max = self.request_bytes_max
        self._before_login_bytes -= self._before_login.pop(connection.number, 0)

    def may_grow(self, connection: Connection, capacity: int) -> bool:
        held = self._before_login.get(connection.number, 0)
        if self._before_login_bytes - held + capacity > limits.BEFORE_LOGIN_BYTES_MAX:
            return False
        self._before_login[connection.number] = capacity
        self._before_login_bytes += capacity - held
        return True

    # ---- requests

    def frame_bytes_max(self, api_key: int) -> int:
        apis = self._apis
        api = apis[api_key] if 0 <= api_key < len(apis) else None
        return limits.FRAME_BYTES_OF_ANY_API if api is None else api.frame_bytes_max

    def has_room_for(self, connection: Connection, api_key: int) -> bool:
        apis = self._apis
        api = apis[api_key] if 0 <= api_key < len(apis) else None
        if api is None or api.key == ApiKey.PRODUCE or connection.weight > 1 or not self._places.full:
            return True
        self._places.when_free(connection.drained)
        return False

    def slices(self, took: Callable[[float], None] | None = None) -> RequestSlices:
        return RequestSlices(self._runtime, self._places, took)

    def serve(self, connection: Connection, start: int, end: int) -> None:
        if end - start < 10:
            raise WireError("the request header ends early")
        key, version, correlation_id, client_id_length = _head(connection.buffer, start)
        apis = self._apis
        api = apis[key] if 0 <= key < len(apis) else None
        if api is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api_name(key)} is not served on this listener")
        if not api.min_version <= version <= api.max_version:
            if key != ApiKey.API_VERSIONS:
                spoken = f"{api.min_version}–{api.max_version}"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} v{version} is not served, only {spoken}")
            version = -1
        position = start + 10
        if client_id_length > 0:
            position += client_id_length
            if position > end:
                raise WireError("the client id ends beyond the request")
        if version >= api.flexible_from:
            if position < end and connection.buffer[position] == 0:
                position += 1
            else:
                position = read_request_header(connection.view[:end], start).body_position
        request = connection.request
        request.row = api.row
        request.version = version
        request.correlation_id = correlation_id
        request.start = start
        request.position = position
        request.end = end
        gate = self.gate
        if gate.is_active:
            gate.check_login(request)
        metrics = api.metrics
        metrics.requests += 1
        arrived_ms = connection.active_ms
        if connection.served_ms == arrived_ms:
            metrics.at_once += 1
        else:
            metrics.queue.record(connection.served_ms - arrived_ms)
        connection.deferred = None
        try:
            if api.raw is not None:
                api.raw(request)
            else:
                self._serve_message(api, connection, request)
        except Exception:
            metrics.errors += 1
            raise
        now_ms = self.now_ms()
        if gate.is_active:
            gate.took(request, now_ms - connection.served_ms)
        connection.served_ms = now_ms
        slot = connection.deferred
        if slot is None:
            metrics.total.record(now_ms - arrived_ms)
        else:
            slot.api = api
            slot.arrived_ms = arrived_ms

    def answered(self, slot: Slot) -> None:
        if isinstance(slot.api, Api):
            slot.api.metrics.total.record(self.now_ms() - slot.arrived_ms)

    def _serve_message(self, api: Api, connection: Connection, request: Request) -> None:
        position, end = request.position, request.end
        if end - position > limits.LARGE_REQUEST_BYTES:
            slot = self._deferred(connection, request, barrier=True)
            body = bytes(connection.view[position:end])
            self._runtime.spawn(self._serve_large(api, slot, request, body), api.name)
            return
        if request.version >= 0:
            # Trailing bytes are ignored, as in Kafka: librdkafka 2.16 sends three after Metadata v13.
            view = connection.view[:end]
            request.body, _ = api.decode(api.request, request.version, view, position, limits=api.limits)
        else:
            request.body = api.request()
        result = self._handled(api, request)
        if isinstance(result, PendingReply):
            if result.error is not None:
                raise result.error
            if result.answer is None:
                slot = self._deferred(connection, request, barrier=not api.overlaps)
                slot.handled_ms = self.now_ms()
                result.then(partial(self._settled, api, slot, request))
                return
            result = result.answer
        if isinstance(result, Message):
            out = self._framed(api, request, result)
            if len(out) <= limits.LARGE_ANSWER_BYTES:
                connection.send(out)
            else:
                slot = self._deferred(connection, request, barrier=True)
                self._runtime.spawn(self._answer(api, slot, request, result), api.name)
            return
        slot = self._deferred(connection, request, barrier=True)
        slot.handled_ms = self.now_ms()
        self._runtime.spawn(self._finish(api, slot, request, result), api.name)

    def _deferred(self, connection: Connection, request: Request, *, barrier: bool) -> Slot:
        """The answer comes later: the handler keeps the request object, and the connection gets a new one."""
        connection.request = request.detached()
        return connection.defer(barrier=barrier)

    async def _serve_large(self, api: Api, slot: Slot, request: Request, body: bytes) -> None:
        """Serve a large request in slices: decoding, serving and answering may all take long."""
        try:
            with self.slices(request.took) as slices:
                await slices.begin()
                if request.version < 0:
                    request.body = api.request()
                elif api.decode is decode:
                    work = decode_in_slices(api.request, request.version, body, limits=api.limits)
                    request.body, _ = await slices.drive(work)
                else:
                    request.body, _ = api.decode(api.request, request.version, body, 0, limits=api.limits)
            if slot.connection.closed:
                return
            slot.handled_ms = self.now_ms()
            result = self._handled(api, request)
            if isinstance(result, PendingReply):
                result.then(partial(self._settled, api, slot, request))
                return
        except Exception as error:
            self._request_failed(api, slot.connection, error)
            return
        if isinstance(result, Message):
            if self.gate.audit is not None:
                self.gate.audit.answered(request, result)
            await self._answer(api, slot, request, result)
        else:
            await self._finish(api, slot, request, result)

    def _handled(self, api: Api, request: Request) -> Message | PendingReply | Awaitable[Message]:
        """Check the request at the gate and call the handler. If either refuses it, return the error answer."""
        assert api.handler is not None
        try:
            if self.gate.is_active:
                self.gate.enter(request)
            return api.handler(request, request.body)
        except KafkaError as error:
            return self._refusal(request, error)

    def _refusal(self, request: Request, error: KafkaError) -> Message:
        if error.code == ErrorCode.BROKER_NOT_AVAILABLE:
            raise error  # this node is starting or stopping: `failed` closes the connection, and clients try another
        assert request.body is not None
        return refusal(request.row, request.version, request.body, error.code, error.message)

    def _settled(self, api: Api, slot: Slot, request: Request, pending_reply: PendingReply) -> None:
        """Send a coordinator's reply, which may come late: the connection may be closed by then."""
        try:
            if pending_reply.answer is None:
                raise pending_reply.error or AssertionError("settled with neither an answer nor an error")
            if slot.connection.closed:
                return
            out = self._framed(api, request, pending_reply.answer)
            if len(out) <= limits.LARGE_ANSWER_BYTES:
                slot.send(out)
            else:
                self._runtime.spawn(self._answer(api, slot, request, pending_reply.answer), api.name)
        except Exception as error:
            self._request_failed(api, slot.connection, error)

    async def _finish(self, api: Api, slot: Slot, request: Request, result: Awaitable[Message]) -> None:
        try:
            try:
                response = await result
            except KafkaError as error:
                response = self._refusal(request, error)
        except Exception as error:
            self._request_failed(api, slot.connection, error)
            return
        if self.gate.audit is not None:
            self.gate.audit.answered(request, response)
        await self._answer(api, slot, request, response)

    async def _answer(self, api: Api, slot: Slot, request: Request, response: Message) -> None:
        """Encode an answer of any size in slices, and wait for room in the budget of large answers."""
        slot.handled_ms = None
        connection = slot.connection
        try:
            out = self._head(api, request)
            if self.gate.quotas is not None:
                self.gate.leave(request, response)
            with self.slices(request.took) as slices:
                await slices.drive(encode_in_slices(response, max(request.version, 0), out))
                if len(out) > limits.LARGE_ANSWER_BYTES:
                    await connection.answer_room(len(out))
            _pack_size_into(out, 0, len(out) - 4)
            slot.send(out)
            if connection.owes_answer:
                connection.settle_answer()
            if request.client.rejected:
                connection.close()
        except Exception as error:
            self._request_failed(api, connection, error)

    def _request_failed(self, api: Api, connection: Connection, error: Exception) -> None:
        api.metrics.errors += 1
        self.failed(connection, error)
        if not connection.closed:
            connection.abort()

    def _framed(self, api: Api, request: Request, response: Message) -> bytearray:
        out = self._head(api, request)
        if self.gate.quotas is not None:
            self.gate.leave(request, response)
        if self.gate.audit is not None:
            self.gate.audit.answered(request, response)
        encode(response, max(request.version, 0), out)
        _pack_size_into(out, 0, len(out) - 4)
        return out

    def _head(self, api: Api, request: Request) -> bytearray:
        """The response header, with the length to be filled in."""
        out = bytearray(_pack_head(0, request.correlation_id))
        # ApiVersions is always answered with header v0, so that a client can read it before it knows our versions.
        if request.version >= api.flexible_from and api.key != ApiKey.API_VERSIONS:
            out.append(0)
        return out

    # ---- connections

    def admit(self, connection: Connection) -> bool:
        self.metrics.connections_created += 1
        client = connection.request.client
        client.host = connection.host
        listener = client.listener_info
        reason = self.admission.refusal(client.host, listener.listener, for_nodes=listener.for_nodes)
        if not reason and listener.uses_tls and not self.receive_budget.reserve(limits.TLS_BYTES):
            self.admission.departed(client.host, listener.listener)
            reason = "memory for TLS connections (queued.max.request.bytes)"
        if reason:
            self.metrics.connections_refused += 1
            self._events.limited("connection refused", peer=connection.peer, limit=reason)
            return False
        self._connections[connection.number] = connection
        return True

    def departed(self, connection: Connection) -> None:
        self.metrics.connections_closed += 1
        del self._connections[connection.number]
        client = connection.request.client
        self.admission.departed(client.host, client.listener_info.listener)
        if client.listener_info.uses_tls:
            self.receive_budget.unreserve(limits.TLS_BYTES)
        self._before_login_bytes -= self._before_login.pop(connection.number, 0)
        self.receive_budget.leave(connection, connection.receiving_bytes)
        self.answer_budget.give(connection)

    def refused(self, connection: Connection, reason: str) -> None:
        self.metrics.refused_frames += 1
        self._events.limited("connection closed", peer=connection.peer, reason=reason)

    def failed(self, connection: Connection, error: Exception) -> None:
        if isinstance(error, KafkaError) and error.code == ErrorCode.BROKER_NOT_AVAILABLE:
            # This node is starting or stopping; the client retries.
            self.metrics.refused_frames += 1
            self._events.recurring("connection closed", error.message, peer=connection.peer, reason=str(error))
            return
        if isinstance(error, (KafkaError, WireError)):
            self.refused(connection, str(error))
            return
        self.metrics.unexpected_errors += 1
        self._events.error("unexpected error", peer=connection.peer, error=repr(error), trace=trace(error))

    def _sweep(self) -> None:
        """Close connections that are idle or stuck in the middle of a request; shrink buffers of idle ones."""
        self._runtime.call_later(SWEEP_INTERVAL_MS, self._sweep)
        now = self.now_ms()
        # After a stall of this process (SIGSTOP) all connections look idle: give them time until the next sweep.
        # While memory for answers is short, large requests may wait for an unknown time, so they are not overdue.
        stalled = now - self._swept_ms > 2 * SWEEP_INTERVAL_MS or self.answer_budget.is_short
        self._swept_ms = now
        for connection in list(self._connections.values()):
            idle_ms = now - connection.active_ms
            if not stalled and (overdue := self._overdue(connection, now)) is not None:
                self.metrics.unexpected_errors += 1
                self._events.error("request not answered", peer=connection.peer, api=overdue)
                connection.abort()
            elif connection.mid_request and idle_ms > limits.REQUEST_SILENCE_MS:
                self.refused(connection, f"incomplete request: silent for {limits.REQUEST_SILENCE_MS // 1000} s")
                connection.abort()
            elif connection.throttled_until_ms:
                pass  # its client was told to be silent
            elif min(idle_ms, now - connection.sent_ms) > self._config.connections_max_idle_ms and (
                connection.blocked or not connection.waiting
            ):
                connection.expire()
            elif idle_ms > SWEEP_INTERVAL_MS:
                connection.shrink()

    def _overdue(self, connection: Connection, now_ms: float) -> str | None:
        """The API of a request that this broker has failed to answer in time; None if there is none."""
        slot = connection.oldest
        if slot is None or slot.answer is not None or not isinstance(slot.api, Api):
            return None
        if slot.handled_ms is None or slot.api.key in WAITS_AS_ASKED:
            return None
        return slot.api.name if now_ms - slot.handled_ms > limits.ANSWER_MS_MAX else None

    def open(self) -> None:
        """The node is ready: start to serve requests."""
        self.ready = True
        for connection in list(self._connections.values()):
            connection.unmute(STARTING)

    async def drain(self, timeout_ms: float) -> None:
        """Send the answers that are due, then close all connections. Long polls are answered at once."""
        deadline_ms = self.now_ms() + timeout_ms
        for connection in list(self._connections.values()):
            if not connection.waiting:
                connection.close()
        while self._connections and self.now_ms() < deadline_ms:
            await self._runtime.sleep(DRAIN_POLL_MS)
            for connection in list(self._connections.values()):
                if not connection.waiting or connection.parked:
                    connection.close()
        for connection in list(self._connections.values()):
            connection.abort()


def trace(error: BaseException) -> str:
    """Where the exception was raised, innermost frame last."""
    frames = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('/')[2]}:{step.tb_lineno} {code.co_qualname}")
        step = step.tb_next
    return " > ".join(frames[-6:])
