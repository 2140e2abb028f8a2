"""Measures how late the event loop is."""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque

from penstock.runtime import LoopStalls

__all__ = ["StallMeter"]

INTERVAL_S = 0.1
SAMPLES_MAX = 6_000


class StallMeter:
    """Sets a timer ten times a second and records how late it fires: a long loop iteration delays it.

    Samples of the last ten minutes are kept for the next reader; older ones are dropped, but not the maximum.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._samples_ms: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._max_ms = 0.0
        self._timer: TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        # Not the loop's own clock: uvloop reads it once per iteration, in whole milliseconds.
        self._due_s = time.monotonic() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._measure)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self) -> LoopStalls:
        samples_ms, self._samples_ms = self._samples_ms, deque(maxlen=SAMPLES_MAX)
        max_ms, self._max_ms = self._max_ms, 0.0
        return LoopStalls(max_ms=max_ms, samples_ms=list(samples_ms))

    def _measure(self) -> None:
        late_ms = max(0.0, (time.monotonic() - self._due_s) * 1000)
        self._samples_ms.append(late_ms)
        self._max_ms = max(self._max_ms, late_ms)
        self.start()
