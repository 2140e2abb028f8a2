"""Periodic work: each chore runs independently, with a pause after each run, until the broker stops."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.runtime import Runtime, Timer

Work = Callable[[], Coroutine[Any, Any, None]]


class Chores:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._timers: dict[str, Timer] = {}
        self._closed = False

    def add(self, name: str, work: Work, interval_ms: Callable[[], float], *, first_ms: float | None = None) -> None:
        """Run `work` periodically. `interval_ms` is called before each pause, because the setting can change."""
        self._later(name, work, interval_ms, interval_ms() if first_ms is None else first_ms)

    def close(self) -> None:
        """Stop; a run in progress completes."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()

    def _later(self, name: str, work: Work, interval_ms: Callable[[], float], delay_ms: float) -> None:
        self._timers[name] = self._runtime.call_later(delay_ms, self._begin, name, work, interval_ms)

    def _begin(self, name: str, work: Work, interval_ms: Callable[[], float]) -> None:
        self._runtime.spawn(self._do(name, work, interval_ms), name)

    async def _do(self, name: str, work: Work, interval_ms: Callable[[], float]) -> None:
        try:
            await work()
        finally:
            # After an error, which the runtime reports, the chore is scheduled again as usual.
            if not self._closed:
                self._later(name, work, interval_ms, interval_ms())
