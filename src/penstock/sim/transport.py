"""TCP connections of the simulated network: ordered bytes, late, in pieces, with limits and resets.

A `Pipe` is one direction: segments in transit and the receiver's kernel buffer. Together they hold at most the
network's `socket_buffer_bytes`; further bytes wait in the sender's transport, which tells its protocol to pause.

A `SimTransport` behaves like uvloop's. Where that depends on chance, it picks the behaviour that finds more bugs:

- data passed to `write` is not copied until the kernel takes it, at the end of the loop iteration or later, so a buffer
  that is changed meanwhile is sent changed, and a bytearray cannot be resized;
- `write` after `close` is ignored until `connection_lost` was called, and raises RuntimeError from then on;
- closing with unread bytes sends a reset, and a reset discards what the peer had not read;
- an exception in `get_buffer`, `buffer_updated` or `eof_received` closes that connection and is reported.
"""

from __future__ import annotations

import errno
from asyncio import BufferedProtocol
from collections import deque
from typing import TYPE_CHECKING, Any
from zlib import crc32

from penstock.runtime import Buffer, File

if TYPE_CHECKING:
    from penstock.sim.host import Process
    from penstock.sim.network import Network

__all__ = ["Pipe", "SimSocket", "SimTransport"]

HIGH_WATER_BYTES = 65536
READ_HINT_BYTES = 65536
READS_PER_TURN = 16
RETRANSMIT_FIRST_MS = 200.0
RESET_ON_DEATH_PROBABILITY = 0.3
SHORT_SEND_PROBABILITY = 0.1


