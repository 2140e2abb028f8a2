"""The send queue of a connection: bytes and file slices, sent in order as fast as the socket accepts them.

Large slices go from the page cache to the socket without passing through this process (`DirectSocket.send_file`). When
the socket is full, a small part is written to the transport instead, which calls back once it was sent. Small slices,
and all slices of a connection without a direct socket (TLS), are read into chunks and written like other bytes.

A peer that does not read costs next to nothing on the direct way; on the other, one chunk (`limits.SEND_CHUNK_BYTES`)
if it has never read, and up to `limits.SEND_AHEAD_OF_READERS_BYTES` more if it did and stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from penstock.broker import limits
from penstock.log import Slice
from penstock.runtime import DirectSocket, Future, Transport

Part = bytes | bytearray | Slice


class Owner(Protocol):
    """The connection."""

    closed: bool

    def drained(self) -> None:
        """Called when there is room again and the queue is empty."""

    def turn_wanted(self) -> None:
        """Called when more is queued than one turn may send: call `pump_on` in the connection's next turn."""

    def fail(self, error: Exception) -> None:
        """Called when a log file could not be read: close the connection and report it."""

    def abort(self) -> None:
        """Called when the peer has disconnected."""


class ChunkPool:
    """Reusable chunks for file bytes on their way to a socket; few are enough while sockets keep up."""

    __slots__ = ("_free",)

    KEPT = 16

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(limits.SEND_CHUNK_BYTES)

    def give(self, chunk: bytearray) -> None:
        if len(self._free) < self.KEPT:
            self._free.append(chunk)


