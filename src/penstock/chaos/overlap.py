"""Several faults under way at once, in one thread. Pure: it is told the time, and lets each fault go on in its turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from penstock.chaos.faults import FaultFailed, Hold, Steps, Until
from penstock.chaos.nodes import NodeFailed

BETWEEN_S: Final = (0.0, 2.0)
"""From the beginning of one fault to that of the next one, if there is room for it."""


@dataclass(slots=True)
class Planned:
    """A fault that has not begun."""

    begin: Callable[[], Steps]
    alone: bool
    """Whether nothing else may happen meanwhile."""
    done: Callable[[str], None]
    """Told what was done, in words."""
    failed: Callable[[str], None]


@dataclass(slots=True)
class _Running:
    plan: Planned
    steps: Steps
    wait: Hold | Until | None = None
    until_s: float = 0.0


class Overlap:
    """Up to `at_once` of these faults at a time, in their order, until all are over. `tick` is called all along."""

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
        """Whether anything is left to happen."""
        if self._waiting and now_s >= self._next_s and self._has_room(self._waiting[0]):
            plan = self._waiting.popleft()
            self._running.append(_Running(plan, plan.begin()))
            self._next_s = now_s + self._rng.uniform(*BETWEEN_S)
        self._running = [one for one in self._running if self._go_on(one, now_s)]
        return bool(self._waiting or self._running)

    def close(self) -> None:
        """Undo what is under way."""
        running, self._running = self._running, []
        self._waiting.clear()
        for one in running:
            one.steps.close()

    def _has_room(self, plan: Planned) -> bool:
        alone = plan.alone or any(one.plan.alone for one in self._running)
        return len(self._running) < (1 if alone else self._at_once)

    def _go_on(self, one: _Running, now_s: float) -> bool:
        """Let a fault go on if it need not wait any longer; False when it is over."""
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
