"""Minimises a failing schedule: delta debugging over its faults, then over the load.

A smaller schedule counts if it fails in the same way. It need not run the same course: with one fault less every packet
may arrive at another time. That is fine, since any run that violates a guarantee shows the bug.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from penstock.sim.trials.running import run_trial
from penstock.sim.trials.schedule import Fault, Schedule

__all__ = ["shrink", "signature"]

TRIES_MAX = 120
QUIET_MS = 3_000
"""How long the load continues after the last fault."""

Fails = Callable[[Schedule], bool]


def signature(failure: str) -> str:
    """The essence of a failure, without the numbers and values of one run."""
    first_line = failure.split("\n", 1)[0]
    return re.sub(r"b?'[^']*'|[0-9a-f]{32}|\d+", "#", first_line)[:80]


def shrink(
    schedule: Schedule, failure: str, *, tries_max: int = TRIES_MAX, report: Callable[[Schedule], None] | None = None
) -> Schedule:
    """The smallest schedule found within `tries` runs that fails like `schedule`."""
    wanted = signature(failure)

    def fails(candidate: Schedule) -> bool:
        return signature(run_trial(candidate).failure) == wanted

    return Shrinker(fails, tries_max, report).run(schedule)


class Shrinker:
    def __init__(self, fails: Fails, tries_max: int, report: Callable[[Schedule], None] | None = None) -> None:
        self._fails = fails
        self._tries = tries_max
        self._report = report

    def run(self, schedule: Schedule) -> Schedule:
        schedule = self._fewer_faults(schedule)
        for simplify in SIMPLIFICATIONS:
            candidate = simplify(schedule)
            if candidate != schedule and self._try(candidate):
                schedule = candidate
        return self._fewer_faults(schedule)

    def _try(self, candidate: Schedule) -> bool:
        if self._tries <= 0:
            return False
        self._tries -= 1
        failed = self._fails(candidate)
        if failed and self._report is not None:
            self._report(candidate)
        return failed

    def _fewer_faults(self, schedule: Schedule) -> Schedule:
        """Zeller's ddmin: leaves out halves, then quarters, … then single faults, until each one is needed."""
        parts = 2
        while len(schedule.faults) > 0 and self._tries > 0:
            faults = schedule.faults
            parts = min(parts, len(faults))
            for rest in _without_one_part(faults, parts):
                candidate = replace(schedule, faults=rest)
                if self._try(candidate):
                    schedule = candidate
                    parts = max(2, parts - 1)
                    break
            else:
                if parts >= len(faults):
                    break
                parts = min(len(faults), parts * 2)
        return schedule


def _without_one_part(faults: tuple[Fault, ...], parts: int) -> Iterator[tuple[Fault, ...]]:
    size = -(-len(faults) // parts)
    for start in range(0, len(faults), size):
        yield faults[:start] + faults[start + size :]


def _shorter(schedule: Schedule) -> Schedule:
    last_ms = max((fault.at_ms + fault.for_ms for fault in schedule.faults), default=0)
    return replace(schedule, length_ms=min(schedule.length_ms, last_ms + QUIET_MS))


SIMPLIFICATIONS: tuple[Callable[[Schedule], Schedule], ...] = (
    lambda schedule: replace(schedule, topics=False),
    lambda schedule: replace(schedule, groups=False),
    lambda schedule: replace(schedule, partitions=1),
    _shorter,
)
