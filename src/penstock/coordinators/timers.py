"""Timers for many keys, optimised for timers that are reset often and rarely fire.

Each heartbeat of a member resets its session timer. So resetting a timer only stores its new time; when the old time
comes up in the heap, the timer is put back with the new one. All timers share one timer of the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from penstock.coordinators.clock import NEVER, Cancellable, Clock, Loop
from penstock.coordinators.shard import TimerCallback, TimerKey

FIRED_PER_TURN_MAX = 64
"""Fire at most this many timers in one turn of the loop, because each is a decision."""
GARBAGE_MIN = 64


class _Entry:
    __slots__ = ("callback", "delay_ms", "queued_ms", "set_ms")

    callback: TimerCallback | None
    """None: cancelled."""
    set_ms: float
    delay_ms: float

    def __init__(self) -> None:
        self.queued_ms = NEVER
        """The time of its current heap entry; other entries of this timer are outdated."""


class Timers:
    """The timers of one shard, by key. `fire` is called for each timer that is due, after it is removed."""

    def __init__(self, loop: Loop, clock: Clock, fire: Callable[[TimerCallback, TimerKey], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._fire = fire
        self._entries: dict[TimerKey, _Entry] = {}
        self._heap: list[tuple[float, int, TimerKey, _Entry]] = []
        self._sequence = 0
        self._armed: Cancellable | None = None
        self._armed_ms = NEVER

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, key: TimerKey, delay_ms: float, callback: TimerCallback, now_ms: float) -> None:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        entry.callback = callback
        entry.set_ms = now_ms
        entry.delay_ms = delay_ms
        if now_ms + delay_ms < entry.queued_ms:
            self._queue(key, entry, now_ms + delay_ms)
            self._arm(now_ms)

    def cancel(self, key: TimerKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        entry.callback = None
        if len(self._heap) > GARBAGE_MIN + len(self._entries) * 5 // 4:
            self._heap[:] = [item for item in self._heap if self._is_current(item)]
            heapify(self._heap)

    def clear(self) -> None:
        self._entries.clear()
        self._heap.clear()
        if self._armed is not None:
            self._armed.cancel()
        self._armed, self._armed_ms = None, NEVER

    def _queue(self, key: TimerKey, entry: _Entry, when_ms: float) -> None:
        self._sequence += 1
        entry.queued_ms = when_ms
        heappush(self._heap, (when_ms, self._sequence, key, entry))

    def _is_current(self, item: tuple[float, int, TimerKey, _Entry]) -> bool:
        when_ms, _, _, entry = item
        return entry.queued_ms == when_ms and entry.callback is not None

    def _arm(self, now_ms: float) -> None:
        """Schedule a wake-up for the first timer in the heap."""
        if not self._heap or self._heap[0][0] >= self._armed_ms:
            return
        if self._armed is not None:
            self._armed.cancel()
        self._armed_ms = self._heap[0][0]
        self._armed = self._loop.call_later(max(0.0, self._armed_ms - now_ms), self._wake)

    def _wake(self) -> None:
        self._armed, self._armed_ms = None, NEVER
        now_ms = self._clock.now_ms()
        heap = self._heap
        fired = 0
        try:
            while heap and heap[0][0] <= now_ms and fired < FIRED_PER_TURN_MAX:
                item = heappop(heap)
                if not self._is_current(item):
                    continue
                _, _, key, entry = item
                due_ms = max(entry.set_ms, self._clock.resumed_ms) + entry.delay_ms
                if due_ms > now_ms:
                    self._queue(key, entry, due_ms)
                    continue
                del self._entries[key]
                fired += 1
                assert entry.callback is not None
                self._fire(entry.callback, key)
        finally:
            # Also if a callback raised: the remaining timers are still due.
            self._arm(now_ms)
