"""Start-up that waits for other nodes and can be interrupted.

A start waits for other nodes to found a cluster, elect a leader and admit this broker. During all these waits the
process can be stopped, and the start can be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.runtime import Future, Runtime


class StartRefused(Exception):
    """The node cannot start; the message says why and what to do."""


class StartInterrupted(Exception):
    """The process was asked to stop before the node was ready. The start has been undone."""


class Start:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waits: list[Future[None]] = []
        self._refusal = ""
        self._stopping = False

    def is_stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        """Interrupt the start: the process must stop."""
        self._stopping = True
        self._end_waits(StartInterrupted)

    def refuse(self, reason: str) -> None:
        """Refuse the start: the node must not start."""
        self._refusal = reason
        self._end_waits(lambda: StartRefused(reason))

    async def unless_stopped(self, wait: Coroutine[Any, Any, None]) -> None:
        """Wait for other nodes, but return early when the process is asked to stop."""
        if self._stopping or self._refusal:
            wait.close()
            raise StartRefused(self._refusal) if self._refusal else StartInterrupted
        done: Future[None] = self._runtime.future()

        async def run() -> None:
            try:
                await wait
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)

        self._waits.append(done)
        self._runtime.spawn(run(), "start")
        await done

    def _end_waits(self, error: Callable[[], Exception]) -> None:
        for wait in self._waits:
            if not wait.done():
                wait.set_exception(error())