class Pipe:
    """One direction of a connection."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.network = network
        self.world = network.world
        self.link = network.link(source, target)
        self.back = network.link(target, source)
        self.sender: SimTransport
        self.receiver: SimTransport
        self.received = bytearray()
        self.finished = False
        self.is_broken = False
        self._segments: deque[tuple[float, bytes | None]] = deque()
        self._flight_bytes = 0
        self._last_arrival_ms = 0.0
        self._arrival_scheduled = False
        self._blocked_since_ms: float | None = None
        self._retransmit_ms = RETRANSMIT_FIRST_MS

    @property
    def room_bytes(self) -> int:
        return max(0, self.network.socket_buffer_bytes - self._flight_bytes - len(self.received))

    def send(self, data: bytes | None) -> None:
        """Sends bytes, or the end of the stream (None)."""
        if self.is_broken:
            return
        world = self.world
        now_ms = world.now_ms
        if self._segments and world.rng.random() < self.link.merge_probability:
            arrival_ms = self._last_arrival_ms
        else:
            arrival_ms = max(self._last_arrival_ms, now_ms + self.link.latency_ms(len(data) if data else 0))
        self._last_arrival_ms = arrival_ms
        self._segments.append((arrival_ms, data))
        if data is not None:
            self._flight_bytes += len(data)
        self._schedule_arrival(arrival_ms - now_ms)

    def break_off(self) -> None:
        """Stops all further delivery."""
        self.is_broken = True
        self._segments.clear()
        self.received.clear()

    def _schedule_arrival(self, delay_ms: float) -> None:
        if not self._arrival_scheduled:
            self._arrival_scheduled = True
            self.world.after(max(0.0, delay_ms), self._arrive)

    def _arrive(self) -> None:
        self._arrival_scheduled = False
        if self.is_broken:
            return
        now_ms = self.world.now_ms
        if self.link.is_cut or not self.receiver.process.host.is_powered:
            self._retransmit(now_ms)
            return
        self._blocked_since_ms = None
        self._retransmit_ms = RETRANSMIT_FIRST_MS
        if not self.receiver.accepts_bytes:
            self._arrive_at_nobody()
            return
        arrived = False
        while self._segments and self._segments[0][0] <= now_ms:
            data = self._segments.popleft()[1]
            if data is None:
                self.finished = True
            else:
                self._flight_bytes -= len(data)
                self.received += data
            arrived = True
        if arrived:
            self.receiver.wake_reader()
        if self._segments:
            self._schedule_arrival(self._segments[0][0] - now_ms)

    def _arrive_at_nobody(self) -> None:
        """The receiver has closed or ended: its kernel answers bytes with a reset."""
        has_bytes = any(data is not None for _, data in self._segments)
        self.break_off()
        if has_bytes:
            self.sender.reset_after(self.back.latency_ms(0), "the peer is gone")

    def _retransmit(self, now_ms: float) -> None:
        if self.sender.is_abandoned:
            self.break_off()
            return
        if self._blocked_since_ms is None:
            self._blocked_since_ms = now_ms
        if now_ms - self._blocked_since_ms > self.network.retransmit_limit_ms:
            self.break_off()
            self.sender.process.deliver(self.sender.lose, TimeoutError(errno.ETIMEDOUT, "connection timed out"))
            return
        self._schedule_arrival(self._retransmit_ms)
        self._retransmit_ms = min(self._retransmit_ms * 2, self.network.retransmit_max_ms)

    def take(self, size: int) -> bytes:
        """Reads for the receiver; an acknowledgement tells the sender about the free space."""
        data = bytes(self.received[:size])
        del self.received[:size]
        if self.sender.is_write_blocked:
            self._acknowledge()
        return data

    def _acknowledge(self) -> None:
        if self.back.is_cut:
            self.world.after(RETRANSMIT_FIRST_MS, self._acknowledge)
        else:
            self.world.after(self.back.latency_ms(0), self.sender.process.deliver, self.sender.flush)


class SimTransport:
    """One end of a connection, as seen by its protocol."""

    def __init__(self, process: Process, local: tuple[str, int], remote: tuple[str, int]) -> None:
        self.process = process
        self.world = process.world
        self.number = self.world.next_object_number()
        self.outgoing: Pipe
        self.incoming: Pipe
        self.is_write_blocked = False
        self.is_abandoned = False
        self._protocol: BufferedProtocol | None = None
        self._extra = {"sockname": local, "peername": remote, "socket": None}
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._high_bytes = HIGH_WATER_BYTES
        self._low_bytes = HIGH_WATER_BYTES // 4
        self._is_reading = True
        self._is_protocol_paused = False
        self._is_reader_queued = False
        self._is_closing = False
        self._is_losing = False
        self._is_lost = False
        process.transports[self.number] = self

    def __repr__(self) -> str:
        local, remote = self._extra["sockname"], self._extra["peername"]
        return f"<SimTransport {local} to {remote}{' closing' if self._is_closing else ''}>"

    # --- for protocols -----------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if self._is_lost:
            raise RuntimeError(f"unable to perform operation on {self!r}; the handler is closed")
        view = memoryview(data)
        if not len(view) or self._is_closing:
            return
        self._unsent.append(view)
        self._unsent_bytes += len(view)
        if self._unsent_bytes > self._high_bytes:
            self.flush()
            if self._unsent_bytes > self._high_bytes and not self._is_protocol_paused:
                self._is_protocol_paused = True
                self._tell("pause_writing")
        elif len(self._unsent) == 1:
            self.process.loop.flush_later(self)

    def writelines(self, parts: list[Buffer]) -> None:
        for part in parts:
            self.write(part)

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._is_lost:
            raise RuntimeError(f"unable to perform operation on {self!r}; the handler is closed")
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high_bytes = high
        self._low_bytes = high // 4 if low is None else low
        if not self._high_bytes >= self._low_bytes >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.wake_reader()

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Sends what was written, then closes."""
        if self._is_closing:
            return
        self._is_closing = True
        self.flush()
        if not self._unsent:
            self._end_gracefully()

    def abort(self) -> None:
        """Closes now. Bytes that the kernel has taken may still arrive."""
        if self._is_losing:
            return
        self._is_closing = True
        self._drop_unsent()
        self._end_gracefully()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get(name, default)

    def get_protocol(self) -> BufferedProtocol | None:
        return self._protocol

    def take_now(self, data: Buffer) -> int:
        """Writes directly to the kernel, bypassing the transport; sometimes takes less than there is room for."""
        assert not self._unsent, "the bytes would overtake those still in the transport"
        if self._is_losing:
            raise BrokenPipeError(errno.EPIPE, "the connection has ended")
        size = min(len(data), self.outgoing.room_bytes)
        if size > 1 and self.world.rng.random() < SHORT_SEND_PROBABILITY:
            size = self.world.rng.randint(1, size - 1)
        if size:
            self.outgoing.send(bytes(memoryview(data)[:size]))
        return size

    # --- lifecycle -----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the connection ended before it was opened."""
        return self._is_losing

    def open(self, protocol: BufferedProtocol) -> None:
        self._protocol = protocol
        try:
            protocol.connection_made(self)  # type: ignore[arg-type]
        except Exception as error:
            self._report("exception in connection_made", error)
            self.abort()
            return
        self.wake_reader()

    @property
    def accepts_bytes(self) -> bool:
        return not self._is_losing and not self.process.is_dead

    def reset_after(self, delay_ms: float, reason: str) -> None:
        """Schedules the arrival of a reset here. If it is lost, the next bytes sent from here provoke another."""
        self.world.after(delay_ms, self._reset_arrives, reason)

    def _reset_arrives(self, reason: str) -> None:
        if not self.incoming.link.is_cut:
            self.reset(reason)

    def reset(self, reason: str) -> None:
        if self.process.is_dead:
            return
        self.incoming.break_off()
        self.outgoing.break_off()
        self.process.deliver(self.lose, ConnectionResetError(errno.ECONNRESET, f"connection reset: {reason}"))

    def lose(self, error: Exception | None) -> None:
        """Ends the connection and tells the protocol, once."""
        if self._is_losing:
            return
        self._is_closing = True
        self._is_losing = True
        self._drop_unsent()
        self.process.loop.call_soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error: Exception | None) -> None:
        self.process.transports.pop(self.number, None)
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        except Exception as escaped:
            self._report("exception in connection_lost", escaped)
        finally:
            self._is_lost = True

    def _end_gracefully(self) -> None:
        if self._is_losing:
            return
        if self.incoming.received:
            self._send_reset("closed with unread data")
        else:
            self.outgoing.send(None)
        self.lose(None)

    def _send_reset(self, reason: str) -> None:
        self.outgoing.break_off()
        self.outgoing.receiver.reset_after(self.outgoing.link.latency_ms(0), reason)

    def process_died(self) -> None:
        """The kernel closes the connections of a dead process."""
        self._drop_unsent()
        if self._is_losing:
            return
        self._is_losing = True
        if self.incoming.received or self.world.rng.random() < RESET_ON_DEATH_PROBABILITY:
            self._send_reset("the peer's process ended")
        else:
            self.outgoing.send(None)

    def host_lost_power(self) -> None:
        """Neither end is closed and nothing is retransmitted: the peer must find out by itself."""
        self._drop_unsent()
        self._is_losing = True
        self.is_abandoned = True

    # --- writing -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Gives the kernel as much as it takes."""
        if self._is_losing:
            return
        while self._unsent and (room := self.outgoing.room_bytes):
            view = self._unsent.popleft()
            if len(view) > room:
                self._unsent.appendleft(view[room:])
                view = view[:room]
            self._unsent_bytes -= len(view)
            self.outgoing.send(bytes(view))
        self.is_write_blocked = bool(self._unsent)
        if self._is_protocol_paused and self._unsent_bytes <= self._low_bytes:
            self._is_protocol_paused = False
            self._tell("resume_writing")
        if self._is_closing and not self._unsent:
            self._end_gracefully()

    def _drop_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0
        self.is_write_blocked = False

    # --- reading -------------------------------------------------------------------------------------------------

    def wake_reader(self) -> None:
        has_news = self.incoming.received or self.incoming.finished
        if has_news and self._is_reading and not self._is_reader_queued and self._protocol is not None:
            self._is_reader_queued = True
            self.process.deliver(self._read)

    def _read(self) -> None:
        self._is_reader_queued = False
        for _ in range(READS_PER_TURN):
            if self._is_closing or not self._is_reading or not self.incoming.received:
                break
            if not self._read_once():
                return
        if self._is_closing or not self._is_reading:
            return
        if self.incoming.received:
            self.wake_reader()
        elif self.incoming.finished:
            self.incoming.finished = False
            self._end_of_stream()

    def _read_once(self) -> bool:
        protocol, pipe = self._protocol, self.incoming
        assert protocol is not None
        try:
            buffer = memoryview(protocol.get_buffer(READ_HINT_BYTES))
        except Exception as error:
            self._fail(error)
            return False
        if not len(buffer):
            self._fail(RuntimeError("get_buffer() returned an empty buffer"))
            return False
        size = min(len(buffer), len(pipe.received))
        if size > 1 and self.world.rng.random() < pipe.link.split_probability:
            size = self.world.rng.randint(1, size - 1)
        data = pipe.take(size)
        buffer[:size] = data
        buffer.release()
        self.world.trace("read", self.process.name, self.number, size, crc32(data))
        try:
            protocol.buffer_updated(size)
        except Exception as error:
            self._fail(error)
            return False
        return True

    def _end_of_stream(self) -> None:
        assert self._protocol is not None
        self.world.trace("eof", self.process.name, self.number)
        try:
            keep_open = self._protocol.eof_received()
        except Exception as error:
            self._fail(error)
            return
        if not keep_open:
            self.close()

    # --- errors --------------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        """Like uvloop after an exception in the protocol: reports it and drops the connection."""
        self._report(f"fatal error on {self!r}", error)
        self._drop_unsent()
        self._send_reset("the peer's protocol failed")
        self.lose(error)

    def _tell(self, method: str) -> None:
        try:
            getattr(self._protocol, method)()
        except Exception as error:
            self._report(f"protocol.{method}() failed", error)

    def _report(self, message: str, error: Exception) -> None:
        self.process.loop.call_exception_handler({"message": message, "exception": error})


class SimSocket:
    """`DirectSocket` of a simulated connection."""

    def __init__(self, transport: SimTransport) -> None:
        self._transport = transport

    def send(self, data: Buffer) -> int:
        return self._transport.take_now(data)

    def send_file(self, file: File, position: int, size: int) -> int | None:
        data = memoryview(bytearray(size))
        there = file.try_pread_into(data, position)
        return self._transport.take_now(data[:there]) if there else None
