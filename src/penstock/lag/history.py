"""The observations of one partition of a group: the sliding window for verdicts and trends."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum

import msgspec

INTERVALS = 10
"""The number of commits in the window; Burrow's `intervals`."""
MIN_DISTANCE_MS = 1_000
"""Commits closer together than this count as one; Burrow's `min-distance`, as in its own configuration."""
RECENT_MS = 100_000
"""How far back "was up to date recently" looks: Burrow keeps ten log ends, ten seconds apart."""


class Source(StrEnum):
    """The source of observations."""

    COMMITS = "commits"
    """Each observation is a commit, with its time."""
    SAMPLES = "samples"
    """Each observation is the committed offset at the time of a poll."""


class Observation(msgspec.Struct, frozen=True):
    """A committed offset, when it was committed (or seen), and how many records were unread then."""

    offset: int
    timestamp_ms: int
    lag: int | None = None
    """None if the end of the log at that time is unknown; such an observation says nothing about lag."""
    last_ms: int = -1
    """The time of the last of several commits that count as one; −1 if there was only one."""
    is_from_outside: bool = False
    """Whether it was committed while the group had no members, as a reset of offsets is."""

    @property
    def lag_at_ms(self) -> int:
        """The time at which the lag was valid."""
        return self.timestamp_ms if self.last_ms < 0 else self.last_ms


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for verdicts; the defaults are Burrow's."""

    intervals: int = INTERVALS
    min_distance_ms: int = MIN_DISTANCE_MS
    allowed_lag: int = 0
    """This many unread records count as none."""
    minimum_complete: float = 0.0
    """A window filled less than this is OK whatever it contains."""


DEFAULT_RULES = Rules()


class History:
    """The last observations of one partition, oldest first, at most `rules.intervals`."""

    def __init__(
        self, observations: Sequence[Observation] = (), *, source: Source = Source.COMMITS, rules: Rules = DEFAULT_RULES
    ) -> None:
        assert rules.intervals > 0
        self.source = source
        self.rules = rules
        self.silent_since_ms: int | None = None
        """The time since which every commit would have been seen; None if older ones may have been missed."""
        self.recent_end: int | None = None
        """The end of the log about RECENT_MS ago; None if unknown. An older end is never larger, so one is enough."""
        self._observations: deque[Observation] = deque(maxlen=rules.intervals)
        for observation in observations:
            self.add(observation)

    def add(self, observation: Observation) -> None:
        """Adds an observation. One that follows too closely replaces the last, but keeps that one's time.

        With its own time, a consumer that commits several times a second would never fill the window. A step back
        always gets its own place: it says more than the commit before it.
        """
        last = self._observations[-1] if self._observations else None
        if (
            self.source is Source.COMMITS
            and last is not None
            and observation.timestamp_ms - last.timestamp_ms < self.rules.min_distance_ms
            and observation.offset >= last.offset
            and observation.is_from_outside == last.is_from_outside
        ):
            self._observations[-1] = msgspec.structs.replace(
                observation, timestamp_ms=last.timestamp_ms, last_ms=observation.lag_at_ms
            )
        else:
            self._observations.append(observation)

    def set_lag(self, index: int, end: int) -> None:
        """Sets the lag of an observation from the end of the log at that time, which was found out later.

        The log was at least as long as the largest offset committed by then.
        """
        one = self._observations[index]
        reached = max(self._observations[number].offset for number in range(index + 1))
        self._observations[index] = msgspec.structs.replace(one, lag=max(end, reached) - one.offset)

    def clear(self) -> None:
        """Clears the window after the offset was deleted: earlier observations no longer apply."""
        self._observations.clear()

    @property
    def observations(self) -> Sequence[Observation]:
        return tuple(self._observations)

    @property
    def complete(self) -> float:
        """The filled share of the window, 0 to 1."""
        return len(self._observations) / self.rules.intervals
