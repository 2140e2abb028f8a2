"""Minimises a failing round: finds the few cases that the failure needs."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from penstock.sim.fuzz.rounds import Case, run_cases
from penstock.sim.trials.shrink import signature

__all__ = ["StoredRound", "minimise"]

TRIES_MAX = 60


class StoredRound(msgspec.Struct, frozen=True):
    """A round as data, so that it can be replayed."""

    seed: str
    nodes: int
    cases: list[Case]

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> StoredRound:
        return msgspec.json.decode(data, type=cls)


def minimise(stored: StoredRound, failure: str, tries_max: int = TRIES_MAX) -> StoredRound:
    """Leaves out halves, then quarters, … of the cases, as long as the round fails in the same way."""
    wanted = signature(failure)
    size = -(-len(stored.cases) // 2)
    while size and tries_max:
        for first in range(0, len(stored.cases), size):
            rest = stored.cases[:first] + stored.cases[first + size :]
            if not tries_max or not rest:
                break
            tries_max -= 1
            if signature(run_cases(stored.seed, rest, stored.nodes).failure) == wanted:
                stored = replace(stored, cases=rest)
                break
        else:
            size //= 2
            continue
        size = min(size, -(-len(stored.cases) // 2))
        if len(stored.cases) == 1:
            break
    return stored
