"""Measures the times without acknowledgements. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

LONG_S: Final = 5.0
"""Pauses of at least this length are reported individually, with the faults at that time."""


@dataclass(slots=True)
class Pause:
    """A long time without an acknowledgement, on one or several partitions."""

    start_s: float
    end_s: float
    partitions: list[int]

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(slots=True)
class Pauses:
    """The longest time between two acknowledgements of a partition, since the last `take_s`."""

    partitions: int
    long: list[Pause] = field(default_factory=list)
    """Pauses of at least `LONG_S`, each for one partition, in the order in which they ended."""
    _last_s: list[float | None] = field(init=False)
    _longest_s: float = 0.0

    def __post_init__(self) -> None:
        self._last_s = [None] * self.partitions

    def acknowledged(self, partition: int, now_s: float) -> None:
        before_s = self._last_s[partition]
        if before_s is not None:
            self._ended(partition, before_s, now_s)
        self._last_s[partition] = now_s

    def running_s(self, now_s: float) -> float:
        """The longest current wait of any partition."""
        return max((now_s - last_s for last_s in self._last_s if last_s is not None), default=0.0)

    def take_s(self, now_s: float) -> float:
        """The longest pause since the last call, including current ones; then starts a new measurement."""
        for partition, last_s in enumerate(self._last_s):
            if last_s is not None:
                self.acknowledged(partition, now_s)
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    def _ended(self, partition: int, start_s: float, end_s: float) -> None:
        self._longest_s = max(self._longest_s, end_s - start_s)
        if end_s - start_s >= LONG_S:
            self.long.append(Pause(start_s, end_s, [partition]))


def longest_wait_s(times: Iterable[float], start_s: float, end_s: float) -> float:
    """The longest interval between `start_s` and `end_s` that contains none of these times."""
    moments = [start_s, *(time_s for time_s in times if start_s < time_s < end_s), end_s]
    return max(after - before for before, after in pairwise(moments))


def merged(pauses: list[Pause]) -> list[Pause]:
    """Overlapping pauses of several partitions merged into one: the longest of them, with all partitions."""
    found: list[Pause] = []
    until_s = float("-inf")
    for pause in sorted(pauses, key=lambda one: one.start_s):
        if not found or pause.start_s >= until_s:
            found.append(Pause(pause.start_s, pause.end_s, list(pause.partitions)))
            until_s = pause.end_s
            continue
        last = found[-1]
        until_s = max(until_s, pause.end_s)
        if pause.seconds > last.seconds:
            last.start_s, last.end_s = pause.start_s, pause.end_s
        last.partitions = sorted({*last.partitions, *pause.partitions})
    return found
