"""The order of faults, derived from a seed alone, so that a run can be repeated. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple


class Step(NamedTuple):
    """One fault, and how long to hold it, as a share of the range that the fault allows."""

    name: str
    share: float


def plan(names: Sequence[str], rng: Random, rounds: int | None = None) -> Iterator[Step]:
    """Every fault once per round, in a new random order each time; without `rounds`, forever."""
    assert names
    done = 0
    while rounds is None or done < rounds:
        for name in rng.sample(list(names), len(names)):
            yield Step(name, rng.random())
        done += 1
