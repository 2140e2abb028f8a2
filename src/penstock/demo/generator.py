"""The shop's events, one after another, as a seed has it.

Visits begin as a Poisson process whose rate follows `seasons.traffic`. A visit is a few clicks, perhaps an order, and
then its payment. Most events are sent as they happen, which is not in order: phones and queues take their time. Beyond
that, things go wrong here as they do elsewhere, each with its own probability:

| fate | what happens | where it belongs |
|---|---|---|
| good | sent within two minutes (of the shop's time) | results and archive |
| duplicate | an event is sent a second time, as a retry would | the archive; results count it once |
| late | sent hours later, when its hour is closed: a phone that was in a tunnel | the archive; results leave it out |
| bad | cut off, not JSON, no id, a price that is no number … | the dead-letter topic, with the reason |
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from penstock.demo.catalogue import Assortment, Customers
from penstock.demo.seasons import DAY_S, HOUR_S, OPENING, ShopClock, epoch_ms, traffic


class Kind(StrEnum):
    CLICK = "click"
    ORDER = "order"
    PAYMENT = "payment"
    HEARTBEAT = "heartbeat"
    """Says only what time it is in the shop, so that windows close though nobody buys."""


class Fate(StrEnum):
    GOOD = "good"
    DUPLICATE = "duplicate"
    LATE = "late"
    BAD = "bad"


TOPIC_OF: Final = {Kind.CLICK: "shop.clicks", Kind.ORDER: "shop.orders", Kind.PAYMENT: "shop.payments"}

RATE_DEFAULT: Final = 400.0
SEED_DEFAULT: Final = 20260105

LATE_SHARE: Final = 0.012
DUPLICATE_SHARE: Final = 0.006
BAD_SHARE: Final = 0.01

ALLOWED_DELAY_S: Final = 2 * HOUR_S
"""How late (in the shop's time) an event may be and still count: the watermark of the pipelines."""
DELAY_MAX_S: Final = 120.0
LATE_BY_S: Final = (3.0 * HOUR_S, 6.0 * HOUR_S)
"""In the shop's time, and on top of what the pipeline needs to close an hour."""
CLOSING_AFTER_S: Final = 12 * HOUR_S
"""How far ahead of the last event the closing heartbeat is: beyond every window, gap and watermark."""

_CLICKS_MEAN: Final = 4.0
_ORDER_SHARE: Final = 0.2
_DECLINED_SHARE: Final = 0.06
_EVENTS_PER_VISIT: Final = _CLICKS_MEAN + _ORDER_SHARE * (2 + _DECLINED_SHARE)

_PAGES: Final = ("home", "search", "product", "reviews", "basket")
_REFERRERS: Final = ("search", "newsletter", "direct", "social")
_METHODS: Final = ("card", "transfer", "wallet")


class Outgoing(NamedTuple):
    """An event on its way."""

    send_at_s: float
    """Seconds since the demo began, by our clocks."""
    kind: Kind
    fate: Fate
    key: bytes
    value: bytes | None
    event_time_ms: int
    amount_cents: int
    """Of orders that can be read; else 0."""

    @property
    def topic(self) -> str:
        return TOPIC_OF[self.kind]


class Generator:
    """An endless sequence of events; `rate` is their mean number per second over a week of the shop.

    `closes_after_s` is how long the pipeline may take, by our clocks, to close an hour whose time has come. Days in the
    shop are short, so that two batches of a pipeline are hours there, and what is to be late has to be later than that.
    """

    def __init__(
        self,
        clock: ShopClock,
        rate: float = RATE_DEFAULT,
        seed: int = SEED_DEFAULT,
        *,
        closes_after_s: float = 0.0,
    ) -> None:
        assert rate > 0, rate
        self.clock = clock
        self._closes_after_s = clock.shop_s(closes_after_s)
        self._rng = random.Random(seed)
        self._assortment = Assortment()
        self._customers = Customers()
        self._visits_per_shop_s = rate / clock.speed / _EVENTS_PER_VISIT
        self._next_visit_s = 0.0
        self._waiting: list[tuple[float, int, Outgoing]] = []
        self._sequence = 0
        self._ids = f"{seed:x}"
        self._event_number = 0
        self._order_number = 0

    def __iter__(self) -> Iterator[Outgoing]:
        while True:
            # Visits first: one that begins earlier may send earlier.
            while not self._waiting or self._next_visit_s <= self._waiting[0][0]:
                self._visit(self._next_visit_s)
                rate = self._visits_per_shop_s * traffic(self._next_visit_s)
                self._next_visit_s += self._rng.expovariate(rate)
            yield heapq.heappop(self._waiting)[2]

    def closing(self, elapsed_s: float) -> Outgoing:
        """The last event: it is so far ahead that every window and session before it can be closed."""
        shop_s = self.clock.shop_s(elapsed_s) + CLOSING_AFTER_S
        fields = self._fields(Kind.HEARTBEAT, shop_s, "shop")
        value = msgspec.json.encode(fields)
        return Outgoing(elapsed_s, Kind.CLICK, Fate.GOOD, b"shop", value, epoch_ms(shop_s), 0)

    # A visit

    def _visit(self, shop_s: float) -> None:
        rng = self._rng
        customer = self._customers.draw(rng)
        day = int((shop_s + OPENING.hour * HOUR_S) // DAY_S)
        product = self._assortment.draw(rng, day)
        referrer = rng.choice(_REFERRERS)
        for number in range(_geometric(rng, _CLICKS_MEAN)):
            fields = self._fields(Kind.CLICK, shop_s, customer)
            fields |= {"page": _PAGES[min(number, len(_PAGES) - 1)], "product": product.name, "referrer": referrer}
            self._send(Kind.CLICK, shop_s, customer, fields)
            shop_s += rng.uniform(5, 90)
        if rng.random() >= _ORDER_SHARE:
            return
        quantity = 1 + int(rng.expovariate(1.6))
        self._order_number += 1
        order_id = f"o{self._order_number:07}"
        amount = product.price_cents * quantity
        fields = self._fields(Kind.ORDER, shop_s, customer)
        fields |= {"order_id": order_id, "product": product.name, "category": product.category}
        fields |= {"quantity": quantity, "amount_cents": amount}
        self._send(Kind.ORDER, shop_s, customer, fields, amount)
        declined = rng.random() < _DECLINED_SHARE
        for status in ("declined", "captured") if declined else ("captured",):
            shop_s += rng.uniform(2, 40)
            fields = self._fields(Kind.PAYMENT, shop_s, customer)
            fields |= {"order_id": order_id, "amount_cents": amount, "method": rng.choice(_METHODS), "status": status}
            self._send(Kind.PAYMENT, shop_s, customer, fields)

    def _fields(self, kind: Kind, shop_s: float, customer: str) -> dict[str, object]:
        self._event_number += 1
        return {
            "event_id": f"{self._ids}-{self._event_number:08}",
            "kind": kind.value,
            "event_time": _iso(epoch_ms(shop_s)),
            "customer": customer,
        }

    # Its way

    def _send(self, kind: Kind, shop_s: float, customer: str, fields: dict[str, object], amount_cents: int = 0) -> None:
        rng = self._rng
        key = customer.encode()
        at_s = shop_s + rng.uniform(0, DELAY_MAX_S)
        chance = rng.random()
        if chance < BAD_SHARE:
            spoil = rng.choice(_SPOILERS)
            self._wait(at_s, Outgoing(0, kind, Fate.BAD, key, spoil(fields), epoch_ms(shop_s), 0))
            return
        value = msgspec.json.encode(fields)
        event_time_ms = epoch_ms(shop_s)
        fate = Fate.GOOD
        if chance < BAD_SHARE + LATE_SHARE:
            fate = Fate.LATE
            at_s = shop_s + self._closes_after_s + rng.uniform(*LATE_BY_S)
        self._wait(at_s, Outgoing(0, kind, fate, key, value, event_time_ms, amount_cents))
        if chance > 1 - DUPLICATE_SHARE:
            again_s = at_s + rng.uniform(1, DELAY_MAX_S)
            self._wait(again_s, Outgoing(0, kind, Fate.DUPLICATE, key, value, event_time_ms, amount_cents))

    def _wait(self, at_s: float, event: Outgoing) -> None:
        self._sequence += 1
        event = event._replace(send_at_s=self.clock.elapsed_s(at_s))
        heapq.heappush(self._waiting, (at_s, self._sequence, event))


def _geometric(rng: random.Random, mean: float) -> int:
    """1, 2, 3 …, each step with the same chance to go on."""
    return 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / mean))


def _iso(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# How an event is spoiled. Each gives a value that a pipeline must refuse, and none must break it.


def _cut_off(fields: dict[str, object]) -> bytes:
    return msgspec.json.encode(fields)[:-17]


def _nothing(fields: dict[str, object]) -> None:
    return None


def _not_json(fields: dict[str, object]) -> bytes:
    return f"<event id={fields['event_id']}/>".encode()


def _not_text(fields: dict[str, object]) -> bytes:
    return b"\x00\x01\xfe\xff" + msgspec.json.encode(fields)


def _no_id(fields: dict[str, object]) -> bytes:
    return msgspec.json.encode({name: value for name, value in fields.items() if name != "event_id"})


def _no_time(fields: dict[str, object]) -> bytes:
    return msgspec.json.encode({**fields, "event_time": "yesterday"})


def _not_a_number(fields: dict[str, object]) -> bytes:
    return msgspec.json.encode({**fields, "amount_cents": "a lot"})


_SPOILERS: Final[tuple[Callable[[dict[str, object]], bytes | None], ...]] = (
    _cut_off,
    _nothing,
    _not_json,
    _not_text,
    _no_id,
    _no_time,
    _not_a_number,
)
