"""What coordinators need of time and of the loop that runs them."""

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
    """Time without stalls of the process: `penstock.runtime.steady_clock.SteadyClock`."""

    resumed_ms: float
    """When the last long stall ended. Timers that were set before it start again there."""

    def now_ms(self) -> float: ...
