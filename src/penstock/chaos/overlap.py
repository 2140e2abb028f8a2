"""Runs several faults at once in one thread. Pure: the caller passes the time, and each fault proceeds in its turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from penstock.chaos.faults import FaultFailed, Hold, Steps, Until
from penstock.chaos.nodes import NodeFailed

BETWEEN_S: Final = (0.0, 2.0)
"""The pause between the starts of two faults, if another may start."""


@dataclass(slots=True)
class Planned:
    """A fault that has not started."""

    begin: Callable[[], Steps]
    alone: bool
    """Whether it must run alone."""
    done: Callable[[str], None]
    """Called with a description of what was done."""
    failed: Callable[[str], None]


@dataclass(slots=True)
class _Running:
    plan: Planned
    steps: Steps
    wait: Hold | Until | None = None
    until_s: float = 0.0


class Overlap:
    """Runs up to `at_once` of these faults at a time, in order, until all are finished. Call `tick` repeatedly."""

    def __init__(self, planned: Iterable[Planned], at_once: int, rng: Random) -> None:
        self._waiting = deque(planned)
        self._at_once = at_once
        self._rng = rng
        self._running: list[_Running] = []
        self._next_s = 0.0

    @property
    def running(self) -> int:
        return len(self._running)

    def tick(self, now_s: float) -> bool:
        """Advance the faults; returns whether any is left."""
        if self._waiting and now_s >= self._next_s and self._has_room(self._waiting[0]):
            plan = self._waiting.popleft()
            self._running.append(_Running(plan, plan.begin()))
            self._next_s = now_s + self._rng.uniform(*BETWEEN_S)
        self._running = [one for one in self._running if self._go_on(one, now_s)]
        return bool(self._waiting or self._running)

    def close(self) -> None:
        """Undo all running faults."""
        running, self._running = self._running, []
        self._waiting.clear()
        for one in running:
            one.steps.close()

    def _has_room(self, plan: Planned) -> bool:
        alone = plan.alone or any(one.plan.alone for one in self._running)
        return len(self._running) < (1 if alone else self._at_once)

    def _go_on(self, one: _Running, now_s: float) -> bool:
        """Advance a fault if what it waits for has happened; returns False when it is finished."""
        try:
            while True:
                match one.wait:
                    case Hold() if now_s < one.until_s:
                        return True
                    case Until(condition, what, timeout_s) if not condition():
                        if now_s < one.until_s:
                            return True
                        late = FaultFailed(f"the cluster did not {what} within {timeout_s:.0f} s")
                        one.wait = one.steps.throw(late)
                    case _:
                        one.wait = next(one.steps)
                one.until_s = now_s + (one.wait.seconds if isinstance(one.wait, Hold) else one.wait.timeout_s)
        except StopIteration as end:
            one.plan.done(str(end.value))
        except (FaultFailed, NodeFailed) as error:
            one.plan.failed(str(error))
        return False
