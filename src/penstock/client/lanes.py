"""Parallel processing that preserves per-key order. Pure.

A lane is a queue of records with the same key; only the record at its head may be processed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class KeyLanes(Generic[T]):
    """`add` records, `take` one that may be processed, `finish` it; the next one in its lane is then ready."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, deque[T]] = {}
        self._ready: deque[tuple[Hashable, T]] = deque()
        self._waiting = 0
        self._taken = 0

    @property
    def queued(self) -> int:
        """The number of records that are not being processed yet."""
        return len(self._ready) + self._waiting

    @property
    def taken(self) -> int:
        """The number of records being processed."""
        return self._taken

    def add(self, key: Hashable | None, record: T) -> None:
        """Adds a record. One without a key (None) gets a lane of its own."""
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
        """The next record that may be processed, with its key; None if there is none now."""
        if not self._ready:
            return None
        self._taken += 1
        return self._ready.popleft()

    def finish(self, key: Hashable | None) -> None:
        """Ends the processing of this key's record, whether it succeeded or was given up."""
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
        """Removes and returns unwanted records that are not being processed yet."""
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
    """Closes when a queue is full, and opens when it is half empty, so that it does not toggle at every record."""

    __slots__ = ("limit", "open", "resume_at")

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self.limit = limit
        self.resume_at = limit // 2
        self.open = True

    def look(self, queued: int) -> bool:
        """Whether the gate is open with this many records queued."""
        if self.open:
            self.open = queued < self.limit
        else:
            self.open = queued <= self.resume_at
        return self.open
