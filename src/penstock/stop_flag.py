"""An event that a signal handler may set."""

from __future__ import annotations

import queue
from contextlib import suppress
from typing import Protocol


class Stop(Protocol):
    """Whether to stop: a `StopFlag`, or a `threading.Event` where no signal handler sets it."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class StopFlag:
    """As `threading.Event`, which is not for signal handlers.

    A handler runs in the main thread, between two steps of whatever that does. If that is a `wait` which just begins or
    ends, it holds the event's lock, and the handler would wait for it for ever. A `SimpleQueue` may be interrupted.
    """

    def __init__(self) -> None:
        self._set = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._wake.put(None)

    def clear(self) -> None:
        """As if it had not been set; not while others wait for it."""
        self._set = False
        with suppress(queue.Empty):
            while True:
                self._wake.get_nowait()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, or for that many seconds; whether it is set."""
        if not self._set:
            try:
                self._wake.get(timeout=timeout)
            except queue.Empty:
                return self._set
            self._wake.put(None)  # for whoever waits beside this thread
        return True
