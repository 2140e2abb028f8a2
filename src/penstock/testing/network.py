"""Connections that can be cut, and the node at their other end.

A cut acts on TCP like an unplugged cable: nothing arrives, no connection is closed, and after it heals the held bytes
arrive late. A gate on each connection holds bytes in both directions: it stops reading from the socket, and keeps what
its node writes. Connections that a node opens wait until the cut heals; those that a client opens are accepted by the
kernel, but get no response.

Identifying the peer: outgoing connections of nodes are bound to a port that is registered before they connect, so the
accepting node knows which node it is. Any other peer is a client.
"""

from __future__ import annotations

import socket
import threading
from asyncio import BufferedProtocol
from typing import Any

from penstock.runtime import Buffer, DirectSocket, File, Transport

__all__ = ["CLIENTS", "Gate", "GatedSocket", "GatedTransport", "Network", "reserve_port"]

HOST = "127.0.0.1"
CLIENTS = 0
"""The id that stands for all clients; nodes count from 1."""


class Network:
    """The current cuts, and the node of each port. Shared by the threads of all nodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cut: set[tuple[int, int]] = set()
        self._listens: dict[int, int] = {}
        self._connects: dict[int, int] = {}

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut

    def cut(self, source: int, target: int) -> None:
        with self._lock:
            self._cut.add((source, target))

    def heal(self, source: int, target: int) -> None:
        with self._lock:
            self._cut.discard((source, target))

    def heal_all(self) -> None:
        with self._lock:
            self._cut.clear()

    def listens(self, port: int, node_id: int) -> None:
        self._listens[port] = node_id

    def node_at(self, port: int) -> int:
        """The node that listens on this port, or CLIENTS."""
        return self._listens.get(port, CLIENTS)

    def connects(self, port: int, node_id: int) -> None:
        with self._lock:
            self._connects[port] = node_id

    def disconnected(self, port: int) -> None:
        with self._lock:
            self._connects.pop(port, None)

    def node_behind(self, port: int) -> int:
        """The node that connects from this port, or CLIENTS."""
        return self._connects.get(port, CLIENTS)


def reserve_port() -> socket.socket:
    """Reserves a free port: nothing listens there, and only this user's sockets that share the port can bind it."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((HOST, 0))
    return holder


class Gate(BufferedProtocol):
    """Sits between a connection's socket and the engine's protocol."""

    def __init__(self, inner: BufferedProtocol, network: Network, own_id: int, gates: dict[Gate, None]) -> None:
        self.inner = inner
        self.peer_id = CLIENTS
        self.transport: GatedTransport
        self._network = network
        self._own_id = own_id
        self._gates = gates
        self._port = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        local, remote = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        if remote:
            # One end is a listener: this node's, or that of the node it connected to.
            self.peer_id = self._network.node_at(remote[1]) or self._network.node_behind(remote[1])
        if local and self._network.node_behind(local[1]):
            self._port = local[1]
        self.transport = GatedTransport(transport)
        self._gates[self] = None
        self.adjust()
        self.inner.connection_made(self.transport)  # type: ignore[arg-type]

    def adjust(self) -> None:
        """Opens or closes the gate, according to the network's cuts."""
        self.transport.shut(
            incoming=self._network.is_cut(self.peer_id, self._own_id),
            outgoing=self._network.is_cut(self._own_id, self.peer_id),
        )

    def connection_lost(self, error: Exception | None) -> None:
        self._gates.pop(self, None)
        if self._port:
            self._network.disconnected(self._port)
        self.inner.connection_lost(error)

    def get_buffer(self, sizehint: int) -> Any:
        return self.inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.inner.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


class GatedTransport:
    """The transport that the engine's protocol sees."""

    def __init__(self, real: Transport) -> None:
        self.real = real
        self.outgoing_shut = False
        self._incoming_shut = False
        self._paused = False
        """Paused by the engine."""
        self._held: list[bytes] = []

    def shut(self, *, incoming: bool, outgoing: bool) -> None:
        if incoming != self._incoming_shut:
            self._incoming_shut = incoming
            if not self._paused and not self.real.is_closing():
                (self.real.pause_reading if incoming else self.real.resume_reading)()
        self.outgoing_shut = outgoing
        if not outgoing and self._held:
            held, self._held = self._held, []
            if not self.real.is_closing():
                self.real.write(b"".join(held))

    def write(self, data: Buffer) -> None:
        if self.outgoing_shut:
            # A copy: the caller may reuse its buffer once the transport reports that it holds nothing of it.
            self._held.append(bytes(data))
        else:
            self.real.write(data)

    def pause_reading(self) -> None:
        self._paused = True
        if not self._incoming_shut:
            self.real.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if not self._incoming_shut:
            self.real.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self.real.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.real.set_write_buffer_limits(high, low)

    def is_closing(self) -> bool:
        return self.real.is_closing()

    def close(self) -> None:
        self.real.close()

    def abort(self) -> None:
        self.real.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.real.get_extra_info(name, default)


class GatedSocket:
    """The socket that bypasses the transport. While outgoing bytes are cut it takes nothing, as if it were full."""

    __slots__ = ("_real", "_transport")

    def __init__(self, real: DirectSocket, transport: GatedTransport) -> None:
        self._real = real
        self._transport = transport

    def send(self, data: Buffer) -> int:
        return 0 if self._transport.outgoing_shut else self._real.send(data)

    def send_file(self, file: File, position: int, size: int) -> int | None:
        return 0 if self._transport.outgoing_shut else self._real.send_file(file, position, size)
