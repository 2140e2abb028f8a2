"""The production runtime of a node that runs in a thread, with fault injection."""

from __future__ import annotations

import socket
import threading
from asyncio import AbstractEventLoop, BufferedProtocol, Future
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from penstock.runtime import DEFAULT_SOCKET_OPTIONS, DirectSocket, SocketOptions, Tls, Transport
from penstock.runtime.dialling import only_connection_errors
from penstock.runtime.eventlog import EventLog
from penstock.runtime.production import ProductionRuntime, RealListener, secured
from penstock.testing.disk import FaultyDisk
from penstock.testing.network import HOST, Gate, GatedSocket, GatedTransport, Network

__all__ = ["NodeDied", "NodeRuntime"]

STEP_S = 0.05

P = TypeVar("P", bound=BufferedProtocol)


class NodeDied(Exception):
    """Unwinds the node's stack when it dies."""


class NodeRuntime(ProductionRuntime):
    """The runtime of one start of a node. Created and run in its thread; others may `kill`, `pause` and `resume` it."""

    def __init__(self, loop: AbstractEventLoop, *, root: str, node_id: int, network: Network, events: EventLog) -> None:
        self.faulty_disk = FaultyDisk(root, loop)
        super().__init__(loop, root=root, events=events, disk=self.faulty_disk)
        self.ended: Future[None] = loop.create_future()
        """Resolved when the node is dead: killed, or by an error that would end a process."""
        self.reason = ""
        self._node_id = node_id
        self._network = network
        self._gates: dict[Gate, None] = {}
        self._listening: list[RealListener] = []
        self._waiting: list[Future[None]] = []
        self._going = threading.Event()
        self._going.set()

    # ---- for other threads

    def kill(self) -> None:
        """Like `kill -9`: nothing is written any more, and the sockets are closed."""
        self.faulty_disk.is_dead = True
        self.reason = self.reason or "killed"
        self.in_loop(self._die)
        self._going.set()

    def pause(self) -> None:
        """Like SIGSTOP: the loop stands still, sockets stay open and fill up. Returns once it stands still."""
        if not self._going.is_set():
            return
        self._going.clear()
        stopped = threading.Event()
        if self.in_loop(self._stand_still, stopped):
            self._await(stopped)

    def resume(self) -> None:
        self._going.set()

    @property
    def is_paused(self) -> bool:
        return not self._going.is_set()

    def network_changed(self) -> None:
        """Waits until the connections follow the network's cuts; returns at once for a paused node, whose connections
        follow when it resumes."""
        adjusted = threading.Event()
        if self.in_loop(self._adjust, adjusted) and self._going.is_set():
            self._await(adjusted)

    def in_loop(self, callback: Callable[..., object], *args: object) -> bool:
        """Schedules a callback; returns whether there is a running loop for it."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return False
        return True

    def _await(self, done: threading.Event) -> None:
        """Waits until the loop has done it, or has ended."""
        while not done.wait(STEP_S) and not self._loop.is_closed() and not self.ended.done():
            pass

    # ---- ending

    def settle(self) -> None:
        """Does nothing: the garbage collector's settings belong to the test process."""

    def fatal(self, reason: str, error: BaseException | None = None) -> NoReturn:
        if not self.reason:
            self.reason = reason
            self.events.error("fatal", reason=reason, error=repr(error))
        self.faulty_disk.is_dead = True
        self._die()
        raise NodeDied(reason)

    def _die(self) -> None:
        for listener in self._listening:
            listener.close()
        for gate in list(self._gates):
            gate.transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)

    def _on_unhandled(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.faulty_disk.is_dead:
            super()._on_unhandled(loop, context)

    # ---- pausing

    def _stand_still(self, stopped: threading.Event) -> None:
        stopped.set()
        self._going.wait()
        if self.faulty_disk.is_dead:
            # Other callbacks of this loop iteration must not run either.
            self._die()

    # ---- the network

    async def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], BufferedProtocol],
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
        tls: Tls | None = None,
    ) -> RealListener:
        factory = self._with_tls(factory, tls)
        server = await self._loop.create_server(
            lambda: self._gate(factory()),
            host,
            port,
            backlog=options.backlog,
            reuse_address=True,
            reuse_port=True,  # the cluster holds the port too: see `network.reserve_port`
            start_serving=False,
        )
        listener = RealListener(server)
        listener.configure(options)
        await server.start_serving()
        self._listening.append(listener)
        return listener

    async def connect(self, host: str, port: int, factory: Callable[[], P], tls: Tls | None = None) -> P:
        make = self._with_tls(factory, tls, host)
        target = self._network.node_at(port)
        while self._is_cut(target):
            healed: Future[None] = self._loop.create_future()
            self._waiting.append(healed)
            await healed
        own = socket.socket()
        own.setblocking(False)
        own.bind((HOST, 0))
        own_port = own.getsockname()[1]
        self._network.connects(own_port, self._node_id)
        try:
            with only_connection_errors(host, port):
                await self._loop.sock_connect(own, (host, port))
                _, gate = await self._loop.create_connection(lambda: self._gate(make()), sock=own)
        except BaseException:
            self._network.disconnected(own_port)
            own.close()
            raise
        return cast(P, gate.inner if tls is None else await secured(gate.inner))

    def direct_socket(self, transport: Transport) -> DirectSocket | None:
        if transport.get_extra_info("tls") is not None:
            return None
        assert isinstance(transport, GatedTransport)
        real = super().direct_socket(transport.real)
        return None if real is None else GatedSocket(real, transport)

    def _gate(self, inner: BufferedProtocol) -> Gate:
        return Gate(inner, self._network, self._node_id, self._gates)

    def _is_cut(self, target: int) -> bool:
        network, own = self._network, self._node_id
        return network.is_cut(own, target) or network.is_cut(target, own)

    def _adjust(self, adjusted: threading.Event) -> None:
        for gate in list(self._gates):
            gate.adjust()
        waiting, self._waiting = self._waiting, []
        for healed in waiting:
            if not healed.done():
                healed.set_result(None)
        adjusted.set()
