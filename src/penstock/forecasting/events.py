"""A calendar of events: days on which load is not as usual, such as a sale or a holiday.

The effect of an event is measured on the days on which it happened: what they had beside what their weekday has around
them. Those days are then evened out, so that they do not bend trend and season, and the effect is laid on the days on
which the event comes again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Final

import msgspec
import numpy as np

from penstock.forecasting.cleaning import Floats
from penstock.forecasting.daily import fill

EVENTS_MAX: Final = 1_000
FACTOR_MIN: Final = 0.01
FACTOR_MAX: Final = 100.0
EPOCH: Final = date(1970, 1, 1).toordinal()
_NAME = re.compile(r"[\w .:-]{1,80}")


class EventError(ValueError):
    """A calendar that makes no sense; the message names the line."""


class Event(msgspec.Struct, frozen=True):
    """Some days in a row. `factor` is the user's own guess of its effect, for an event that never happened."""

    name: str
    first_day: int
    last_day: int
    factor: float | None = None


def parse_events(lines: Iterable[str]) -> tuple[Event, ...]:
    """Lines `name,first day,last day[,factor]`: `Black Friday,2026-11-27,2026-11-30,2.5`. Empty ones and # are fine."""
    events = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#") or text.lower().startswith("name,"):
            continue
        cells = [cell.strip() for cell in text.split(",")]
        try:
            if len(cells) not in (3, 4) or not _NAME.fullmatch(cells[0]):
                raise EventError("it must be name,first day,last day[,factor]")
            first, last = (date.fromisoformat(cell).toordinal() - EPOCH for cell in cells[1:3])
            factor = float(cells[3]) if len(cells) == 4 and cells[3] else None
            if last < first or last - first > 366:
                raise EventError("the last day must follow the first, within a year")
            if factor is not None and not FACTOR_MIN <= factor <= FACTOR_MAX:
                raise EventError(f"a factor lies between {FACTOR_MIN} and {FACTOR_MAX}")
        except ValueError as error:
            raise EventError(f"line {number} of the calendar, {text[:80]!r}: {error}") from None
        events.append(Event(cells[0], first, last, factor))
        if len(events) > EVENTS_MAX:
            raise EventError(f"the calendar has more than {EVENTS_MAX} events")
    return tuple(events)


def measure(start_day: int, values: Floats, events: Iterable[Event]) -> tuple[Floats, dict[str, float]]:
    """The values with event days evened out, and the measured factor of each event by name."""
    plain = values.copy()
    found: dict[str, list[float]] = {}
    marked: dict[str, list[int]] = {}
    for event in events:
        inside = [day - start_day for day in range(event.first_day, event.last_day + 1)]
        inside = [day for day in inside if 0 <= day < len(values)]
        marked.setdefault(event.name, []).extend(inside)
        plain[inside] = np.nan
    if np.isfinite(plain).sum() < 2:
        return values, {}
    plain = fill(plain)
    for name, days in marked.items():
        for day in days:
            if plain[day] > 1e-12:
                found.setdefault(name, []).append(float(values[day] / plain[day]))
    factors = {name: float(np.clip(np.median(ratios), FACTOR_MIN, FACTOR_MAX)) for name, ratios in found.items()}
    return plain, factors


def factors_ahead(start_day: int, horizon: int, events: Iterable[Event], measured: dict[str, float]) -> Floats:
    """For each day to come: by how much events change it. The measured effect goes before the user's guess."""
    factors = np.ones(horizon)
    for event in events:
        factor = measured.get(event.name, event.factor)
        if factor is None:
            continue
        begin, end = max(event.first_day - start_day, 0), min(event.last_day - start_day + 1, horizon)
        if begin < end:
            factors[begin:end] *= factor
    return factors
