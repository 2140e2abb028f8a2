"""The shop's figures in plain Python: what the Spark job computes, for one reader and no more than memory holds.

Pure: events in, results out. It keeps a watermark: the newest event time less the delay allowed, and what is older is
late. A reader that catches up gets one partition after another, so each has its own newest time, and the slowest one
counts. An hour's figures come out when the watermark has passed its end, and only then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final

from penstock.demo.generator import ALLOWED_DELAY_S
from penstock.demo.seasons import HOUR_S
from penstock.demo.shop_events import ShopEvent, decode

Place = tuple[str, int]
"""Topic and partition."""

NEVER: Final = float("-inf")
TOP_COUNT: Final = 5
SESSION_GAP_S: Final = 30 * 60


class Verdict(Enum):
    PROCESSED = auto()
    LATE = auto()
    DUPLICATE = auto()
    BAD = auto()
    TIME_ONLY = auto()


@dataclass(slots=True)
class Hour:
    """One window of the results."""

    start_s: int
    events: int = 0
    clicks: int = 0
    orders: Counter[str] = field(default_factory=Counter)
    revenue_cents: Counter[str] = field(default_factory=Counter)

    def revenue(self) -> dict[str, object]:
        return {
            "hour": iso(self.start_s),
            "events": self.events,
            "clicks": self.clicks,
            "orders": self.orders.total(),
            "revenue_cents": self.revenue_cents.total(),
        }

    def top(self) -> dict[str, object]:
        best = sorted(self.revenue_cents.items(), key=lambda item: (-item[1], item[0]))[:TOP_COUNT]
        return {
            "hour": iso(self.start_s),
            "top": [{"product": name, "orders": self.orders[name], "revenue_cents": cents} for name, cents in best],
        }


@dataclass(slots=True)
class Session:
    customer: str
    first_s: float
    last_s: float
    clicks: int = 0
    orders: int = 0

    def result(self) -> dict[str, object]:
        return {
            "customer": self.customer,
            "started": iso(self.first_s),
            "minutes": round((self.last_s - self.first_s) / 60, 1),
            "clicks": self.clicks,
            "orders": self.orders,
        }


class ShopCounter:
    """Counts every record once, by what became of it."""

    def __init__(self) -> None:
        self._newest_s: dict[Place, float] = {}
        self._watermark_s = NEVER
        self._hours: dict[int, Hour] = {}
        self._seen: dict[str, float] = {}
        self._sessions: dict[str, Session] = {}
        self._finished_hours: list[Hour] = []
        self._finished_sessions: list[Session] = []
        self.verdicts: Counter[Verdict] = Counter()

    @property
    def watermark_s(self) -> float:
        return self._watermark_s

    def expect(self, places: Iterable[Place]) -> None:
        """These partitions are read: until each of them was heard of, nothing is late."""
        for place in places:
            self._newest_s.setdefault(place, NEVER)

    def take(self, value: bytes | None, place: Place = ("", 0)) -> tuple[Verdict, str]:
        """What became of a record of a partition, and for a bad one the reason."""
        event = decode(value)
        verdict, reason = (Verdict.BAD, event) if isinstance(event, str) else (self._count(event, place), "")
        self.verdicts[verdict] += 1
        return verdict, reason

    def finished_hours(self) -> Iterator[Hour]:
        """Hours that no further event can change, each once."""
        while self._finished_hours:
            yield self._finished_hours.pop(0)

    def finished_sessions(self) -> Iterator[Session]:
        while self._finished_sessions:
            yield self._finished_sessions.pop(0)

    def open_events(self) -> int:
        """Events in hours that are not finished."""
        return sum(hour.events for hour in self._hours.values())

    def close(self) -> None:
        """Moves the watermark and finishes what it passed; after a batch, which is often enough."""
        newest_s = min(self._newest_s.values(), default=NEVER)
        self._watermark_s = watermark_s = max(self._watermark_s, newest_s - ALLOWED_DELAY_S)
        for start_s in sorted(self._hours):
            if start_s + HOUR_S <= watermark_s:
                self._finished_hours.append(self._hours.pop(start_s))
        for customer, session in list(self._sessions.items()):
            if session.last_s + SESSION_GAP_S <= watermark_s:
                self._finished_sessions.append(self._sessions.pop(customer))
        for event_id, time_s in list(self._seen.items()):
            if time_s < watermark_s:
                del self._seen[event_id]

    def _count(self, event: ShopEvent, place: Place) -> Verdict:
        time_s = event.event_time.timestamp()
        if event.kind == "heartbeat":
            # It is the last event of all, whichever partition it is in.
            for known in [*self._newest_s, place]:
                self._newest_s[known] = time_s
            return Verdict.TIME_ONLY
        self._newest_s[place] = max(self._newest_s.get(place, NEVER), time_s)
        start_s = int(time_s // HOUR_S) * HOUR_S
        if time_s < self.watermark_s:
            return Verdict.LATE
        if event.event_id in self._seen:
            return Verdict.DUPLICATE
        self._seen[event.event_id] = time_s
        hour = self._hours.setdefault(start_s, Hour(start_s))
        hour.events += 1
        if event.kind == "click":
            hour.clicks += 1
        elif event.kind == "order":
            product = event.product or "?"
            hour.orders[product] += 1
            hour.revenue_cents[product] += event.amount_cents or 0
        self._visit(event, time_s)
        return Verdict.PROCESSED

    def _visit(self, event: ShopEvent, time_s: float) -> None:
        session = self._sessions.get(event.customer)
        if session is not None and time_s > session.last_s + SESSION_GAP_S:
            self._finished_sessions.append(session)
            session = None
        if session is None:
            session = self._sessions[event.customer] = Session(event.customer, time_s, time_s)
        session.first_s = min(session.first_s, time_s)
        session.last_s = max(session.last_s, time_s)
        session.clicks += event.kind == "click"
        session.orders += event.kind == "order"


def iso(timestamp_s: float) -> str:
    return datetime.fromtimestamp(timestamp_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
