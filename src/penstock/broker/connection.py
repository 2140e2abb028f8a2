"""One client's connection: frames in, answers out in the order of their requests.

In: bytes are read into one buffer per connection that starts small and grows with what has arrived (never with
what the peer declares); a large frame is read exactly to its end, so that nothing is copied twice. Whole frames
are served straight from that buffer: a handler's view of it is dead when the handler returns.

Out: answers leave in request order. A handler answers at once (`send`), or takes a `Slot` (`defer`) and fills it
later; produce may overlap produce, everything else is a barrier that holds back the frames behind it. All answers of
one read leave in one write. File slices are read when the socket has room: a peer that has never read costs one chunk
(`limits.SEND_CHUNK_BYTES`), one that has read before and stopped what is filled ahead for it
(`limits.SEND_AHEAD_OF_READERS_BYTES`) and a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Protocol

from penstock.broker import limits
from penstock.log import Slice
from penstock.runtime import BufferedProtocol, Future, Transport

_SIZE = Struct(">i")
_read_size = _SIZE.unpack_from
_read_key = Struct(">h").unpack_from

FRAME_BYTES_MIN = 8
"""API key, version and correlation id."""

PRODUCE_KEY = 0

AHEAD, MEMORY, STARTING = 1, 2, 4
"""Why a socket is left unread: its client is ahead of its answers; the broker's receive budget is used up; the broker
is not ready to serve."""

Part = bytes | bytearray | Slice
Answer = bytes | bytearray | Sequence[Part]


class Service(Protocol):
    """What a connection needs of the broker behind it."""

    request_bytes_max: int
    ready: bool
    short_of_memory: bool
    """Someone waits for receive bytes: buffers that are not needed are to be given back at once."""

    def now_ms(self) -> float: ...
    def serve(self, connection: Connection, start: int, end: int) -> None:
        """Serve the request in `connection.buffer[start:end]`."""

    def frame_bytes_max(self, api_key: int) -> int:
        """The longest request of this API, or -1 if there is no such API."""

    def answered(self, slot: Slot) -> None:
        """A deferred request has its answer."""

    def after_turn(self) -> None:
        """The answers of one read have left: wake those who wait for what it wrote."""

    def admit(self, connection: Connection) -> bool:
        """May it stay, and hold its `receiving_bytes`?"""

    def departed(self, connection: Connection) -> None:
        """An admitted connection is gone, and its `receiving_bytes` with it."""

    def refused(self, connection: Connection, reason: str) -> None:
        """The peer sent what is not a request; the connection is closed."""

    def failed(self, connection: Connection, error: Exception) -> None:
        """A handler raised what it should not; the connection is closed."""

    def grow(self, connection: Connection, count: int) -> bool:
        """Ask for `count` more receive bytes (negative gives back). False: wait for `Connection.unmute(MEMORY)`."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object: ...


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("_answer", "_connection", "api", "arrived_ms")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answer: Answer | None = None
        self.api: object = None
        self.arrived_ms = 0.0

    @property
    def connection(self) -> Connection:
        return self._connection

    def send(self, answer: Answer) -> None:
        assert self._answer is None, "a request has one answer"
        self._answer = answer
        self._connection.slot_filled(self)

    @property
    def answer(self) -> Answer | None:
        return self._answer


class ChunkPool:
    """Chunks that file bytes pass through on their way to a socket; few are enough while sockets keep up."""

    __slots__ = ("_free",)

    KEPT = 16

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(limits.SEND_CHUNK_BYTES)

    def give(self, chunk: bytearray) -> None:
        if len(self._free) < self.KEPT:
            self._free.append(chunk)


