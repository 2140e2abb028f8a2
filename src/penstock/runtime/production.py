"""The real runtime: uvloop, files, sockets, threads for system calls, a subprocess for CPU work.

`run` is the frame of a server process: it creates the loop, maps SIGTERM and SIGINT to `Runtime.on_stop`, runs the
main coroutine to its end and cleans up.

Failures:

- an exception that escapes from a callback, or from a task that nothing awaits, is logged and counted
  (`unhandled_errors`), and the process continues: most concern one connection or one request;
- one that escapes from an essential task, or that came from the disk, is fatal;
- `fatal` logs the reason and ends the process at once, with a code of `penstock.runtime.exits`. It deliberately skips
  all cleanup and answers no request.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from asyncio import AbstractEventLoop, BufferedProtocol, Future, Task
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future as ConcurrentFuture
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import uvloop

from penstock.runtime import (
    DEFAULT_SOCKET_OPTIONS,
    Buffer,
    DirectSocket,
    File,
    HostUsage,
    LoopStalls,
    Runtime,
    SocketOptions,
    Timer,
    TlsSettings,
    Transport,
)
from penstock.runtime import Tls as AnyTls
from penstock.runtime.dialling import only_connection_errors
from penstock.runtime.eventlog import EventLog, StreamEventLog
from penstock.runtime.exits import EXIT_BUG, EXIT_INTERRUPTED, EXIT_STORAGE
from penstock.runtime.files import IO_THREADS_DEFAULT, RealDisk, RealFile, raise_descriptor_limit
from penstock.runtime.identity import random_uuid
from penstock.runtime.jobs import JobRunner
from penstock.runtime.stalls import StallMeter
from penstock.runtime.tasks import end_node, report_failure, watch_task

__all__ = ["ProductionRuntime", "RealListener", "run"]

OFFLOAD_THREADS = 4
OPERATOR_FILE_BYTES_MAX = 1024 * 1024
ACCEPTS_PER_PASS = 8
"""libuv accepts one connection per listening descriptor and loop iteration. On a busy broker that would be a hundred
per second, so a listening socket gets several descriptors."""
JOB_IDLE_S = 300
"""The job subprocess ends after being idle for this long: it uses more memory than the broker."""
# Allocations between two young collections. Requests allocate little that forms cycles, so Python's default of 700
# would only interrupt the loop more often. But large requests hold up to a million objects for a while, and a
# collection blocks the loop for at least 0.1 µs per object that is younger than the last collection of its kind: at
# most 100,000 in a middle one. A full collection comes only after a hundred million.
GC_YOUNG_THRESHOLD = 10_000
GC_MIDDLE_THRESHOLD = 10
GC_OLD_THRESHOLD = 1_000

P = TypeVar("P", bound=BufferedProtocol)
T = TypeVar("T")


def run(
    main: Callable[[ProductionRuntime], Coroutine[Any, Any, T]],
    *,
    root: str,
    io_threads: int = IO_THREADS_DEFAULT,
    descriptors_max: int | None = None,
    events: EventLog | None = None,
) -> T:
    """Runs `main(runtime)` to its end, with `root` as its disk, and returns its result."""
    raise_descriptor_limit()
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        runtime = ProductionRuntime(
            loop, root=root, io_threads=io_threads, descriptors_max=descriptors_max, events=events
        )
        try:
            runtime.start()
            return loop.run_until_complete(main(runtime))
        finally:
            runtime.stop()
    finally:
        asyncio.set_event_loop(None)
        with warnings.catch_warnings():
            # Connections that are still open are closed here; that is not worth a log line each.
            warnings.simplefilter("ignore", ResourceWarning)
            loop.close()


class ProductionRuntime:
    """The runtime of a process on a real machine."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        *,
        root: str,
        io_threads: int = IO_THREADS_DEFAULT,
        descriptors_max: int | None = None,
        events: EventLog | None = None,
        disk: RealDisk | None = None,
    ) -> None:
        self.rng = Random(os.urandom(32))
        self.disk = disk or RealDisk(root, loop, io_threads=io_threads, descriptors_max=descriptors_max)
        self.events = events or StreamEventLog(self.wall_ms)
        self.unhandled_errors = 0
        self._loop = loop
        self._stalls = StallMeter(loop)
        self._offload_threads = ThreadPoolExecutor(OFFLOAD_THREADS, thread_name_prefix="penstock-offload")
        self._jobs = JobRunner()
        self._jobs_running = 0
        self._jobs_timer: asyncio.TimerHandle | None = None
        # Strong references: asyncio itself holds tasks only weakly.
        self._tasks: dict[Task[Any], None] = {}
        self._stop_callbacks: list[Callable[[], object]] = []
        self._stop_requested = False

    # --- time, randomness, tasks ---------------------------------------------------------------------------------

    def now_ms(self) -> float:
        return time.monotonic() * 1000

    def cpu_ms(self) -> float:
        return time.thread_time() * 1000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def uuid(self) -> bytes:
        return random_uuid(os.urandom)

    def secret_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.call_soon(callback, *args)

    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.call_later(delay_ms / 1000, callback, *args)

    def future(self) -> Future[Any]:
        return self._loop.create_future()

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        return self._spawn(coroutine, name, self.task_failed)

    def spawn_essential(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        return self._spawn(coroutine, name, partial(end_node, self.fatal))

    def _spawn(
        self, coroutine: Coroutine[Any, Any, T], name: str, failed: Callable[[str, BaseException], object]
    ) -> Task[T]:
        task = self._loop.create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        watch_task(task, self._loop, failed)
        return task

    def task_failed(self, name: str, error: BaseException) -> None:
        report_failure(self._loop, self.fatal, name, error)

    def sleep(self, delay_ms: float) -> Awaitable[None]:
        return asyncio.sleep(delay_ms / 1000)

    # --- network -------------------------------------------------------------------------------------------------

    async def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], BufferedProtocol],
        options: SocketOptions = DEFAULT_SOCKET_OPTIONS,
        tls: AnyTls | None = None,
    ) -> RealListener:
        """Raises OSError with `errno.EADDRINUSE` or `EADDRNOTAVAIL` if it cannot bind the address."""
        factory = self._with_tls(factory, tls)
        server = await self._loop.create_server(
            factory, host or None, port, backlog=options.backlog, reuse_address=True, start_serving=False
        )
        listener = RealListener(server)
        listener.configure(options)
        await server.start_serving()
        for listening in list(server.sockets):
            for _ in range(ACCEPTS_PER_PASS - 1):
                same = socket.socket(fileno=os.dup(listening.fileno()))
                listener.add(await self._loop.create_server(factory, sock=same, backlog=options.backlog))
        return listener

    async def connect(self, host: str, port: int, factory: Callable[[], P], tls: AnyTls | None = None) -> P:
        with only_connection_errors(host, port):
            # uvloop sets TCP_NODELAY itself, here and on accepted connections.
            _, protocol = await self._loop.create_connection(self._with_tls(factory, tls, host), host, port)
        if tls is None:
            return cast(P, protocol)
        return cast(P, await secured(protocol))

    def _with_tls(
        self, factory: Callable[[], BufferedProtocol], tls: AnyTls | None, host: str | None = None
    ) -> Callable[[], BufferedProtocol]:
        if tls is None:
            return factory
        real: Any = tls
        return lambda: cast(BufferedProtocol, real.protocol(factory(), host))

    def tls(self, settings: TlsSettings, *, server: bool) -> AnyTls:
        # Imported here, so that a node without TLS starts without OpenSSL.
        from penstock.runtime.tls import Tls

        return Tls(self._loop, settings, server=server)

    def fetch_url(self, url: str, bytes_max: int, timeout_ms: float) -> bytes:
        from penstock.runtime.urls import fetch_url

        return fetch_url(url, bytes_max, timeout_ms)

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            data = file.read(OPERATOR_FILE_BYTES_MAX + 1)
        if len(data) > OPERATOR_FILE_BYTES_MAX:
            raise OSError(errno.EFBIG, f"larger than {OPERATOR_FILE_BYTES_MAX} bytes", path)
        return data

    def direct_socket(self, transport: Transport) -> DirectSocket | None:
        if transport.get_extra_info("tls") is not None:
            return None
        return RealSocket(transport.get_extra_info("socket").fileno())

    # --- off the loop --------------------------------------------------------------------------------------------

    def offload(self, function: Callable[..., T], *args: object) -> Future[T]:
        return asyncio.wrap_future(self._offload_threads.submit(function, *args), loop=self._loop)

    def job(self, function: str, *args: object) -> Future[Any]:
        future: Future[Any] = self._loop.create_future()
        self._jobs_running += 1
        if self._jobs_timer is not None:
            self._jobs_timer.cancel()
            self._jobs_timer = None
        # In a thread: starting the worker takes milliseconds.
        self._offload_threads.submit(self._begin_job, future, function, args)
        return future

    def _begin_job(self, future: Future[Any], function: str, args: tuple[object, ...]) -> None:
        try:
            running = self._jobs.submit(function, *args)
        except Exception as error:
            running = ConcurrentFuture()
            running.set_exception(error)
        running.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._job_ended, future, done))

    def _job_ended(self, future: Future[Any], done: ConcurrentFuture[Any]) -> None:
        self._jobs_running -= 1
        if not self._jobs_running:
            self._jobs_timer = self._loop.call_later(JOB_IDLE_S, self._offload_threads.submit, self._jobs.stop)
        if future.done():
            return
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        else:
            future.set_exception(error)

    # --- lifecycle -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._loop.set_exception_handler(self._on_unhandled)
        # Only the main thread can handle signals; a runtime in another thread is stopped by its owner.
        if threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGTERM, self._on_signal, signal.SIGTERM)
            self._loop.add_signal_handler(signal.SIGINT, self._on_signal, signal.SIGINT)
        self._stalls.start()

    def stop(self) -> None:
        """Runs after the main coroutine: ends background tasks, threads and the subprocess."""
        self._stalls.stop()
        if self._jobs_timer is not None:
            self._jobs_timer.cancel()
        self._cancel_tasks()
        self._offload_threads.shutdown(wait=True)
        self._jobs.stop()
        self.disk.stop()
        # The results of the last syncs and reads arrive through the loop.
        self._loop.run_until_complete(asyncio.sleep(0))

    def on_stop(self, callback: Callable[[], object]) -> None:
        self._stop_callbacks.append(callback)
        if self._stop_requested:
            self._loop.call_soon(callback)

    def request_stop(self) -> None:
        """Asks the process to stop, like SIGTERM."""
        if not self._stop_requested:
            self._stop_requested = True
            for callback in self._stop_callbacks:
                self._loop.call_soon(callback)

    def settle(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_YOUNG_THRESHOLD, GC_MIDDLE_THRESHOLD, GC_OLD_THRESHOLD)

    def loop_stalls(self) -> LoopStalls:
        return self._stalls.take()

    def host_usage(self) -> HostUsage:
        # Imported here, so that a broker without metrics starts without it.
        from penstock.runtime.host import read_usage

        return read_usage(self.disk.root)

    def fatal(self, reason: str, error: BaseException | None = None) -> NoReturn:
        code = EXIT_STORAGE if isinstance(error, OSError) else EXIT_BUG
        try:
            self.events.error("fatal", reason=reason, error=repr(error), exit_code=code)
            if error is not None and code == EXIT_BUG:
                sys.excepthook(type(error), error, error.__traceback__)
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # Exit even if the log cannot be written: continuing would be worse.
            os._exit(code)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop_requested and number == signal.SIGINT:
            os._exit(EXIT_INTERRUPTED)
        self.events.info("stopping", signal=number.name)
        self.request_stop()

    def _on_unhandled(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        self.unhandled_errors += 1
        self.events.error("unhandled error", message=context.get("message"), error=repr(error), where=_where(error))

    def _cancel_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            # Their errors no longer matter.
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


if TYPE_CHECKING:

    def _is_a_runtime(runtime: ProductionRuntime) -> Runtime:
        return runtime


async def secured(protocol: Any) -> BufferedProtocol:
    """Waits for the handshake of an outgoing TLS connection, and returns the engine's protocol."""
    await protocol.ready
    return cast(BufferedProtocol, protocol.inner)


class RealSocket:
    """The socket of a uvloop transport. uvloop keeps its descriptor open until after `connection_lost`."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, data: Buffer) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0

    def send_file(self, file: File, position: int, size: int) -> int | None:
        assert isinstance(file, RealFile)
        return file.send_to(self._descriptor, position, size)


class RealListener:
    """A listening socket of uvloop."""

    def __init__(self, server: asyncio.AbstractServer) -> None:
        self._server = server
        self._others: list[asyncio.AbstractServer] = []
        sockets: tuple[socket.socket, ...] = server.sockets  # type: ignore[attr-defined]
        self._port: int = sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        return self._port

    def configure(self, options: SocketOptions) -> None:
        """Accepted sockets inherit the buffers; a receive buffer must be set before the socket listens."""
        sockets: tuple[socket.socket, ...] = self._server.sockets  # type: ignore[attr-defined]
        for listening in sockets:
            if options.send_buffer_bytes >= 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
            if options.receive_buffer_bytes >= 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)

    def add(self, server: asyncio.AbstractServer) -> None:
        """Adds a server that accepts from the same socket."""
        self._others.append(server)

    def close(self) -> None:
        for server in (self._server, *self._others):
            server.close()


def _where(error: object) -> str:
    traceback = error.__traceback__ if isinstance(error, BaseException) else None
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
