"""Time as a coordinator counts it: without the time in which the process stood still.

A broker that was stopped (SIGSTOP, a machine that slept, a disk that held everything up) could not hear its members,
however well they behaved. So that time does not count against them: a tick is due all the time, and if the clock is
read when the tick is overdue, nothing ran since. After a long stall members also need time to connect again, so every
timer that was set before the stall begins anew after it: see `SteadyClock.resumed_ms`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

TICK_MS = 500.0
TOLERANCE_MS = 250.0
"""A loop that is late by less than this is busy, not stopped."""
LONG_STALL_MS = 2_000.0
"""After a stall of this length clients may have given up and reconnect; a shorter one is just left out."""

NEVER = float("inf")


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """What coordinators need of the runtime."""

    def now_ms(self) -> float: ...
    def wall_ms(self) -> int: ...
    def uuid(self) -> bytes: ...
    def call_soon(self, callback: Callable[..., object], *args: object) -> Cancellable: ...
    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Cancellable: ...
    def sleep(self, delay_ms: float) -> Awaitable[None]: ...


class SteadyClock:
    """Monotonic milliseconds in which this process could do its work. One for all coordinators of a broker."""

    __slots__ = ("_due_ms", "_left_out_ms", "_loop", "_now_ms", "_timer", "resumed_ms", "stalls")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._now_ms = loop.now_ms
        self._left_out_ms = 0.0
        self._due_ms = NEVER
        self._timer: Cancellable | None = None
        self.resumed_ms = -NEVER
        """When, by this clock, the last long stall ended. Waits that began before it begin anew there."""
        self.stalls = 0
        """How often the process stood still."""

    def now_ms(self) -> float:
        now_ms = self._now_ms()
        if now_ms - self._due_ms > TOLERANCE_MS:
            self._stood_still(now_ms, now_ms - self._due_ms)
        return now_ms - self._left_out_ms

    def start(self) -> None:
        """Begin to watch for stalls."""
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
