"""One item of advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Urgency(StrEnum):
    """In this order."""

    NOW = "now"
    """Something is broken, or will be within the hour."""
    TODAY = "today"
    """It works, with too little room."""
    PLAN = "plan"
    """It costs more than it must, or will be too small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    code: str
    """A name for programs: `consumers.scale-up`."""
    urgency: Urgency
    subject: str
    """What it is about: a broker, topic or group."""
    what: str
    evidence: tuple[str, ...]
    effect: str
    risk: str
    command: str
    source: str
    saves_month: float | None = None
    """Dollars a month."""
    weight: float = 0.0
    """The larger of two items of one urgency and category comes first."""


CATEGORIES: Final = ("health", "bottleneck", "consumers", "hot", "brokers", "topics")
"""The first part of a code. What comes earlier often explains what comes later."""


def ordered(items: list[Item]) -> list[Item]:
    """By urgency, then by category, then by weight."""
    order = list(Urgency)

    def place(one: Item) -> tuple[int, int, float, str]:
        category = CATEGORIES.index(one.code.partition(".")[0])
        return order.index(one.urgency), category, -one.weight, one.subject

    return sorted(items, key=place)
