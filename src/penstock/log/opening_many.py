"""Opening many logs concurrently: while one waits for the device, others use the loop, within a shared time limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from penstock.runtime import Runtime

CONCURRENT_LOGS = 4
LOOP_SHARE_MS = 3.0
"""How long all of them together may hold the loop at a time."""


class Progress(NamedTuple):
    opened: int
    failed: int
    total: int


async def open_many(
    runtime: Runtime,
    names: Iterable[str],
    open_one: Callable[[str, float], Awaitable[None]],
    *,
    concurrency: int = CONCURRENT_LOGS,
    on_failure: Callable[[str, Exception], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Open many logs, `concurrency` at a time, in the order given. Each can be used as soon as it is open.

    `open_one(name, slice_ms)` opens one log and holds the loop for at most `slice_ms`. Its exceptions go to
    `on_failure`, and the other logs are still opened; without `on_failure` the first exception ends everything.
    """
    waiting = deque(names)
    total = len(waiting)
    counts = [0, 0]
    slice_ms = LOOP_SHARE_MS / concurrency

    async def work() -> None:
        started_ms = runtime.now_ms()
        while waiting:
            name = waiting.popleft()
            try:
                await open_one(name, slice_ms)
                counts[0] += 1
            except Exception as error:
                if on_failure is None:
                    waiting.clear()
                    raise
                counts[1] += 1
                on_failure(name, error)
            if on_progress is not None:
                on_progress(Progress(counts[0], counts[1], total))
            # A log that opens without waiting never yields to the loop by itself.
            if runtime.now_ms() - started_ms > slice_ms:
                await runtime.sleep(0)
                started_ms = runtime.now_ms()

    for task in [runtime.spawn(work(), "open logs") for _ in range(concurrency)]:
        await task
    return Progress(counts[0], counts[1], total)