class Outbox:
    __slots__ = (
        "_chunks",
        "_file_bytes",
        "_head_done",
        "_lent",
        "_owner",
        "_peer_reads",
        "_plain_bytes",
        "_socket",
        "_transport",
        "_written",
        "cold",
        "paused",
        "queue",
    )

    def __init__(self, owner: Owner, chunks: ChunkPool) -> None:
        self._owner = owner
        self._chunks = chunks
        self._transport: Transport
        self._socket: DirectSocket | None
        self.queue: deque[Part] = deque()
        self._file_bytes = 0
        """Bytes of unsent file slices in the queue."""
        self._plain_bytes = 0
        """Bytes of the other parts in the queue."""
        self._head_done = 0
        """Bytes of the queue's first part that have been sent."""
        self.cold = False
        """A thread is reading data that are not in the page cache."""
        self.paused = False
        """The transport's buffer holds unsent bytes."""
        self._written = 0
        self._lent: deque[tuple[int, bytearray]] = deque()
        """Chunks that the transport may still hold, each with the total of written bytes after which it is free."""
        self._peer_reads = False
        """The peer is known to read: it has read more than fits into the socket's buffer."""

    def attach(self, transport: Transport, socket: DirectSocket | None) -> None:
        self._transport = transport
        self._socket = socket
        # A low high-water mark makes the transport report at once; it does not limit how much may wait for a peer that
        # reads. Resuming only when its buffer is empty lets the direct socket take over.
        transport.set_write_buffer_limits(high=limits.SEND_HIGH_WATER_BYTES, low=0)

    def add(self, answer: bytes | bytearray) -> None:
        self.queue.append(answer)
        self._plain_bytes += len(answer)

    def add_parts(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self.queue.append(part)
            if isinstance(part, Slice):
                self._file_bytes += part.size
            else:
                self._plain_bytes += len(part)

    def resumed(self) -> None:
        """The transport has sent its buffer: `pump_on` may follow."""
        self.paused = False
        self._peer_reads = True

    def pump(self, most: int = limits.SEND_TURN_BYTES_MAX) -> None:
        """Send queued data while there is room, up to the limit of one turn."""
        queue = self.queue
        if self.cold or self._owner.closed:
            return
        if not self._file_bytes and not self._head_done:
            if not self._is_full():
                data = queue.popleft() if len(queue) == 1 else b"".join(queue)  # type: ignore[arg-type]
                queue.clear()
                self._plain_bytes = 0
                self._write(data)  # type: ignore[arg-type]
            return
        sent = 0
        while queue and not self.cold:
            if sent >= most:
                self._owner.turn_wanted()
                return
            if self._socket is not None and self._is_direct():
                sent += self._send_direct(self._socket, most - sent)
            elif self._is_full():
                return
            else:
                sent += self._send_chunk(limits.SEND_CHUNK_BYTES)
            if self._owner.closed:
                return

    def pump_on(self, most: int = limits.SEND_TURN_BYTES_MAX) -> None:
        """Go on sending; once all is sent, go on serving."""
        if self.queue:
            self.pump(most)
        if not self.paused and not self.queue and not self._owner.closed:
            self._owner.drained()

    def _is_full(self) -> bool:
        """Whether more would only wait in memory."""
        if not self.paused:
            return False
        return not self._peer_reads or self._transport.get_write_buffer_size() >= limits.SEND_AHEAD_OF_READERS_BYTES

    # ---- past the transport

    def _is_direct(self) -> bool:
        return self._file_bytes >= limits.SENDFILE_BYTES_MIN and not self._transport.get_write_buffer_size()

    def _send_direct(self, socket: DirectSocket, most: int) -> int:
        """Send from the front of the queue until the socket is full, the queue empty or enough sent.

        Returns the bytes sent, and `SEND_CALL_BYTES` for each call: many small batches are not sent in one turn."""
        queue = self.queue
        sent = 0
        try:
            while queue and sent < most:
                head, done = queue[0], self._head_done
                if isinstance(head, Slice):
                    size = min(head.size - done, limits.SENDFILE_PIECE_BYTES)
                    taken = socket.send_file(head.file, head.position + done, size)
                    if taken is None:
                        self._read_cold(head, size)
                        return sent
                else:
                    size = len(head) - done
                    taken = socket.send(memoryview(head)[done:])
                sent += taken + limits.SEND_CALL_BYTES
                if taken:
                    self._advance(head, taken)
                if taken < size:
                    # As much as makes the transport wait for room, and call back.
                    return sent + self._send_chunk(2 * limits.SEND_HIGH_WATER_BYTES)
        except ConnectionError:
            self._owner.abort()
        except OSError as error:
            self._owner.fail(error)
        return sent

    # ---- through the transport

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += len(data)
        self._transport.write(data)

    def _send_chunk(self, capacity: int) -> int:
        """Fill a chunk from the front of the queue and write it."""
        queue = self.queue
        pooled = capacity == limits.SEND_CHUNK_BYTES and self._file_bytes > limits.SEND_HIGH_WATER_BYTES
        # The transport sends a small write at the end of the turn and keeps its buffer until then: one of its own.
        if pooled:
            self._reclaim()
            chunk = self._chunks.take()
        else:
            chunk = bytearray(min(capacity, self._file_bytes + self._plain_bytes))
        view = memoryview(chunk)
        capacity = len(chunk)
        filled = 0
        try:
            while queue and filled < capacity:
                head, done = queue[0], self._head_done
                if isinstance(head, Slice):
                    size = min(head.size - done, capacity - filled)
                    got = head.file.try_pread_into(view[filled : filled + size], head.position + done)
                    if not got:
                        if not filled:
                            self._read_cold(head, size)
                        break
                else:
                    got = min(len(head) - done, capacity - filled)
                    view[filled : filled + got] = memoryview(head)[done : done + got]
                filled += got
                self._advance(head, got)
        except OSError as error:
            self._owner.fail(error)
            return 0
        if filled:
            self._write(view[:filled])
        if pooled:
            self._lent.append((self._written, chunk))
            self._reclaim()
        return filled

    @property
    def unsent_bytes(self) -> int:
        return self._file_bytes + self._plain_bytes + self._transport.get_write_buffer_size()

    def _reclaim(self) -> None:
        """Take back the chunks that the transport has sent: it keeps what it was given, not a copy."""
        lent = self._lent
        sent = self._written - self._transport.get_write_buffer_size()
        while lent and lent[0][0] <= sent:
            self._chunks.give(lent.popleft()[1])

    def _advance(self, head: Part, count: int) -> None:
        done = self._head_done + count
        if isinstance(head, Slice):
            self._file_bytes -= count
            size = head.size
        else:
            self._plain_bytes -= count
            size = len(head)
        if done < size:
            self._head_done = done
            return
        self._head_done = 0
        self.queue.popleft()
        if isinstance(head, Slice):
            head.file.release()

    # ---- from the device

    def _read_cold(self, head: Slice, size: int) -> None:
        """The page cache has not got it: a thread reads it while the loop goes on."""
        self.cold = True
        head.file.pread(size, head.position + self._head_done).add_done_callback(self._cold_done)

    def _cold_done(self, future: Future[bytes]) -> None:
        self.cold = False
        if self._owner.closed:
            self.clear()
            return
        error = future.exception()
        if error is not None or not future.result():
            self._owner.fail(RuntimeError(f"a log file ended early or could not be read: {error}"))
            return
        data = future.result()
        self._advance(self.queue[0], len(data))
        self._write(data)
        self.pump_on()

    # ---- end

    def clear(self) -> None:
        """Release what will not be sent. A file that a thread reads stays until the thread is done."""
        if self.cold:
            return
        release(self.queue)
        self.queue.clear()
        self._file_bytes = self._plain_bytes = 0
        self._head_done = 0


def release(parts: Sequence[Part]) -> None:
    """Let go of the files of an answer that is not sent."""
    for part in parts:
        if isinstance(part, Slice):
            part.file.release()
