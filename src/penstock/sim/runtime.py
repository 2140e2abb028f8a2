"""`penstock.runtime.Runtime` in virtual time."""

from __future__ import annotations

import asyncio
import errno
import importlib
from asyncio import BufferedProtocol, Future, Task
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.runtime import (
    DEFAULT_SOCKET_OPTIONS,
    DirectSocket,
    HostUsage,
    Listener,
    LoopStalls,
    Runtime,
    SocketOptions,
    Timer,
    Tls,
    TlsSettings,
    Transport,
)
from penstock.runtime.dialling import only_connection_errors
from penstock.runtime.identity import random_uuid
from penstock.runtime.tasks import end_node, report_failure, watch_task
from penstock.sim.disk import SimulatedCrash
from penstock.sim.tls import SimTls, SimTlsTransport, with_tls
from penstock.sim.transport import SimSocket, SimTransport

if TYPE_CHECKING:
    from penstock.sim.host import Host, Process
    from penstock.sim.mount import MountedDisk
    from penstock.sim.world import World

__all__ = ["SimRuntime"]

OFFLOAD_LATENCY_MS = 0.3
JOB_LATENCY_MS = 20.0

P = TypeVar("P", bound=BufferedProtocol)
T = TypeVar("T")


class SimRuntime:
    """The runtime of one simulated process. Tests may also use `host`, `world` and `process`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.rng = Random(f"{process.world.seed}-{process.name}")
        self.disk: MountedDisk = process.mount
        self._loop = process.loop
        self._stop_callbacks: list[Callable[[], object]] = []
        self._stop_requested = False

    @property
    def world(self) -> World:
        return self.process.world

    @property
    def host(self) -> Host:
        return self.process.host

    @property
    def unhandled_errors(self) -> int:
        return self._loop.errors

    def now_ms(self) -> float:
        return self._loop.now_ms()

    def cpu_ms(self) -> float:
        """The clock: simulated code takes no CPU time."""
        return self._loop.now_ms()

    def wall_ms(self) -> int:
        return self.process.wall_ms()

    def uuid(self) -> bytes:
        return random_uuid(self.rng.randbytes)

    def secret_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        timer: Timer = self._loop.call_soon(callback, *args)
        return timer

    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Timer:
        timer: Timer = self._loop.call_later(delay_ms / 1000, callback, *args)
        return timer

    def future(self) -> Future[Any]:
        return self._loop.create_future()

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        task = self._loop.create_task(coroutine, name=name)
        watch_task(task, self._loop.as_asyncio, self.task_failed)
        return task

    def spawn_essential(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        task = self._loop.create_task(coroutine, name=name)
        watch_task(task, self._loop.as_asyncio, partial(end_node, self.fatal))
        return task

    def task_failed(self, name: str, error: BaseException) -> None:
        report_failure(self._loop.as_asyncio, self.fatal, name, error)

    def sleep(self, delay_ms: float) -> Awaitable[None]:
        return asyncio.sleep(delay_ms / 1000)

    async def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], BufferedProtocol],
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
        tls: Tls | None = None,
    ) -> Listener:
        return self.world.network.listen(self.process, host, port, with_tls(factory, tls))

    async def connect(self, host: str, port: int, factory: Callable[[], P], tls: Tls | None = None) -> P:
        with only_connection_errors(host, port):
            found: Any = await self.world.network.connect(self.process, host, port, with_tls(factory, tls, host))
        if tls is not None:
            await found.ready
            found = found.inner
        protocol: P = found
        return protocol

    def tls(self, settings: TlsSettings, *, server: bool) -> Tls:
        return SimTls(self, settings, server=server)

    def read_file(self, path: str) -> bytes:
        """From `Host.files`, the files of the operator on this simulated machine."""
        found = self.process.host.files.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def fetch_url(self, url: str, bytes_max: int, timeout_ms: float) -> bytes:
        return self.read_file(url)

    def direct_socket(self, transport: Transport) -> DirectSocket | None:
        if isinstance(transport, SimTlsTransport):
            return None
        assert isinstance(transport, SimTransport)
        return SimSocket(transport)

    def offload(self, function: Callable[..., T], *args: object) -> Future[T]:
        return self._run_later(OFFLOAD_LATENCY_MS, partial(function, *args))

    def job(self, function: str, *args: object) -> Future[Any]:
        module, _, name = function.partition(":")
        return self._run_later(JOB_LATENCY_MS, partial(getattr(importlib.import_module(module), name), *args))

    def fatal(self, reason: str, error: BaseException | None = None) -> None:
        self.process.fatal(reason, error)

    def on_stop(self, callback: Callable[[], object]) -> None:
        self._stop_callbacks.append(callback)
        if self._stop_requested:
            self._loop.deliver(callback)

    def request_stop(self) -> None:
        """Asks the process to stop, like SIGTERM."""
        if not self._stop_requested:
            self._stop_requested = True
            for callback in self._stop_callbacks:
                self._loop.deliver(callback)

    def settle(self) -> None:
        pass

    def loop_stalls(self) -> LoopStalls:
        return LoopStalls(max_ms=0.0, samples_ms=[])

    def host_usage(self) -> HostUsage:
        return HostUsage()

    def _run_later(self, latency_ms: float, work: Callable[[], T]) -> Future[T]:
        """Does the work later, as a thread would, and then notifies the process."""
        future: Future[T] = self._loop.create_future()
        total_ms = latency_ms * (0.5 + self.world.rng.random())
        began_ms = total_ms * self.world.rng.random()

        def run() -> None:
            if self._loop.is_dead:
                return
            try:
                result = work()
            except SimulatedCrash:
                assert self._loop.is_dead
            except Exception as error:
                self.process.schedule(total_ms - began_ms, self._loop.deliver, _conclude, future, None, error)
            else:
                self.process.schedule(total_ms - began_ms, self._loop.deliver, _conclude, future, result, None)

        self._loop.world.after(began_ms, run)
        return future


if TYPE_CHECKING:

    def _is_a_runtime(runtime: SimRuntime) -> Runtime:
        return runtime


def _conclude(future: Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
