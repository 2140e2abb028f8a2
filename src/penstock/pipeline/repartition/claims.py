"""Which run may go on: claims in the order of a log. Pure.

Each run claims a repartitioning before it acts, with a number above all that it has seen: (3, "a1b2…"). Its plans are
records of that claim. The highest claim holds; the name decides between equal numbers.

| a record of a lower claim | counts |
|---|---|
| before the first record of the higher one | yes: the new run must begin with what it says |
| behind it | no: its run was late, and learns from the log that it was taken over |

A run acts on a plan only after it wrote it and then saw no higher claim up to the end of the log. So whatever a run has
acted on stands before the claim that ends it, and the next run knows of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.pipeline.repartition.plan import RepartitionPlan

SEPARATOR: Final = "/"
"""Cannot be in the name of a topic."""


class Claim(NamedTuple):
    number: int
    owner: str

    def key(self, source: str) -> bytes:
        return SEPARATOR.join((source, str(self.number), self.owner)).encode()


def claim_in(key: bytes, source: str) -> Claim | None:
    """The claim that a record of the ledger belongs to; None if it is about another topic, or none at all."""
    parts = key.decode(errors="replace").split(SEPARATOR)
    if len(parts) != 3 or parts[0] != source or not parts[1].isdecimal():
        return None
    return Claim(int(parts[1]), parts[2])


class _Held(NamedTuple):
    first_offset: int
    plan: RepartitionPlan


class Claims:
    """What the log says of one repartitioning, fed record by record in its order."""

    def __init__(self) -> None:
        self._held: dict[Claim, _Held] = {}

    def see(self, offset: int, claim: Claim, plan: RepartitionPlan | None) -> None:
        """A record; one without a plan says that the claim is no longer needed."""
        if plan is None:
            if claim != self.highest:
                self._held.pop(claim, None)
            return
        first = self._held[claim].first_offset if claim in self._held else offset
        if any(other > claim and held.first_offset < offset for other, held in self._held.items()):
            return
        self._held[claim] = _Held(first, plan)

    @property
    def highest(self) -> Claim | None:
        return max(self._held, default=None)

    @property
    def plan(self) -> RepartitionPlan | None:
        """The plan that holds."""
        highest = self.highest
        return None if highest is None else self._held[highest].plan

    def next_claim(self, owner: str) -> Claim:
        highest = self.highest
        return Claim(1 if highest is None else highest.number + 1, owner)

    def inherited(self, claim: Claim) -> RepartitionPlan | None:
        """What a claim begins with: the plan of the highest one below it, as it was when this one was made."""
        below = [one for one in self._held if one < claim]
        return self._held[max(below)].plan if below else None

    def superseded(self, claim: Claim) -> list[Claim]:
        return sorted(one for one in self._held if one < claim)
