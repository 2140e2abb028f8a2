"""The books: what was sent, what became of it, and whether both sides agree.

The two sides are kept by different hands. What was sent is counted by the generator, from the broker's
acknowledgements; it also knows the fate it gave each event. What became of it is counted from the results: rows of
tables, records of the dead-letter topic, and what Spark says it dropped. Nothing is derived by subtraction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from penstock.demo.generator import Fate, Kind, Outgoing


@dataclass(slots=True)
class Sent:
    """What the broker acknowledged."""

    by_kind: Counter[Kind] = field(default_factory=Counter)
    by_fate: Counter[Fate] = field(default_factory=Counter)
    bytes: int = 0
    revenue_cents: int = 0
    """Of every order that can be read, duplicates and late ones too: what an archive of it all must hold."""
    failed: int = 0
    """Events that the broker did not take; they are not part of the total."""

    @property
    def total(self) -> int:
        return self.by_fate.total()

    @property
    def bad(self) -> int:
        return self.by_fate[Fate.BAD]

    def add(self, event: Outgoing) -> None:
        self.by_kind[event.kind] += 1
        self.by_fate[event.fate] += 1
        self.bytes += len(event.value or b"") + len(event.key)
        self.revenue_cents += event.amount_cents


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the events, as the results have it. None: this pipeline does not have that result."""

    processed: int = 0
    """Events in the hours of the results."""
    dead_lettered: int = 0
    late: int = 0
    duplicates: int = 0
    archived: int | None = None
    """Rows of the archive, which takes every event that can be read."""
    archived_revenue_cents: int | None = None

    @property
    def total(self) -> int:
        return self.processed + self.dead_lettered + self.late + self.duplicates


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the balance: two figures that were counted apart and must be the same."""

    name: str
    left: str
    left_value: int
    right: str
    right_value: int

    @property
    def holds(self) -> bool:
        return self.left_value == self.right_value


def balance(sent: Sent, outcome: Outcome) -> list[Check]:
    """Every check that these results allow; the first is the one that nothing was lost."""
    checks = [
        Check(
            "events",
            "sent",
            sent.total,
            "processed + dead-lettered + late + duplicates",
            outcome.total,
        ),
        Check("bad records", "sent", sent.bad, "dead-lettered", outcome.dead_lettered),
    ]
    if outcome.archived is not None:
        checks.append(Check("archive", "sent and readable", sent.total - sent.bad, "archived", outcome.archived))
    if outcome.archived_revenue_cents is not None:
        checks.append(
            Check("money", "ordered, in cents", sent.revenue_cents, "archived", outcome.archived_revenue_cents)
        )
    return checks
