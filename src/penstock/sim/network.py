"""The simulated network: links between hosts, listening sockets, and faults.

A link is one direction between two hosts, with a varying latency and a switch. While a link is cut nothing on it
arrives; TCP retransmits until the link is back or a timeout ends the connection. So a cut delays bytes and never loses,
repeats or reorders them within a connection, and an idle connection does not notice.
"""

from __future__ import annotations

import errno
import socket
from asyncio import BufferedProtocol, Future
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.sim.transport import Pipe, SimTransport

if TYPE_CHECKING:
    from penstock.sim.host import Process
    from penstock.sim.world import World

__all__ = ["Link", "Network", "SimListener"]

ANY_ADDRESS = ("", "0.0.0.0", "::")
OWN_ADDRESS = ("localhost", "127.0.0.1", "::1")
EPHEMERAL_PORT_FIRST = 32768
PORT_MAX = 65_535
SOCKET_BUFFER_BYTES = 256 * 1024
RETRANSMIT_LIMIT_MS = 30_000.0
RETRANSMIT_MAX_MS = 4_000.0
"""The longest pause between two retransmissions. Shorter than on Linux, so that a short trial sees many of them."""
LINUX_RETRANSMIT_LIMIT_MS = 924_600.0
LINUX_RETRANSMIT_MAX_MS = 120_000.0
"""Linux's defaults (tcp_retries2, TCP_RTO_MAX)."""
CONNECT_RETRIES_MS = (1000.0, 2000.0, 4000.0)

LATENCY_MS = 0.2
JITTER_MS = 0.3
TAIL_PROBABILITY = 0.01
TAIL_MS = 20.0
LOOPBACK_LATENCY_MS = 0.02
BYTES_PER_MS = 1_000_000
MERGE_PROBABILITY = 0.3
SPLIT_PROBABILITY = 0.1


class Link:
    """One direction between two hosts. Attributes may be changed at any time."""

    def __init__(self, world: World, *, is_loopback: bool) -> None:
        self._rng = world.rng
        self.base_ms = LOOPBACK_LATENCY_MS if is_loopback else LATENCY_MS
        self.jitter_ms = LOOPBACK_LATENCY_MS if is_loopback else JITTER_MS
        self.tail_probability = TAIL_PROBABILITY
        self.bytes_per_ms = BYTES_PER_MS
        self.merge_probability = MERGE_PROBABILITY
        self.split_probability = SPLIT_PROBABILITY
        self.is_cut = False

    def latency_ms(self, size_bytes: int) -> float:
        chance = self._rng.random
        tail_ms = TAIL_MS * chance() if chance() < self.tail_probability else 0.0
        return self.base_ms + self.jitter_ms * chance() + tail_ms + size_bytes / self.bytes_per_ms


class SimListener:
    """A listening socket; it ends with its process."""

    def __init__(
        self, network: Network, process: Process, address: tuple[str, int], factory: Callable[[], BufferedProtocol]
    ) -> None:
        self.process = process
        self.factory = factory
        self._network = network
        self._address = address

    @property
    def port(self) -> int:
        return self._address[1]

    def close(self) -> None:
        self._network.stop_listening(self._address, self)


