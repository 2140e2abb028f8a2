"""Background tasks: an exception that nobody waits for must not vanish."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable
from typing import Any

__all__ = ["watch_task"]


def watch_task(
    task: Task[Any], loop: AbstractEventLoop, fatal: Callable[[str, BaseException | None], object]
) -> None:
    """Call `fatal` if the task fails and nobody was waiting for it at that moment."""

    def done(task: Task[Any]) -> None:
        if not task.cancelled() and _is_unseen(task):
            # Whoever awaits the task is woken in this turn of the loop, after this callback: look again in the next.
            loop.call_soon(look_again)

    def look_again() -> None:
        if _is_unseen(task):
            error = task.exception()
            fatal(f"background task {task.get_name()!r} failed: {error!r}", error)

    task.add_done_callback(done)


def _is_unseen(task: Task[Any]) -> bool:
    # asyncio's own mark of an exception that was not retrieved; there is no public way to ask.
    return bool(task._log_traceback)