class Connection(BufferedProtocol):
    __slots__ = (
        "_barrier",
        "_chunks",
        "_cold",
        "_filled",
        "_head_done",
        "_lent",
        "_limit",
        "_muted",
        "_need",
        "_out",
        "_pending",
        "_read",
        "_reads",
        "_service",
        "_serving",
        "_slices",
        "_transport",
        "_turn_queued",
        "_write_paused",
        "_written",
        "active_ms",
        "admitted",
        "buffer",
        "client_software",
        "closed",
        "deferred",
        "number",
        "on_lost",
        "peer",
        "sent_ms",
        "served_ms",
        "view",
    )

    def __init__(self, service: Service, chunks: ChunkPool, number: int) -> None:
        self._service = service
        self._chunks = chunks
        self.number = number
        self.buffer = bytearray(limits.RECEIVE_BUFFER_START_BYTES)
        self.view = memoryview(self.buffer)
        self._read = 0
        self._filled = 0
        self._limit = len(self.buffer)
        self._need = 0
        self._muted = 0
        self._pending: deque[Slot] = deque()
        self._barrier = False
        self._serving = False
        self._out: deque[Part] = deque()
        self._slices = 0
        self._head_done = 0
        self._cold = False
        self._write_paused = False
        self._written = 0
        self._lent: deque[tuple[int, bytearray]] = deque()
        """Chunks that the transport may still hold, and how much will have been sent when it does not."""
        self._reads = False
        """The peer has been seen to read what did not fit the socket's buffer."""
        self._turn_queued = False
        self.closed = False
        self.admitted = False
        self.active_ms = 0.0
        """When bytes arrived last."""
        self.served_ms = 0.0
        """When the request before was served, in this turn: the next one waited until then."""
        """When bytes last came."""
        self.sent_ms = 0.0
        """When a peer that had fallen behind last took what waited for it."""
        self.peer = ""
        self.client_software = ""
        self.deferred: Slot | None = None
        """The slot that the request being served has taken, if it took one."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the connection is gone, so that what is parked for it goes too."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self.active_ms = self._service.now_ms()
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        transport.set_write_buffer_limits(high=limits.SEND_HIGH_WATER_BYTES, low=limits.SEND_HIGH_WATER_BYTES)
        self.admitted = self._service.admit(self)
        if not self.admitted:
            self.abort()
        elif not self._service.ready:
            self.mute(STARTING)

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def receiving_bytes(self) -> int:
        return len(self.buffer)

    @property
    def mid_request(self) -> bool:
        """Part of a request has arrived and nothing but the peer holds up the rest."""
        return self._filled > self._read and not self._pending and not self._write_paused and not self._muted

    @property
    def waiting(self) -> bool:
        """Requests of this client wait for their answer (a long poll, a commit)."""
        return bool(self._pending or self._out)

    @property
    def blocked(self) -> bool:
        """Answers wait for a peer that does not read."""
        return self._write_paused

    @property
    def parked(self) -> bool:
        """A long poll waits for data, and loses nothing if it is cut short."""
        return self.on_lost is not None

    # ---- in

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view[self._filled : self._limit]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self.active_ms = self.served_ms = self._service.now_ms()
        self._turn()

    def eof_received(self) -> bool:
        return False

    def _turn(self) -> None:
        """Serve the frames that are there, send their answers, then wake whoever waited for what they wrote."""
        if self._serving or self.closed or self._muted & STARTING:
            return
        self._serving = True
        try:
            self._serve_frames()
        except Exception as error:
            self._service.failed(self, error)
            self.abort()
        finally:
            self._serving = False
        if self.closed:
            return
        if self._out:
            self._pump()
        self._make_room()
        self._service.after_turn()

    def _serve_frames(self) -> None:
        service = self._service
        while not self.closed:
            start = self._read
            there = self._filled - start
            self._need = 0
            if there < 4:
                return
            size = _read_size(self.buffer, start)[0]
            if size < FRAME_BYTES_MIN or size > service.request_bytes_max:
                seen = self.view[start : self._filled]
                service.refused(self, describe_bad_size(seen, size, service.request_bytes_max))
                self.abort()
                return
            if there >= 6:
                key = _read_key(self.buffer, start + 4)[0]
                if (self._pending and (self._barrier or key != PRODUCE_KEY)) or self._write_paused or self._cold:
                    return
                if size > limits.FRAME_BYTES_OF_ANY_API and size > service.frame_bytes_max(key):
                    service.refused(self, f"a request of {size} bytes is beyond what API {key} may take")
                    self.abort()
                    return
            if there < size + 4:
                self._need = size + 4
                return
            self._read = start + 4 + size
            service.serve(self, start + 4, start + 4 + size)

    def _make_room(self) -> None:
        """Leave room for the next read, by moving or growing the buffer as far as what has arrived justifies.

        Only then is a socket read again that was left alone because its client was ahead: a full buffer takes nothing.
        """
        read, filled, capacity = self._read, self._filled, len(self.buffer)
        if read == filled:
            self._read = self._filled = 0
            if capacity > limits.RECEIVE_BUFFER_START_BYTES and (
                capacity > limits.RECEIVE_BUFFER_KEEP_BYTES or self._service.short_of_memory
            ):
                self._resize(limits.RECEIVE_BUFFER_START_BYTES)
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
        if read + need > capacity:
            wanted = capacity if need <= capacity else min(need, max(2 * capacity, 2 * held))
            if not self._resize(wanted):
                return
        end = self._read + need
        # A large frame is read exactly to its end: what follows then starts at the front of an empty buffer.
        self._limit = min(end, len(self.buffer)) if end - self._filled > 65536 else len(self.buffer)
        if self._muted & AHEAD:
            self.unmute(AHEAD)

    def _resize(self, capacity: int) -> bool:
        """Move what is held to the front of a buffer of this capacity. False: no memory now, muted until there is."""
        held = self._filled - self._read
        if capacity == len(self.buffer):
            self.view[0:held] = self.view[self._read : self._filled]
        else:
            if not self._service.grow(self, capacity - len(self.buffer)):
                self.mute(MEMORY)
                return False
            grown = bytearray(capacity)
            grown[0:held] = self.view[self._read : self._filled]
            self.buffer = grown
            self.view = memoryview(grown)
        self._read, self._filled, self._limit = 0, held, capacity
        return True

    def shrink(self) -> None:
        """Give back a grown buffer that nothing is in: called for connections that have been idle."""
        if self._read == self._filled and len(self.buffer) > limits.RECEIVE_BUFFER_START_BYTES and not self._serving:
            self._read = self._filled = 0
            self._resize(limits.RECEIVE_BUFFER_START_BYTES)

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
            self._resume()

    # ---- out

    def send(self, answer: bytes | bytearray) -> None:
        """Answer the request that is being served, now."""
        if self._pending:
            slot = Slot(self)
            self._pending.append(slot)
            slot.send(answer)
            return
        self._out.append(answer)
        if not self._serving:
            self._pump()

    def send_parts(self, parts: Sequence[Part]) -> None:
        """Answer with bytes and file slices. The slices' files are retained already; they are released once sent."""
        if self._pending:
            slot = Slot(self)
            self._pending.append(slot)
            slot.send(parts)
            return
        self._enqueue(parts)
        if not self._serving:
            self._pump()

    def defer(self, *, barrier: bool) -> Slot:
        """Take the place of the answer that is due, to fill it later."""
        slot = self.deferred = Slot(self)
        self._pending.append(slot)
        if barrier:
            self._barrier = True
        if len(self._pending) >= limits.PENDING_ANSWERS_MAX:
            self._barrier = True
        return slot

    def slot_filled(self, slot: Slot) -> None:
        """A slot has its answer: send what is now in order, and go on with the frames that waited behind it."""
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
                    self._out.append(answer)
            else:
                self._enqueue(answer)
        if not pending:
            self._barrier = False
        if self._serving:
            return
        if self._out:
            self._pump()
        if not pending and not self.closed:
            self._resume()

    def _resume(self) -> None:
        """Nothing holds the frames back any more: serve them in a turn of their own, so that stacks stay flat."""
        if (self._filled - self._read >= 4 or self._muted & AHEAD) and not self._turn_queued:
            self._turn_queued = True
            self._service.call_soon(self._queued_turn)

    def _queued_turn(self) -> None:
        self._turn_queued = False
        self.served_ms = self._service.now_ms()
        self._turn()

    def _enqueue(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._out.append(part)
            if type(part) is Slice:
                self._slices += 1

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._reads = True
        self.sent_ms = self._service.now_ms()
        if self.closed:
            return
        if self._out:
            self._pump()
        if not self._write_paused:
            self._resume()

    def _pump(self) -> None:
        """Hand the queue to the transport, as far as it takes it."""
        out = self._out
        if self._is_full() or self._cold or self.closed:
            return
        if not self._slices:
            if len(out) == 1:
                self._write(out.popleft())  # type: ignore[arg-type]
            else:
                data = b"".join(out)  # type: ignore[arg-type]
                out.clear()
                self._write(data)
            return
        sent = 0
        while out and not self._is_full() and not self._cold:
            if sent >= limits.SEND_TURN_BYTES_MAX:
                self._service.call_soon(self._pump_again)
                return
            sent += self._send_chunk()
            if self.closed:
                return

    def _is_full(self) -> bool:
        """Whether more would only wait in memory. A small high-water mark makes the transport send at once; it is not
        how much may wait for a peer that reads."""
        if not self._write_paused:
            return False
        return not self._reads or self._transport.get_write_buffer_size() >= limits.SEND_AHEAD_OF_READERS_BYTES

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += len(data)
        self._transport.write(data)

    def _reclaim(self) -> None:
        """Take back the chunks that the transport has sent: it keeps what it was given, not a copy."""
        lent = self._lent
        sent = self._written - self._transport.get_write_buffer_size()
        while lent and lent[0][0] <= sent:
            self._chunks.give(lent.popleft()[1])

    def _pump_again(self) -> None:
        if self._out:
            self._pump()
        if not self._write_paused and not self._out and not self.closed:
            self._resume()

    def _send_chunk(self) -> int:
        """Fill one chunk from the front of the queue and write it."""
        out = self._out
        queued = -self._head_done
        for part in out:
            queued += part.size if type(part) is Slice else len(part)  # type: ignore[arg-type]
        pooled = queued > limits.SEND_HIGH_WATER_BYTES
        # The transport sends a small write at the end of the turn and keeps its buffer until then: one of its own.
        if pooled:
            self._reclaim()
            chunk = self._chunks.take()
        else:
            chunk = bytearray(queued)
        view = memoryview(chunk)
        capacity = len(chunk)
        filled = 0
        while out and filled < capacity:
            head = out[0]
            if type(head) is Slice:
                done = self._head_done
                want = min(head.size - done, capacity - filled)
                try:
                    got = head.file.try_pread_into(view[filled : filled + want], head.position + done)
                except OSError as error:
                    self._service.failed(self, error)
                    self.abort()
                    return 0
                if not got:
                    if not filled:
                        self._read_cold(head, want, head.position + done)
                    break
                filled += got
                self._advance_slice(head, got)
            else:
                count = len(head)  # type: ignore[arg-type]
                if count > capacity - filled:
                    if filled:
                        break
                    out.popleft()
                    if pooled:
                        self._chunks.give(chunk)
                    self._write(head)  # type: ignore[arg-type]
                    return count
                view[filled : filled + count] = head  # type: ignore[assignment]
                filled += count
                out.popleft()
        if filled:
            self._write(view[:filled])
        if pooled:
            self._lent.append((self._written, chunk))
            self._reclaim()
        return filled

    def _advance_slice(self, head: Slice, count: int) -> None:
        self._head_done += count
        if self._head_done == head.size:
            self._out.popleft()
            self._slices -= 1
            self._head_done = 0
            head.file.release()

    def _read_cold(self, head: Slice, size: int, position: int) -> None:
        """The page cache has not got it: a thread reads it while the loop goes on."""
        self._cold = True
        head.file.pread(size, position).add_done_callback(self._cold_done)

    def _cold_done(self, future: Future[bytes]) -> None:
        self._cold = False
        if self.closed:
            self._release_unsent()
            return
        error = future.exception()
        if error is not None or not future.result():
            self._service.failed(self, RuntimeError(f"a log file ended early or could not be read: {error}"))
            self.abort()
            return
        data = future.result()
        head = self._out[0]
        assert type(head) is Slice
        self._advance_slice(head, len(data))
        self._write(data)
        self._pump_again()

    # ---- end

    def close(self) -> None:
        """Send what is due, then close."""
        if not self.closed:
            self._transport.close()

    def expire(self) -> None:
        """Close, and do not wait for a peer that has taken nothing for so long."""
        if self._transport.get_write_buffer_size():
            self.abort()
        else:
            self.close()

    def fail(self, error: Exception) -> None:
        """End it, for what its peer did or what went wrong for it."""
        if not self.closed:
            self._service.failed(self, error)
            self.abort()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if not self._cold:
            self._release_unsent()
        if self.on_lost is not None:
            self.on_lost()
        if self.admitted:
            self._service.departed(self)

    def _release_unsent(self) -> None:
        for part in self._out:
            if type(part) is Slice:
                part.file.release()
        self._out.clear()
        self._slices = 0
        while self._pending and self._pending[0].answer is not None:
            answer = self._pending.popleft().answer
            if answer is not None and not isinstance(answer, (bytes, bytearray)):
                for part in answer:
                    if type(part) is Slice:
                        part.file.release()


def describe_bad_size(data: memoryview, size: int, size_max: int) -> str:
    """What those four bytes most likely are, for whoever has to find the misconfigured client."""
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
