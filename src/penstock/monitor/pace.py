"""When is each part of a sample due? Keeps the monitor within its share of a core. Pure.

Every part (the shape of the cluster, log ends, groups, disks, …) wants to be sampled at an interval. On a large cluster
that would cost too much: then its interval grows until its cost is its share of the budget. The cost is measured, so
a cluster of a few hundred partitions is sampled at the wanted interval, and one with 100,000 as often as the budget
allows.
"""

from __future__ import annotations

from typing import Final

SMOOTHING: Final = 0.3
"""The weight of the newest cost."""
STRETCH_MAX: Final = 60
"""No interval grows beyond this multiple of the wanted one, so that nothing is forgotten."""


class Part:
    """One part of a sample: how often it is wanted, and the share of one core that it may use."""

    __slots__ = ("_cost_s", "_due_s", "_is_warm", "share", "wanted_s")

    def __init__(self, wanted_s: float, share: float) -> None:
        assert wanted_s > 0
        assert 0 < share < 1
        self.wanted_s = wanted_s
        self.share = share
        self._cost_s = 0.0
        self._due_s = 0.0
        self._is_warm = False

    @property
    def interval_s(self) -> float:
        """How often it is sampled now."""
        return min(max(self.wanted_s, self._cost_s / self.share), self.wanted_s * STRETCH_MAX)

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def done(self, now_s: float, cost_s: float) -> None:
        """It was sampled, beginning at `now_s`, for this much CPU time."""
        # The first time includes work that is never done again: modules are loaded, decoders are compiled.
        if self._is_warm:
            weight = SMOOTHING if self._cost_s else 1.0
            self._cost_s += weight * (cost_s - self._cost_s)
        self._is_warm = True
        # A little early rather than one whole round late: rounds do not begin on the dot.
        self._due_s = now_s + self.interval_s * 0.95