class Network:
    """All links and listeners of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.socket_buffer_bytes = SOCKET_BUFFER_BYTES
        self.retransmit_limit_ms = RETRANSMIT_LIMIT_MS
        self.retransmit_max_ms = RETRANSMIT_MAX_MS
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._next_port = EPHEMERAL_PORT_FIRST

    # --- faults ------------------------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self.world, is_loopback=source == target)
        return link

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Blocks everything from `source` to `target`, and the other way unless `one_way`."""
        self._switch(source, target, one_way, is_cut=True)

    def heal(self, source: str, target: str, *, one_way: bool = False) -> None:
        self._switch(source, target, one_way, is_cut=False)

    def isolate(self, name: str) -> None:
        """Cuts a host off from every other existing host."""
        for other in self.world.hosts:
            if other != name:
                self.cut(name, other)

    def partition(self, *groups: Sequence[str]) -> None:
        """Cuts all links between hosts of different groups."""
        for index, group in enumerate(groups):
            for other in groups[index + 1 :]:
                for source in group:
                    for target in other:
                        self.cut(source, target)

    def heal_all(self) -> None:
        self.world.trace("heal all")
        for link in self._links.values():
            link.is_cut = False

    def retransmit_as_linux(self) -> None:
        """Uses Linux's limits for retransmission, for trials that measure time."""
        self.retransmit_limit_ms = LINUX_RETRANSMIT_LIMIT_MS
        self.retransmit_max_ms = LINUX_RETRANSMIT_MAX_MS

    def slow(self, source: str, target: str, latency_ms: float, *, one_way: bool = False) -> None:
        self.link(source, target).base_ms = latency_ms
        if not one_way:
            self.link(target, source).base_ms = latency_ms

    def reset_connections(self, name: str, *, count: int | None = None) -> int:
        """Resets some (or all) connections of a host, as a firewall would; returns how many."""
        process = self.world.host(name).process
        if process is None or process.is_dead:
            return 0
        ends = list(process.transports.values())
        self.world.rng.shuffle(ends)
        ends = ends[:count]
        for end in ends:
            peer = end.outgoing.receiver
            end.outgoing.break_off()
            end.incoming.break_off()
            end.reset("injected")
            self.world.after(end.outgoing.link.latency_ms(0), peer.reset, "injected")
        self.world.trace("reset", name, len(ends))
        return len(ends)

    def _switch(self, source: str, target: str, one_way: bool, *, is_cut: bool) -> None:
        assert source != target, f"{source} always reaches itself"
        self.world.trace("cut" if is_cut else "heal", source, target, one_way)
        self.link(source, target).is_cut = is_cut
        if not one_way:
            self.link(target, source).is_cut = is_cut

    # --- for the runtime ---------------------------------------------------------------------------------------

    def listen(self, process: Process, host: str, port: int, factory: Callable[[], BufferedProtocol]) -> SimListener:
        name = process.host.name
        if host not in ANY_ADDRESS and host not in OWN_ADDRESS and host != name:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {name}")
        if port == 0:
            port = self._ephemeral_port()
        address = (name, port)
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"address already in use: {host}:{port}")
        listener = self._listeners[address] = SimListener(self, process, address, factory)
        return listener

    def stop_listening(self, address: tuple[str, int], listener: SimListener) -> None:
        if self._listeners.get(address) is listener:
            del self._listeners[address]

    async def connect(self, process: Process, host: str, port: int, factory: Callable[[], Any]) -> Any:
        _look_up(host, port)
        name = process.host.name if host in OWN_ADDRESS else host
        if name not in self.world.hosts:
            raise socket.gaierror(socket.EAI_NONAME, f"name or service not known: {host}")
        future: Future[Any] = process.loop.create_future()
        self._send_syn(_Dial(process, (name, port), factory, future), 0)
        return await future

    def process_died(self, process: Process, *, silently: bool) -> None:
        for address in [address for address, one in self._listeners.items() if one.process is process]:
            del self._listeners[address]
        for transport in list(process.transports.values()):
            if silently:
                transport.host_lost_power()
            else:
                transport.process_died()

    # --- the handshake -----------------------------------------------------------------------------------------

    def _send_syn(self, dial: _Dial, attempt: int) -> None:
        forth = self.link(dial.process.host.name, dial.address[0])
        self.world.after(forth.latency_ms(0), self._syn_arrives, dial, attempt)

    def _syn_arrives(self, dial: _Dial, attempt: int) -> None:
        process = dial.process
        if process.is_dead or dial.future.done():
            return
        source, target = process.host.name, dial.address[0]
        forth, back = self.link(source, target), self.link(target, source)
        if forth.is_cut or back.is_cut or not self.world.hosts[target].is_powered:
            if attempt < len(CONNECT_RETRIES_MS):
                self.world.after(CONNECT_RETRIES_MS[attempt], self._syn_arrives, dial, attempt + 1)
            else:
                process.deliver(dial.fail, TimeoutError(errno.ETIMEDOUT, f"connection timed out: {target}"))
            return
        listener = self._listeners.get(dial.address)
        if listener is None:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, f"connection refused: {target}:{dial.address[1]}")
            self.world.after(back.latency_ms(0), process.deliver, dial.fail, refused)
            return
        self._establish(dial, listener)

    def _establish(self, dial: _Dial, listener: SimListener) -> None:
        process = dial.process
        source, target = process.host.name, dial.address[0]
        local = (source, self._ephemeral_port())
        near = SimTransport(process, local, dial.address)
        far = SimTransport(listener.process, dial.address, local)
        forth, back = Pipe(self, source, target), Pipe(self, target, source)
        forth.sender, forth.receiver = near, far
        back.sender, back.receiver = far, near
        near.outgoing, near.incoming = forth, back
        far.outgoing, far.incoming = back, forth
        self.world.trace("connect", local, dial.address)
        listener.process.deliver(_accept, listener, far)
        self.world.after(back.link.latency_ms(0), process.deliver, dial.succeed, near)

    def _ephemeral_port(self) -> int:
        self._next_port += 1
        return self._next_port


def _look_up(host: str, port: int) -> None:
    """Raises what `socket.getaddrinfo` and `connect` raise for addresses that never reach a name server."""
    if "\0" in host:
        raise ValueError("embedded null character")
    host.encode("idna")  # UnicodeError: a label that is empty or longer than 63 characters
    if not 0 <= port <= PORT_MAX:
        raise OverflowError("connect(): port must be 0-65535.")


class _Dial:
    """An attempt to connect."""

    def __init__(
        self, process: Process, address: tuple[str, int], factory: Callable[[], Any], future: Future[Any]
    ) -> None:
        self.process = process
        self.address = address
        self.future = future
        self._factory = factory

    def succeed(self, transport: SimTransport) -> None:
        if self.future.done():
            # The caller gave up, so nothing else will ever close this connection.
            transport.abort()
            return
        if transport.is_over:
            self.fail(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
            return
        protocol = self._factory()
        transport.open(protocol)
        self.future.set_result(protocol)

    def fail(self, error: OSError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def _accept(listener: SimListener, transport: SimTransport) -> None:
    if not transport.is_over:
        transport.open(listener.factory())
