"""Failures of background tasks that nothing awaits.

`watch_task` passes a failure to a handler: `Runtime.spawn` reports it and continues, `Runtime.spawn_essential` ends the
process. `keep_running` is for work that the node always needs and that can be restarted.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.runtime import Runtime

__all__ = ["end_node", "is_disk_failure", "keep_running", "report_failure", "watch_task"]

Fatal = Callable[[str, BaseException | None], object]

RESTART_FIRST_MS = 100
RESTART_MAX_MS = 10_000


def watch_task(task: Task[Any], loop: AbstractEventLoop, failed: Callable[[str, BaseException], object]) -> None:
    """Calls `failed(name, error)` if the task fails while nothing is waiting for it."""

    def done(task: Task[Any]) -> None:
        if not task.cancelled() and _is_unseen(task):
            # Tasks that await this one are woken in this iteration of the loop, after this callback: check in the next.
            loop.call_soon(look_again)

    def look_again() -> None:
        if _is_unseen(task):
            error = task.exception()
            assert error is not None
            failed(task.get_name(), error)

    task.add_done_callback(done)


def is_disk_failure(error: BaseException) -> bool:
    """Whether an unhandled error came from the node's disk.

    `Runtime.connect` raises only ConnectionError and TimeoutError, so any other OSError in the engine is the disk's.
    """
    return isinstance(error, OSError) and not isinstance(error, (ConnectionError, TimeoutError))


def report_failure(loop: AbstractEventLoop, fatal: Fatal, name: str, error: BaseException) -> None:
    """Reports a failed task that the node survives, unless the disk failed."""
    if is_disk_failure(error):
        fatal(f"the disk failed under {name!r}: {error}", error)
    loop.call_exception_handler({"message": f"background task {name!r} failed", "exception": error})


def end_node(fatal: Fatal, name: str, error: BaseException) -> None:
    """Ends the process because an essential task failed."""
    fatal(f"essential task {name!r} failed: {error!r}", error)


async def keep_running(runtime: Runtime, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Runs `work` to its end. If it fails: reports that, pauses and starts it again; the pause doubles each time."""
    pause_ms = RESTART_FIRST_MS
    while True:
        try:
            await work()
            return
        except Exception as error:
            runtime.task_failed(name, error)
        await runtime.sleep(pause_ms)
        pause_ms = min(2 * pause_ms, RESTART_MAX_MS)


def _is_unseen(task: Task[Any]) -> bool:
    # asyncio's private flag for an exception that was not retrieved; there is no public way to ask.
    return bool(task._log_traceback)
