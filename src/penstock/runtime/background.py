"""An event loop in its own thread: the part of a runtime that a small server needs.

A broker has a complete runtime. Clients and pipelines have none and may block; work that must continue meanwhile (such
as a scrape of their metrics) runs here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from asyncio import BufferedProtocol, Future, Task
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.runtime import Timer

T = TypeVar("T")

BACKLOG = 64

log = logging.getLogger("penstock.background")


class BackgroundLoop:
    """Runs from its creation until `stop`. Call `run` from other threads, everything else on the loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # Strong references: asyncio itself holds tasks only weakly.
        self._tasks: dict[Task[Any], None] = {}
        # A daemon thread: a process that forgets to close its server must still be able to end.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for its result."""
        assert threading.current_thread() is not self._thread, "the loop would wait for itself"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def stop(self) -> None:
        """Cancels running tasks and ends the thread."""
        if self._loop.is_closed():
            return
        self.run(self._cancel_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Closed transports finish in the next iteration of the loop.
        await asyncio.sleep(0)

    # ---- on the loop

    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.call_later(delay_ms / 1000, callback, *args)

    def future(self) -> Future[Any]:
        return self._loop.create_future()

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Task[T]:
        task = self._loop.create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def report(self, what: str, error: BaseException) -> None:
        """Logs a failure that ends only one piece of work."""
        log.error("%s failed", what, exc_info=error)

    async def listen(self, host: str, port: int, factory: Callable[[], BufferedProtocol]) -> BackgroundListener:
        """Listens; raises OSError if it cannot bind the address."""
        server = await self._loop.create_server(factory, host or None, port, backlog=BACKLOG, reuse_address=True)
        return BackgroundListener(server)


class BackgroundListener:
    """A listening socket of a `BackgroundLoop`."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()
