"""A start that others may hold up, and that ends when the process is asked to end.

Much of a start waits for other nodes: to found a cluster, to elect a leader, to admit this broker. None of that may
keep a process from stopping, nor from being told meanwhile that it must not start at all.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.runtime import Future, Runtime


class StartRefused(Exception):
    """The node cannot start; the message says why and what to do."""


class StartInterrupted(Exception):
    """The process was asked to end before the node was ready, and what it had begun is undone."""


class Start:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waits: list[Future[None]] = []
        self._refusal = ""
        self._stopping = False

    def is_stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        """The process is to end."""
        self._stopping = True
        self._end_waits(StartInterrupted)

    def refuse(self, reason: str) -> None:
        """The node must not start."""
        self._refusal = reason
        self._end_waits(lambda: StartRefused(reason))

    async def unless_stopped(self, wait: Coroutine[Any, Any, None]) -> None:
        """What may take as long as other nodes like ends when the process is asked to."""
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
