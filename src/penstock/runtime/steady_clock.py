"""A clock that excludes the time in which the process was suspended.

A broker that was stopped (SIGSTOP, a machine that slept, a disk that blocked everything) could not hear from anyone, so
that time must not count against group members or other brokers. The clock keeps a tick due at all times: if it is read
and the tick is overdue, the process did not run in between. After a long stall clients also need time to reconnect, so
timers that were set before it start again after it (`SteadyClock.resumed_ms`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

TICK_MS = 500.0
TOLERANCE_MS = 250.0
"""A loop that is late by less than this is busy, not stopped."""
LONG_STALL_MS = 2_000.0
"""After a stall of this length clients may have given up and reconnect; a shorter one is only left out."""

NEVER = float("inf")


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of the runtime that the clock uses."""

    def now_ms(self) -> float: ...
    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Cancellable: ...


class SteadyClock:
    """Monotonic milliseconds during which this process was able to work."""

    __slots__ = ("_due_ms", "_left_out_ms", "_loop", "_now_ms", "_timer", "resumed_ms", "stalls")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._now_ms = loop.now_ms
        self._left_out_ms = 0.0
        self._due_ms = NEVER
        self._timer: Cancellable | None = None
        self.resumed_ms = -NEVER
        """When, by this clock, the last long stall ended. Timers set before it start again there."""
        self.stalls = 0
        """How many times the process was suspended."""

    def now_ms(self) -> float:
        now_ms = self._now_ms()
        if now_ms - self._due_ms > TOLERANCE_MS:
            self._stood_still(now_ms, now_ms - self._due_ms)
        return now_ms - self._left_out_ms

    def start(self) -> None:
        """Starts watching for stalls."""
        if self._timer is None:
            self._await_tick(self._now_ms())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._due_ms = NEVER

    def _await_tick(self, now_ms: float) -> None:
        self._due_ms = now_ms + TICK_MS
        self._timer = self._loop.call_later(TICK_MS, self._tick)

    def _tick(self) -> None:
        self.now_ms()
        self._await_tick(self._now_ms())

    def _stood_still(self, now_ms: float, late_ms: float) -> None:
        self._left_out_ms += late_ms
        self._due_ms = now_ms + TICK_MS
        self.stalls += 1
        if late_ms >= LONG_STALL_MS:
            self.resumed_ms = now_ms - self._left_out_ms
