"""What the result topics say: read by a consumer of its own, as anyone would read them."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from penstock.demo.topics import DEAD_LETTERS, RESULTS, REVENUE, SESSIONS, TOP_PRODUCTS, headers_of, origin_of
from penstock.pipeline.dead_letter_headers import Header, origin_and_reason

READ_MAX: Final = 1_000
WAIT_S: Final = 0.2
REQUEST_TIMEOUT_S: Final = 5.0
HOURS_KEPT: Final = 7 * 24


class HourFigures(msgspec.Struct, frozen=True):
    hour: datetime
    events: int
    clicks: int
    orders: int
    revenue_cents: int


class Seller(msgspec.Struct, frozen=True):
    product: str
    orders: int
    revenue_cents: int


class BestSellers(msgspec.Struct, frozen=True):
    hour: datetime
    top: list[Seller]


class Visit(msgspec.Struct, frozen=True):
    customer: str
    minutes: float
    clicks: int
    orders: int


@dataclass(slots=True)
class Results:
    """The newest results. A record that is written again, as at-least-once may, changes nothing."""

    hours: dict[datetime, HourFigures] = field(default_factory=dict)
    best: BestSellers | None = None
    visits: int = 0
    visits_with_order: int = 0
    visit_clicks: int = 0
    visit_minutes: float = 0.0
    dead_letters: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    revenue_cents: int = 0
    """Of all hours, those that are not kept any more too; so with the events."""
    events: int = 0
    _origins: set[tuple[str, int, int]] = field(default_factory=set, repr=False)
    """Where bad records came from, so that each counts once."""

    def take(self, topic: str, value: bytes | None, headers: Sequence[Header]) -> None:
        if topic == DEAD_LETTERS:
            origin, reason = origin_and_reason(headers)
            if origin not in self._origins:
                self._origins.add(origin)
                self.dead_letters += 1
                self.reasons[_general(reason)] += 1
        elif value is None:
            return
        elif topic == REVENUE:
            figures = msgspec.json.decode(value, type=HourFigures)
            before = self.hours.get(figures.hour)
            self.revenue_cents += figures.revenue_cents - (before.revenue_cents if before else 0)
            self.events += figures.events - (before.events if before else 0)
            self.hours[figures.hour] = figures
            while len(self.hours) > HOURS_KEPT:
                del self.hours[min(self.hours)]
        elif topic == TOP_PRODUCTS:
            best = msgspec.json.decode(value, type=BestSellers)
            if best.top and (self.best is None or best.hour >= self.best.hour):
                self.best = best
        elif topic == SESSIONS:
            visit = msgspec.json.decode(value, type=Visit)
            self.visits += 1
            self.visits_with_order += visit.orders > 0
            self.visit_clicks += visit.clicks
            self.visit_minutes += visit.minutes

    def figures(self) -> Results:
        """As they are now, to look at: what grows for ever is left behind."""
        return replace(self, hours=dict(self.hours), reasons=self.reasons.copy(), _origins=set())


class ResultReader:
    """Follows the result topics from their beginning, in a thread of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._results = Results()
        self._lock = threading.Lock()
        self._positions: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-results", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def results(self) -> Results:
        with self._lock:
            return self._results.figures()

    def finish(self, timeout_s: float) -> None:
        """Returns when everything that the topics hold now was read, or the time is over."""
        consumer = _consumer(self._address)
        try:
            ends = {
                topic: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=REQUEST_TIMEOUT_S)[1]
                for topic in RESULTS
            }
        finally:
            consumer.close()
        for _ in range(int(timeout_s / WAIT_S)):
            with self._lock:
                if all(self._positions.get(topic, 0) >= end for topic, end in ends.items()):
                    return
            self._stopping.wait(WAIT_S)

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(REQUEST_TIMEOUT_S)

    def _run(self) -> None:
        consumer = _consumer(self._address)
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in RESULTS])
            while not self._stopping.is_set():
                self._take(consumer.consume(READ_MAX, WAIT_S))
        finally:
            consumer.close()

    def _take(self, messages: list[Message]) -> None:
        with self._lock:
            for message in messages:
                if message.error() is not None:
                    continue
                origin = origin_of(message)
                self._results.take(origin.topic, message.value(), headers_of(message))
                self._positions[origin.topic] = origin.offset + 1


def _general(reason: str) -> str:
    """The reason without what differs from record to record, so that the same ones can be counted."""
    return re.sub(r"(?<![\w-])\d+\b", "…", reason)


def _consumer(address: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": address, "group.id": "demo-view", "enable.auto.commit": False, "log_level": 0}
    )
