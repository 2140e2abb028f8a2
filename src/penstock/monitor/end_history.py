"""When was an offset written? Answered from the log ends of earlier rounds. Pure.

The monitor reads the end of every log in each round. An offset that lies between the ends of two rounds was written
between their times; interpolation puts it there to within one interval. This needs no request and no timestamp of a
producer. An offset from before the first round is unknown here.

Memory: one array of 64-bit integers per kept round. The rounds of the last minutes are all kept, older ones are thinned
to one per minute, and nothing is kept for longer than `SPAN_MS`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

from penstock.monitor.observed import Place

RECENT_MS: Final = 5 * 60_000
THINNED_MS: Final = 60_000
SPAN_MS: Final = 60 * 60_000
PARTITIONS_MAX: Final = 200_000


class EndHistory:
    def __init__(self) -> None:
        self._ordinals: dict[Place, int] = {}
        self._times_ms: list[int] = []
        self._ends: list[array[int]] = []

    def add(self, time_ms: int, ends: Iterable[tuple[Place, int]]) -> None:
        """Adds the ends of one round. A clock that was set back ends the history: its times mean nothing then."""
        if self._times_ms and time_ms <= self._times_ms[-1]:
            self._times_ms.clear()
            self._ends.clear()
        row = array("q", self._ends[-1]) if self._ends else array("q")
        for place, end in ends:
            ordinal = self._ordinals.get(place)
            if ordinal is None:
                if len(self._ordinals) >= PARTITIONS_MAX:
                    continue
                ordinal = self._ordinals[place] = len(self._ordinals)
            if ordinal >= len(row):
                row.extend([-1] * (ordinal + 1 - len(row)))
            if end >= 0:
                row[ordinal] = end
        self._times_ms.append(time_ms)
        self._ends.append(row)
        self._thin(time_ms)

    def time_of(self, place: Place, offset: int) -> int | None:
        """When the record at this offset was written, in ms; None if that was before the first known round."""
        ordinal = self._ordinals.get(place)
        if ordinal is None:
            return None
        # The first round whose end is beyond the offset: the record was written before it.
        low, high = 0, len(self._ends)
        while low < high:
            middle = (low + high) // 2
            if self._end(middle, ordinal) > offset:
                high = middle
            else:
                low = middle + 1
        if low == len(self._ends):
            return None
        if low == 0 or self._end(low - 1, ordinal) < 0:
            return None
        before, after = self._end(low - 1, ordinal), self._end(low, ordinal)
        before_ms, after_ms = self._times_ms[low - 1], self._times_ms[low]
        return before_ms + int((after_ms - before_ms) * (offset - before) / (after - before))

    def forget(self, place: Place) -> None:
        """The topic was deleted or created again: its old ends mean nothing."""
        ordinal = self._ordinals.get(place)
        for row in self._ends:
            if ordinal is not None and ordinal < len(row):
                row[ordinal] = -1

    @property
    def rounds(self) -> int:
        return len(self._times_ms)

    def _end(self, round_number: int, ordinal: int) -> int:
        row = self._ends[round_number]
        return row[ordinal] if ordinal < len(row) else -1

    def _thin(self, now_ms: int) -> None:
        kept: list[int] = []
        for index, time_ms in enumerate(self._times_ms):
            age_ms = now_ms - time_ms
            if age_ms > SPAN_MS:
                continue
            if age_ms > RECENT_MS and kept and time_ms - self._times_ms[kept[-1]] < THINNED_MS:
                continue
            kept.append(index)
        if len(kept) < len(self._times_ms):
            self._times_ms = [self._times_ms[index] for index in kept]
            self._ends = [self._ends[index] for index in kept]
