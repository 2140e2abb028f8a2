"""Which fault comes when: decided by a seed alone, so that a run can be had again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple


class Step(NamedTuple):
    """One fault, and how long it is to be held, as a share of what the fault allows."""

    name: str
    share: float


def plan(names: Sequence[str], rng: Random, rounds: int | None = None) -> Iterator[Step]:
    """Every fault once in each round, in another order each time; without `rounds`, for ever."""
    assert names
    done = 0
    while rounds is None or done < rounds:
        for name in rng.sample(list(names), len(names)):
            yield Step(name, rng.random())
        done += 1
