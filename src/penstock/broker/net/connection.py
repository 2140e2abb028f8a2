"""One client's connection: frames in, answers out in the order of their requests.

In: bytes are read into one buffer per connection that starts small. A frame that it cannot hold gets a buffer of the
frame's size, from a budget that all connections share (`receiving`), and is read exactly to its end, so that nothing is
copied twice. Complete frames are served directly from that buffer: a handler's view of it is invalid after the handler
returns. `turns` decides how many are served at a time.

Out: answers are sent in request order. A handler answers at once (`send`), or takes a `Slot` (`defer`) and fills it
later. Produce requests may overlap, and so may offset commits; any other pending request is a barrier that holds back
the frames behind it. All answers of one read are sent in one write, through an `Outbox`, and so are those of
overlapping requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from struct import Struct
from typing import Any, Protocol

from penstock.broker import limits
from penstock.broker.net.answering import AnswerBudget
from penstock.broker.net.outbox import ChunkPool, Outbox, Part, release
from penstock.broker.net.receiving import ReceiveBudget
from penstock.broker.net.request import Request
from penstock.broker.net.slices import RequestSlices
from penstock.broker.net.turns import Turns
from penstock.runtime import BufferedProtocol, DirectSocket, Timer, Transport
from penstock.runtime.memory import ByteBuffer, byte_buffer

_SIZE = Struct(">i")
_read_size = _SIZE.unpack_from
_read_key = Struct(">h").unpack_from

FRAME_BYTES_MIN = 8
"""API key, version and correlation id."""

NO_KEY = -1

AHEAD, MEMORY, STARTING, TURN, THROTTLED = 1, 2, 4, 8, 16
"""Reasons why a socket is not read: its client has pipelined too much; the broker's receive budget is used up; the
broker is not ready to serve; it is the turn of others; its client has exceeded a quota."""

Answer = bytes | bytearray | Sequence[Part]


class Service(Protocol):
    """The interface of the broker that connections use."""

    request_bytes_max: int
    ready: bool
    turns: Turns
    receive_budget: ReceiveBudget
    answer_budget: AnswerBudget

    def now_ms(self) -> float: ...
    def serve(self, connection: Connection, start: int, end: int) -> None:
        """Serve the request in `connection.buffer[start:end]`."""

    def frame_bytes_max(self, api_key: int) -> int:
        """The longest request of this API, or -1 if there is no such API."""

    def has_room_for(self, connection: Connection, api_key: int) -> bool:
        """Whether a request over `limits.LARGE_REQUEST_BYTES` may be served now. If not, `drained` is called later."""

    def slices(self, took: Callable[[float], None] | None = None) -> RequestSlices:
        """Slices for work that may take long."""

    def answered(self, slot: Slot) -> None:
        """Called when a deferred request has its answer."""

    def after_turn(self) -> None:
        """Called when the answers of one read were sent: wake the fetches that wait for its records."""

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection is within the limits."""

    def departed(self, connection: Connection) -> None:
        """Called when an admitted connection is closed."""

    def refused(self, connection: Connection, reason: str) -> None:
        """The peer sent an invalid request; the connection is closed."""

    def secured(self, connection: Connection, subject: str) -> None:
        """The TLS handshake is done. `subject`: the name in the client's certificate; empty if it has shown none."""

    def logged_in(self, connection: Connection) -> None:
        """The connection has a principal from now on: requests of any size are read."""

    def may_grow(self, connection: Connection, capacity: int) -> bool:
        """Whether a client that has not logged in may send a request that needs a buffer of this size."""

    def failed(self, connection: Connection, error: Exception) -> None:
        """A handler raised an unexpected exception; the connection is closed."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object: ...
    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Timer: ...

    def direct_socket(self, transport: Transport) -> DirectSocket | None:
        """See `penstock.runtime.Runtime.direct_socket`."""


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("_answer", "_connection", "api", "arrived_ms", "handled_ms")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answer: Answer | None = None
        self.api: object = None
        self.arrived_ms = 0.0
        self.handled_ms: float | None = None
        """When its handler started. None before that, and while a complete answer only waits for memory."""

    @property
    def connection(self) -> Connection:
        return self._connection

    def send(self, answer: Answer) -> None:
        assert self._answer is None, "a request was answered twice"
        self._answer = answer
        self._connection.slot_filled(self)

    @property
    def answer(self) -> Answer | None:
        return self._answer


class Connection(BufferedProtocol):
    __slots__ = (
        "_again",
        "_budget",
        "_filled",
        "_granted",
        "_key",
        "_limit",
        "_more",
        "_muted",
        "_need",
        "_outbox",
        "_overlapping",
        "_pending",
        "_pump_queued",
        "_read",
        "_service",
        "_serving",
        "_throttle",
        "_transport",
        "_turn_queued",
        "_turns",
        "_until_ms",
        "_wanted",
        "active_ms",
        "admitted",
        "buffer",
        "busy_until_ms",
        "closed",
        "deferred",
        "frame_bytes_max",
        "number",
        "on_lost",
        "owes_answer",
        "peer",
        "progress_ms",
        "request",
        "sent_ms",
        "served_ms",
        "throttled_until_ms",
        "view",
        "virtual_ms",
        "weight",
    )

    request: Request
    """The request that is being served. Set by the service, and reused for each frame."""

    def __init__(self, service: Service, chunks: ChunkPool, number: int) -> None:
        self._service = service
        self._outbox = Outbox(self, chunks)
        self.number = number
        self._turns = service.turns
        self._budget = service.receive_budget
        self.buffer: ByteBuffer = bytearray(limits.RECEIVE_BUFFER_START_BYTES)
        self.view = memoryview(self.buffer)
        self._read = 0
        self._filled = 0
        self._limit = len(self.buffer)
        self._need = 0
        self._granted = 0
        """Bytes of the buffer that count against the budget: 0 for the small initial buffer."""
        self.frame_bytes_max = service.request_bytes_max
        """The largest request; smaller until the client has logged in."""
        self._wanted = 0
        """The buffer capacity that it waits for."""
        self._muted = 0
        self._throttle: Timer | None = None
        self.throttled_until_ms = 0.0
        """Until then no further request is served. 0: its client is within its quotas."""
        self._pending: deque[Slot] = deque()
        self._key = NO_KEY
        """The API of the request that is being served."""
        self._overlapping = NO_KEY
        """Requests of this API need not wait for pending ones."""
        self._pump_queued = False
        self._serving = False
        self._turn_queued = False
        self._again = False
        """Another turn was requested during the current one."""
        self._until_ms = 0.0
        self._more = False
        """The turn ended before all complete frames were served."""
        self.busy_until_ms = 0.0
        self.virtual_ms = 0.0
        self.weight = 1.0
        self.closed = False
        self.admitted = False
        self.active_ms = 0.0
        """When bytes arrived last."""
        self.served_ms = 0.0
        """When the previous request of this turn was served; the next one waited until then."""
        self.progress_ms = 0.0
        self.owes_answer = False
        """A large answer is being sent (`answering`)."""
        self.sent_ms = 0.0
        """When a slow peer last read data that waited for it."""
        self.peer = ""
        self.deferred: Slot | None = None
        """The slot that the request being served has taken, if it took one."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the connection is closed, to drop its parked requests."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self.active_ms = self._service.now_ms()
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._outbox.attach(transport, self._service.direct_socket(transport))
        self.admitted = self._service.admit(self)
        if not self.admitted:
            self.abort()
        elif not self._service.ready:
            self.mute(STARTING)

    def secured(self, subject: str) -> None:
        self.active_ms = self._service.now_ms()
        self._service.secured(self, subject)

    def logged_in(self) -> None:
        """The client has a principal from now on."""
        self._service.logged_in(self)

    def handshake_failed(self, reason: str) -> None:
        if self.admitted:
            self._service.refused(self, reason)
        self.closed = True

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def receiving_bytes(self) -> int:
        return self._granted

    @property
    def mid_request(self) -> bool:
        """Whether a request is incomplete and only the peer delays the rest."""
        held = self._filled - self._read
        is_half = 0 < held < 4 or self._need > held
        return is_half and not self._pending and not self._outbox.paused and not self._muted

    @property
    def waiting(self) -> bool:
        """Whether requests of this client wait for their answer (a long poll, a commit) or for their turn."""
        return bool(self._pending or self._outbox.queue) or self._turn_queued

    @property
    def oldest(self) -> Slot | None:
        """The pending request that has waited longest; it holds back the answers behind it."""
        return self._pending[0] if self._pending else None

    @property
    def blocked(self) -> bool:
        """Whether answers wait for a peer that does not read."""
        return self._outbox.paused

    @property
    def parked(self) -> bool:
        """Whether a long poll waits for data; it can be answered early without loss."""
        return self.on_lost is not None

    # ---- in

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view[self._filled : self._limit]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        now_ms = self.active_ms = self.served_ms = self._service.now_ms()
        turns = self._turns
        if now_ms < turns.until_ms or turns.opens(now_ms):
            self._until_ms = turns.until_ms
            self._turn()
            if self._more:
                self._queue_turn(more=True)
        else:
            self._queue_turn()

    def eof_received(self) -> bool:
        return False

    def take_turn(self, now_ms: float, until_ms: float) -> bool:
        """Continue with pending work: unsent answers, then frames. Returns whether more remains."""
        self._again = False
        self.served_ms = now_ms
        self._until_ms = until_ms
        if self._outbox.queue:
            self._outbox.pump_on(limits.SEND_SLICE_BYTES_MAX)
        if not self._again:
            self._turn()
        if self.closed:
            return False
        if self.owes_answer:
            self.settle_answer()
        if self._more or self._again:
            return True
        self._turn_queued = False
        self.unmute(TURN)
        return False

    def _queue_turn(self, *, more: bool = False) -> None:
        """Queue for a turn, and stop reading until then, because more has arrived than is being served."""
        if self._turn_queued:
            self._again = True
        elif not self.closed and not self._transport.is_closing():
            self._turn_queued = True
            self.mute(TURN)
            self._turns.queue(self, more=more)

    def _turn(self) -> None:
        """Serve the complete frames, send their answers, then wake the fetches that wait for their records."""
        self._more = False
        if self._serving or self.closed:
            return
        if self._muted & STARTING:
            # uvloop starts to read after `connection_made`, even if reading was paused there.
            self._transport.pause_reading()
            return
        self._serving = True
        before = self._read
        try:
            self._serve_frames()
        except Exception as error:
            self._service.failed(self, error)
            self.abort()
        finally:
            self._serving = False
        if self.closed:
            return
        if self._outbox.queue:
            # `until_ms` is 0 while others wait.
            self._outbox.pump(limits.SEND_TURN_BYTES_MAX if self._turns.until_ms else limits.SEND_SLICE_BYTES_MAX)
        if self._budget.short and self._read != before:
            self.progress_ms = self.served_ms
        if not self._more:
            self._make_room()
        self._service.after_turn()

    def _serve_frames(self) -> None:
        service, outbox = self._service, self._outbox
        while not self.closed and not self.throttled_until_ms:
            start = self._read
            there = self._filled - start
            self._need = 0
            if there < 4:
                return
            size = _read_size(self.buffer, start)[0]
            if size < FRAME_BYTES_MIN or size > self.frame_bytes_max:
                seen = self.view[start : self._filled]
                service.refused(self, self._describe_bad_size(seen, size))
                self.abort()
                return
            if there >= 6:
                key = _read_key(self.buffer, start + 4)[0]
                if (self._pending and key != self._overlapping) or outbox.paused or outbox.cold:
                    return
                if size > limits.FRAME_BYTES_OF_ANY_API and size > service.frame_bytes_max(key):
                    service.refused(self, f"a request of {size} bytes is over the limit of API {key}")
                    self.abort()
                    return
            if there < size + 4:
                self._need = size + 4
                return
            if self.served_ms >= self._until_ms:
                self._more = True
                return
            if size > limits.LARGE_REQUEST_BYTES and not service.has_room_for(self, key):
                return
            self._key = key
            self._read = start + 4 + size
            service.serve(self, start + 4, start + 4 + size)

    def _describe_bad_size(self, seen: memoryview, size: int) -> str:
        if self.frame_bytes_max < size <= self._service.request_bytes_max:
            return f"a request of {size} bytes before login is over sasl.server.max.receive.size={self.frame_bytes_max}"
        return describe_bad_size(seen, size, self._service.request_bytes_max)

    def _make_room(self) -> None:
        """Make room for the next read, by moving the held bytes or with a larger buffer.

        A socket that was not read because its client had pipelined too much is read again only after that.
        """
        read, filled, capacity = self._read, self._filled, len(self.buffer)
        if read == filled:
            self._read = self._filled = 0
            if self._granted and (capacity > limits.RECEIVE_BUFFER_KEEP_BYTES or self._budget.short):
                self._move(limits.RECEIVE_BUFFER_START_BYTES)
            self._limit = len(self.buffer)
            if self._muted & AHEAD:
                self.unmute(AHEAD)
            return
        held = filled - read
        need = self._need
        if not need:
            if held >= limits.RECEIVE_AHEAD_BYTES_MAX:
                self.mute(AHEAD)
                return
            if capacity - filled < 1024 and not self._resize(capacity if held <= capacity // 2 else capacity * 2):
                return
            self._limit = len(self.buffer)
            if self._muted & AHEAD:
                self.unmute(AHEAD)
            return
        if read + need > capacity and not self._resize(capacity if need <= capacity else capacity_for(need)):
            return
        end = self._read + need
        # A large frame is read exactly to its end, so the next frame starts at the front of an empty buffer.
        self._limit = end if end - self._filled > 65536 else len(self.buffer)
        if self._muted & AHEAD:
            self.unmute(AHEAD)

    def _resize(self, capacity: int) -> bool:
        """Move the held bytes to a buffer of this capacity. False: no memory now; not read until there is."""
        if capacity != len(self.buffer):
            if self._wanted:
                return False
            if self.frame_bytes_max < self._service.request_bytes_max and not self._service.may_grow(self, capacity):
                self._service.refused(self, "memory for clients that have not logged in is used up")
                self.abort()
                return False
            if not self._budget.take(self, capacity):
                self._wanted = capacity
                self.mute(MEMORY)
                return False
        self._move(capacity)
        return True

    def _move(self, capacity: int) -> None:
        """Move the held bytes to a buffer of this capacity, which the budget has granted already."""
        held = self._filled - self._read
        if capacity == len(self.buffer):
            self.view[0:held] = self.view[self._read : self._filled]
        else:
            other = byte_buffer(capacity)
            view = memoryview(other)
            view[0:held] = self.view[self._read : self._filled]
            self.buffer, self.view = other, view
            granted = self._granted
            self._granted = 0 if capacity == limits.RECEIVE_BUFFER_START_BYTES else capacity
            if granted:
                self._budget.give(self, granted, self._granted)
        self._read, self._filled, self._limit = 0, held, capacity

    def memory_granted(self) -> None:
        if self.closed:
            # The connection was closed before the grant arrived: return it.
            self._budget.give(self, self._wanted, 0)
            return
        self._move(self._wanted)
        self._wanted = 0
        self.unmute(MEMORY)

    def overdue(self) -> None:
        held = f"it held {self._granted} bytes and did not finish its request"
        self._service.refused(self, f"{held}, while others waited for memory (queued.max.request.bytes)")
        self.abort()

    def shrink(self) -> None:
        """Release an empty grown buffer: called for idle connections."""
        if self._granted and self._read == self._filled and not self._serving and not self._wanted:
            self._read = self._filled = 0
            self._move(limits.RECEIVE_BUFFER_START_BYTES)

    def mute(self, reason: int) -> None:
        if not self._muted:
            self._transport.pause_reading()
        self._muted |= reason

    def unmute(self, reason: int) -> None:
        if self.closed or not self._muted & reason:
            return
        self._muted &= ~reason
        if reason == MEMORY:
            self._make_room()
        if not self._muted:
            self._transport.resume_reading()
        if reason == STARTING:
            self.drained()

    def throttle(self, throttle_ms: float) -> None:
        """Serve no further request for this time, not even one that has arrived already, and do not read."""
        until_ms = self._service.now_ms() + throttle_ms
        if self.closed or until_ms <= self.throttled_until_ms:
            return
        if self._throttle is not None:
            self._throttle.cancel()
        self.throttled_until_ms = until_ms
        self._throttle = self._service.call_later(throttle_ms, self._throttle_over)
        self.mute(THROTTLED)

    def _throttle_over(self) -> None:
        self._throttle = None
        self.throttled_until_ms = 0.0
        self.active_ms = self._service.now_ms()  # its client was told to be silent
        self.unmute(THROTTLED)
        if not self.closed:
            self.drained()

    # ---- out

    def send(self, answer: bytes | bytearray) -> None:
        """Answer the request that is being served, now."""
        if self._pending:
            slot = Slot(self)
            self._pending.append(slot)
            slot.send(answer)
            return
        self._outbox.add(answer)
        if not self._serving:
            self._outbox.pump()

    def send_parts(self, parts: Sequence[Part]) -> None:
        """Answer with bytes and file slices. The slices' files are retained already; they are released once sent."""
        if self._pending:
            slot = Slot(self)
            self._pending.append(slot)
            slot.send(parts)
            return
        self._outbox.add_parts(parts)
        if not self._serving:
            self._outbox.pump()

    def defer(self, *, barrier: bool) -> Slot:
        """Reserve the place of the current answer, to fill it later."""
        slot = self.deferred = Slot(self)
        self._pending.append(slot)
        full = len(self._pending) >= limits.PENDING_ANSWERS_MAX
        self._overlapping = NO_KEY if barrier or full else self._key
        return slot

    def slot_filled(self, slot: Slot) -> None:
        """A slot has its answer: send the answers that are now in order, and serve the frames that waited behind it."""
        self._service.answered(slot)
        if self.closed:
            self._release_unsent()
            return
        pending = self._pending
        while pending:
            answer = pending[0].answer
            if answer is None:
                break
            pending.popleft()
            if isinstance(answer, (bytes, bytearray)):
                if answer:
                    self._outbox.add(answer)
            else:
                self._outbox.add_parts(answer)
        if self._serving:
            return
        if pending:
            # The next answers often follow at once: then all are sent in one write.
            if self._outbox.queue and not self._pump_queued:
                self._pump_queued = True
                self._service.call_soon(self._queued_pump)
            return
        if self._outbox.queue:
            self._outbox.pump()
        if not self.closed:
            self.drained()

    def _queued_pump(self) -> None:
        self._pump_queued = False
        if self._outbox.queue and not self.closed:
            self._outbox.pump()

    def drained(self) -> None:
        """Nothing holds the frames back any more: serve them in a separate turn, to keep the stack flat."""
        if self._filled - self._read >= 4 or self._muted & AHEAD:
            self._queue_turn()

    def turn_wanted(self) -> None:
        """The outbox has sent its share and continues in the next turn."""
        self._queue_turn(more=True)

    def pause_writing(self) -> None:
        self._outbox.paused = True

    def resume_writing(self) -> None:
        now_ms = self.sent_ms = self._service.now_ms()
        self._outbox.resumed()
        turns = self._turns
        if now_ms < turns.until_ms or turns.opens(now_ms):
            self._outbox.pump_on()
        else:
            self._queue_turn()
        if self.owes_answer:
            self.settle_answer()

    def slices(self, took: Callable[[float], None] | None = None) -> RequestSlices:
        return self._service.slices(took)

    @property
    def unsent_bytes(self) -> int:
        return self._outbox.unsent_bytes

    async def answer_room(self, count: int) -> None:
        """Wait until the budget has room for a large answer of this connection. `settle_answer` follows its send."""
        await self._service.answer_budget.take(self, count)
        self.owes_answer = True

    def settle_answer(self) -> None:
        """Release the budget of a large answer once the peer has read it."""
        self.owes_answer = bool(self._outbox.unsent_bytes) and not self.closed
        if not self.owes_answer:
            self._service.answer_budget.give(self)

    def too_slow(self) -> None:
        silence_s = limits.ANSWER_SILENCE_MS // 1000
        self._service.refused(
            self, f"it read nothing of an answer of {self.unsent_bytes} bytes for {silence_s} s, and memory was short"
        )
        self.abort()

    # ---- end

    def close(self) -> None:
        """Send what is due, then close."""
        if not self.closed:
            self._transport.close()

    def expire(self) -> None:
        """Close without waiting for a peer that has read nothing for too long."""
        if self._transport.get_write_buffer_size():
            self.abort()
        else:
            self.close()

    def fail(self, error: Exception) -> None:
        """Abort the connection after an error of its peer or in its service."""
        if not self.closed:
            self._service.failed(self, error)
            self.abort()

    async def serving(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work of a request; an exception closes this connection only."""
        try:
            await work
        except Exception as error:
            self.fail(error)

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._release_unsent()
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        if self.on_lost is not None:
            self.on_lost()
        if self.admitted:
            self._service.departed(self)
        # Free the buffer now: this object is part of a reference cycle and may live until the next collection.
        self.buffer = bytearray()
        self.view = memoryview(self.buffer)
        self._read = self._filled = self._limit = self._granted = 0

    def _release_unsent(self) -> None:
        self._outbox.clear()
        while self._pending and self._pending[0].answer is not None:
            answer = self._pending.popleft().answer
            if answer is not None and not isinstance(answer, (bytes, bytearray)):
                release(answer)


def capacity_for(need: int) -> int:
    """The buffer size for a frame: rounded up if the buffer may be kept, so that slightly larger frames fit too."""
    if need > limits.RECEIVE_BUFFER_KEEP_BYTES:
        return need
    return int(1 << (need - 1).bit_length())


def describe_bad_size(data: memoryview, size: int, size_max: int) -> str:
    """A guess at the protocol of these four bytes, to help find the misconfigured client."""
    start = bytes(data[:5])
    if start[:2] == b"\x16\x03":
        return "this is a TLS client on a plaintext port: set security.protocol=PLAINTEXT there, or use a TLS listener"
    if start[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"PRI "):
        return "this is an HTTP client on a Kafka port"
    if size < 0:
        return f"a frame of negative length {size}: this is not Kafka's protocol"
    if size < FRAME_BYTES_MIN:
        return f"a frame of {size} bytes is too short for a request header"
    return f"a frame of {size} bytes is over socket.request.max.bytes={size_max}"
