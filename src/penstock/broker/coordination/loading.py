"""Loads shards one at a time: fifty at once would each take a slice of every turn of the loop and delay requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.broker.coordination.journal import LogSource
from penstock.coordinators.host import ShardHost
from penstock.log import Log
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.runtime.tasks import keep_running


class Loader:
    """Loads the shards of all coordinators of a broker."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._runtime = runtime
        self._events = events
        self._queue: deque[tuple[str, ShardHost[Any], Log, Callable[[float], None]]] = deque()
        self._is_running = False

    def load(self, name: str, host: ShardHost[Any], log: Log, loaded: Callable[[float], None]) -> None:
        """Have the host load its shard; then call `loaded` with the milliseconds that it took."""
        self._queue.append((name, host, log, loaded))
        if not self._is_running:
            self._is_running = True
            loading = keep_running(self._runtime, self._run, "load coordinators")
            self._runtime.spawn(loading, "load coordinators")

    async def _run(self) -> None:
        while self._queue:
            name, host, log, loaded = self._queue.popleft()
            if not host.is_loading:
                continue
            began_ms = self._runtime.now_ms()
            await host.load(LogSource(log))
            if host.is_active:
                took_ms = self._runtime.now_ms() - began_ms
                loaded(took_ms)
                self._events.info("coordinator loaded", partition=name, took_ms=round(took_ms))
        self._is_running = False
