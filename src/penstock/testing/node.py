"""One node of a cluster: a thread that runs a broker, and methods to control it.

new ── start ──▸ running ── kill, or a fatal error ─────────────────▸ dead
        ▴           └──── stop (clean) ──▸ dead                      │
        └────────────────────────── start ───────────────────────────┘
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import Future
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from penstock.broker.server import Broker
from penstock.config import BrokerConfig
from penstock.testing.events import MemoryEventLog
from penstock.testing.network import CLIENTS, Network
from penstock.testing.runtime import NodeRuntime

if TYPE_CHECKING:
    from penstock.metadata import MetadataImage

__all__ = ["Node", "NodeFailed"]

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
STEP_S = 0.2


class NodeFailed(Exception):
    """A node did not start or stop; the message includes its log."""


class Node:
    """Created by `Cluster`; use `Cluster.node(1)`. Call its methods from any thread but the node's own."""

    def __init__(self, node_id: int, port: int, directory: Path, settings: dict[str, str], network: Network) -> None:
        self.id = node_id
        self.port = port
        """Its address for clients."""
        self.directory = directory
        """Its data directory."""
        self.settings = settings
        """Settings for the next start; they may be changed while the node is down."""
        self._network = network
        self._events = MemoryEventLog()
        self._thread: threading.Thread | None = None
        self._runtime: NodeRuntime | None = None
        self._broker: Broker | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._is_ready = False

    def __repr__(self) -> str:
        return f"<Node {self.id} at {self.address}: {self.state}>"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def state(self) -> str:
        if not self.is_alive:
            return "dead"
        return "paused" if self.is_paused else "running" if self._is_ready else "starting"

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_paused(self) -> bool:
        return self._runtime is not None and self.is_alive and self._runtime.is_paused

    @property
    def log(self) -> str:
        """Its log over all restarts, in the format of `penstock server`."""
        return self._events.text

    # ---- lifecycle

    def start(self) -> None:
        """Starts it and waits until it serves. Data from before is kept."""
        self.begin()
        self.await_ready()

    def begin(self) -> None:
        """Starts it without waiting."""
        if self.is_alive:
            raise NodeFailed(f"node {self.id} is already running")
        self._started = threading.Event()
        self._failure = None
        self._is_ready = False
        self._broker = self._runtime = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-node-{self.id}", daemon=True)
        self._thread.start()

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        if not self._started.wait(timeout_s):
            raise NodeFailed(f"node {self.id} was not ready within {timeout_s:g} s:\n{self.log}")
        if self._failure is not None:
            raise NodeFailed(f"node {self.id} did not start: {self._failure}\n{self.log}") from self._failure

    def stop(self) -> None:
        """Stops it cleanly, like SIGTERM: it hands over leadership, and its logs need no recovery at the next start."""
        runtime = self._runtime
        if runtime is None or self._thread is None or not self.is_alive:
            return
        runtime.resume()
        runtime.in_loop(runtime.request_stop)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            self.kill()
            raise NodeFailed(f"node {self.id} did not stop within {STOP_TIMEOUT_S:g} s and was killed:\n{self.log}")

    def kill(self) -> None:
        """Like `kill -9`. Written data is there at the next start; clients see broken connections."""
        thread = self._thread
        if thread is None:
            return
        while thread.is_alive():
            # A thread that has just started may have no runtime to kill yet.
            if self._runtime is not None:
                self._runtime.kill()
            thread.join(STEP_S)

    def restart(self) -> None:
        """Stops it cleanly and starts it again."""
        self.stop()
        self.start()

    # ---- faults

    def pause(self) -> None:
        """Like SIGSTOP: it neither answers nor reads, and its connections stay open."""
        self._alive().pause()

    def resume(self) -> None:
        self._alive().resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            if self.is_alive:
                self.resume()

    def slow_disk(self, delay_ms: float) -> None:
        """Delays every write, sync and read from the device by this much from now on; 0 removes the delay."""
        self._alive().faulty_disk.delay_ms = delay_ms

    def cut_clients(self) -> None:
        """Cuts it off from clients without closing connections. Other nodes still reach it."""
        self._network.cut(CLIENTS, self.id)
        self._network.cut(self.id, CLIENTS)
        self.network_changed()

    def heal_clients(self) -> None:
        self._network.heal(CLIENTS, self.id)
        self._network.heal(self.id, CLIENTS)
        self.network_changed()

    def network_changed(self) -> None:
        if self._runtime is not None and self.is_alive:
            self._runtime.network_changed()

    # ---- its view

    @property
    def image(self) -> MetadataImage | None:
        """The cluster's metadata on this node; None if it has none."""
        broker = self._broker
        return broker.quorum.image if broker is not None and hasattr(broker, "quorum") and self.is_alive else None

    @property
    def is_controller(self) -> bool:
        """Whether it is the active controller."""
        broker = self._broker
        return (
            broker is not None and self.is_alive and hasattr(broker, "quorum") and broker.quorum.controller is not None
        )

    def _alive(self) -> NodeRuntime:
        if self._runtime is None or not self.is_alive:
            raise NodeFailed(f"node {self.id} is not running: start() it first")
        return self._runtime

    # ---- in its thread

    def _run(self) -> None:
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        runtime: NodeRuntime | None = None
        try:
            config = BrokerConfig.resolve(self.settings)
            runtime = NodeRuntime(
                loop, root=str(self.directory), node_id=self.id, network=self._network, events=self._events
            )
            self._runtime = runtime
            runtime.start()
            loop.run_until_complete(self._live(runtime, config))
        except BaseException as error:
            self._failure = error
        finally:
            self._is_ready = False
            if runtime is not None:
                runtime.stop()
            asyncio.set_event_loop(None)
            loop.close()
            self._started.set()

    async def _live(self, runtime: NodeRuntime, config: BrokerConfig) -> None:
        broker = Broker(runtime, config, self._events)
        self._broker = broker
        stopping = runtime.future()
        runtime.on_stop(lambda: _resolve(stopping))
        starting = runtime.spawn(broker.start(), "start")
        await asyncio.wait([starting, runtime.ended], return_when=asyncio.FIRST_COMPLETED)
        if runtime.ended.done():
            raise NodeFailed(runtime.reason)
        starting.result()
        self._is_ready = True
        self._started.set()
        await asyncio.wait([stopping, runtime.ended], return_when=asyncio.FIRST_COMPLETED)
        if not runtime.ended.done():
            await broker.stop()


def _resolve(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
