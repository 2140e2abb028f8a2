"""An event that a signal handler may set, and the handlers that set it at Ctrl-C and SIGTERM."""

from __future__ import annotations

import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol


class Stop(Protocol):
    """A stop request: a `StopFlag`, or a `threading.Event` where no signal handler sets it."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class StopFlag:
    """Like `threading.Event`, but safe to set from a signal handler.

    A handler runs in the main thread, between two bytecodes of whatever that thread is doing. If the thread is inside
    `Event.wait`, it may hold the event's lock, and a handler that calls `Event.set` would deadlock. A `SimpleQueue` is
    reentrant.
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
        """Resets the flag. Do not call it while other threads wait."""
        self._set = False
        with suppress(queue.Empty):
            while True:
                self._wake.get_nowait()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the flag is set, or for `timeout` seconds; returns whether it is set."""
        if not self._set:
            try:
                self._wake.get(timeout=timeout)
            except queue.Empty:
                return self._set
            self._wake.put(None)  # wake the next waiting thread
        return True


@contextmanager
def stop_on_signals(stop: StopFlag) -> Iterator[StopFlag]:
    """Ctrl-C and SIGTERM ask for a clean stop; a second Ctrl-C raises KeyboardInterrupt. For the main thread."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not stop.is_set():
            stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
