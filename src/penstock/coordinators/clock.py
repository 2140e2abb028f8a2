"""The interfaces of the clock and the event loop that coordinators use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

NEVER = float("inf")


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of the runtime that coordinators use."""

    def now_ms(self) -> float: ...
    def wall_ms(self) -> int: ...
    def uuid(self) -> bytes: ...
    def call_soon(self, callback: Callable[..., object], *args: object) -> Cancellable: ...
    def call_later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> Cancellable: ...
    def sleep(self, delay_ms: float) -> Awaitable[None]: ...


class Clock(Protocol):
    """A clock that excludes stalls of the process: `penstock.runtime.steady_clock.SteadyClock`."""

    resumed_ms: float
    """When the last long stall ended. Timers set before it are restarted from this time."""

    def now_ms(self) -> float: ...
