"""Records side by side, but those of a key one after another. Pure.

A lane is a queue; the record at its head is in work, or ready to be. Records with the same key are in the same lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class KeyLanes(Generic[T]):
    """`add` records, `take` one that may be worked on, `finish` it; what waits behind it is ready then."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, deque[T]] = {}
        self._ready: deque[tuple[Hashable, T]] = deque()
        self._waiting = 0
        self._taken = 0

    @property
    def queued(self) -> int:
        """Records that nobody works on yet."""
        return len(self._ready) + self._waiting

    @property
    def taken(self) -> int:
        """Records in work."""
        return self._taken

    def add(self, key: Hashable | None, record: T) -> None:
        """A record with no key (None) waits for no other."""
        if key is None:
            self._ready.append((None, record))
            return
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque()
            self._ready.append((key, record))
        else:
            lane.append(record)
            self._waiting += 1

    def take(self) -> tuple[Hashable | None, T] | None:
        """The next record that may be worked on, with its key; None if there is none now."""
        if not self._ready:
            return None
        self._taken += 1
        return self._ready.popleft()

    def finish(self, key: Hashable | None) -> None:
        """The record of this key that was taken is done, or given up."""
        self._taken -= 1
        assert self._taken >= 0
        if key is None:
            return
        lane = self._lanes[key]
        if lane:
            self._waiting -= 1
            self._ready.append((key, lane.popleft()))
        else:
            del self._lanes[key]

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Removes records that nobody works on yet, and returns them."""
        dropped: list[T] = []
        ready = deque[tuple[Hashable, T]]()
        emptied: list[Hashable] = []
        for key, record in self._ready:
            if not unwanted(record):
                ready.append((key, record))
                continue
            dropped.append(record)
            if key is not None:
                emptied.append(key)
        for lane in self._lanes.values():
            kept = [record for record in lane if not unwanted(record)]
            if len(kept) < len(lane):
                dropped += [record for record in lane if unwanted(record)]
                self._waiting -= len(lane) - len(kept)
                lane.clear()
                lane.extend(kept)
        for key in emptied:
            lane = self._lanes[key]
            if lane:
                self._waiting -= 1
                ready.append((key, lane.popleft()))
            else:
                del self._lanes[key]
        self._ready = ready
        return dropped


class QueueGate:
    """Closed when a queue is full, and open again when half of it is done: not at every record."""

    __slots__ = ("limit", "open", "resume_at")

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self.limit = limit
        self.resume_at = limit // 2
        self.open = True

    def look(self, queued: int) -> bool:
        """Whether the gate is open, with so many queued."""
        if self.open:
            self.open = queued < self.limit
        else:
            self.open = queued <= self.resume_at
        return self.open
