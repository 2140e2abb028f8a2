"""The shop: what its generator promises, and what the books say."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import islice, pairwise

import msgspec
import pytest

from penstock.demo.accounts import Outcome, Sent, balance
from penstock.demo.catalogue import PRODUCTS, Assortment
from penstock.demo.counting import ShopCounter, Verdict
from penstock.demo.generator import ALLOWED_DELAY_S, DELAY_MAX_S, Fate, Generator, Kind, Outgoing
from penstock.demo.seasons import DAY_S, HOUR_S, ShopClock, epoch_ms, traffic
from penstock.demo.shop_events import ShopEvent, decode
from penstock.demo.spark_job import CLOSES_AFTER_S

FAST = ShopClock(20.0)


def events_of(seconds: float, *, seed: int = 7, rate: float = 400.0) -> list[Outgoing]:
    found: list[Outgoing] = []
    for event in Generator(FAST, rate, seed):
        if event.send_at_s > seconds:
            return found
        found.append(event)
    raise AssertionError


@pytest.fixture(scope="module")
def day() -> list[Outgoing]:
    """A day of the shop."""
    return events_of(20.0)


def test_a_seed_gives_the_same_events_every_time(day: list[Outgoing]) -> None:
    assert events_of(20.0) == day
    assert events_of(2.0, seed=8) != events_of(2.0)


def test_events_are_due_one_after_another_at_about_the_rate(day: list[Outgoing]) -> None:
    assert all(a.send_at_s <= b.send_at_s for a, b in pairwise(day))
    # Monday is a slow day, and the first minutes of a visit are missing at both ends.
    assert 5_500 < len(day) < 9_500


def test_evenings_are_busier_than_nights_and_saturdays_than_tuesdays() -> None:
    opening_s = 6 * HOUR_S
    evening, night = traffic(20.5 * HOUR_S - opening_s), traffic(28 * HOUR_S - opening_s)
    assert evening > 4 * night
    noon_s = 12 * HOUR_S - opening_s
    assert traffic(noon_s + 5 * DAY_S) > 1.2 * traffic(noon_s + DAY_S)
    week = [traffic(minute * 60 - opening_s) for minute in range(7 * 24 * 60)]
    assert sum(week) / len(week) == pytest.approx(1.0)


def test_some_customers_and_products_are_far_more_popular_than_others(day: list[Outgoing]) -> None:
    customers = Counter(event.key for event in day)
    assert customers.most_common(1)[0][1] > 20 * len(day) / len(customers) / 2
    products = Counter(
        event.product for event in (decode(one.value) for one in day) if isinstance(event, ShopEvent) and event.product
    )
    (_, first), *_ = products.most_common()
    assert first > 3 * sum(products.values()) / len(PRODUCTS)


def test_each_day_has_another_offer() -> None:
    offers = [Assortment().offer_of(day) for day in range(7)]
    assert len(set(offers)) == 7
    assert not set(offers) & set(PRODUCTS[:5])


def test_bad_records_cannot_be_read_and_all_others_can(day: list[Outgoing]) -> None:
    for event in day:
        read = decode(event.value)
        assert isinstance(read, str) == (event.fate is Fate.BAD), event
    reasons = {decode(event.value) for event in day if event.fate is Fate.BAD}
    assert len(reasons) >= 5, "the ways to be bad should differ"
    assert all(isinstance(reason, str) and reason for reason in reasons)


def test_late_events_are_hours_late_and_the_others_minutes(day: list[Outgoing]) -> None:
    late = [event for event in day if event.fate is Fate.LATE]
    assert late
    for event in day:
        delay_s = (epoch_ms(FAST.shop_s(event.send_at_s)) - event.event_time_ms) / 1000
        if event.fate is Fate.LATE:
            assert delay_s >= 3 * HOUR_S - 1
        elif event.fate is Fate.GOOD:
            assert -1 <= delay_s <= DELAY_MAX_S + 1


@pytest.mark.parametrize("run_s", [4, None], ids=["a short run", "make run"])
def test_within_a_minute_spark_finds_late_what_was_sent_late_and_nothing_else(run_s: float | None) -> None:
    clock = ShopClock.for_run(run_s)
    # The first batch has what was sent while Spark started, the second what was sent while it took its time.
    ends_s = [30.0, 40.0, 44.0, 48.0, 52.0, 56.0, 60.0]
    batches: list[list[Outgoing]] = [[] for _ in ends_s]
    for event in Generator(clock, closes_after_s=CLOSES_AFTER_S):
        if event.send_at_s > ends_s[-1]:
            break
        batches[bisect_left(ends_s, event.send_at_s)].append(event)
    found: Counter[Fate] = Counter()
    sent: Counter[Fate] = Counter()
    for number in range(2, len(batches)):
        # Spark's rule: a batch is judged by the watermark of the batch before, and that one knows the events before it.
        newest_ms = max(event.event_time_ms for batch in batches[: number - 1] for event in batch)
        watermark_ms = newest_ms - ALLOWED_DELAY_S * 1000
        sent.update(event.fate for event in batches[number])
        found.update(event.fate for event in batches[number] if event.event_time_ms < watermark_ms)
    assert set(found) == {Fate.LATE}
    assert found[Fate.LATE] > 0.9 * sent[Fate.LATE] > 50


def test_a_duplicate_is_the_same_event_again(day: list[Outgoing]) -> None:
    first = {event.value for event in day if event.fate in (Fate.GOOD, Fate.LATE)}
    duplicates = [event for event in day if event.fate is Fate.DUPLICATE]
    assert duplicates
    assert all(event.value in first for event in duplicates)


def test_amounts_are_those_of_the_orders(day: list[Outgoing]) -> None:
    for event in day:
        read = decode(event.value)
        if isinstance(read, ShopEvent) and read.kind == "order":
            assert event.amount_cents == read.amount_cents
        else:
            assert event.amount_cents == 0


def test_a_short_run_has_a_whole_day() -> None:
    assert ShopClock.for_run(None).day_length_s == 60
    assert ShopClock.for_run(30).day_length_s == 30
    assert ShopClock.for_run(3).day_length_s == 20
    assert ShopClock.for_run(600).day_length_s == 60


def test_the_counter_accounts_for_every_record(day: list[Outgoing]) -> None:
    counter, sent = ShopCounter(), Sent()
    hours = []
    for number, event in enumerate(day):
        sent.add(event)
        counter.take(event.value)
        if number % 100 == 0:
            counter.close()
            hours += list(counter.finished_hours())
    counter.take(Generator(FAST).closing(20.0).value)
    counter.close()
    hours += list(counter.finished_hours())
    verdicts = counter.verdicts
    assert verdicts.total() - verdicts[Verdict.TIME_ONLY] == sent.total
    assert verdicts[Verdict.BAD] == sent.bad
    assert sum(hour.events for hour in hours) == verdicts[Verdict.PROCESSED]
    assert counter.open_events() == 0
    assert verdicts[Verdict.LATE] >= sent.by_fate[Fate.LATE], "nothing that is hours late slips through"
    starts = [hour.start_s for hour in hours]
    assert starts == sorted(set(starts)), "an hour comes out once, in order"


def test_a_visit_ends_when_the_customer_is_away_for_long() -> None:
    counter = ShopCounter()

    def click(minute: int, customer: str = "c1", kind: str = "click") -> None:
        fields = {
            "event_id": f"{customer}-{minute}",
            "kind": kind,
            "event_time": f"2026-01-05T{minute // 60:02}:{minute % 60:02}:00Z",
            "customer": customer,
        }
        counter.take(msgspec.json.encode(fields))

    for minute in (0, 10, 20):
        click(minute)
    click(25, kind="order")
    click(100)
    click(400, "shop", "heartbeat")
    counter.close()
    visits = [session.result() for session in counter.finished_sessions()]
    assert [(visit["clicks"], visit["orders"], visit["minutes"]) for visit in visits] == [(3, 1, 25.0), (1, 0, 0.0)]


def test_the_books_balance_only_if_nothing_is_missing() -> None:
    sent = Sent()
    for event in islice(Generator(FAST), 1_000):
        sent.add(event)
    good = sent.total - sent.bad
    right = Outcome(
        processed=good - 7,
        dead_lettered=sent.bad,
        late=4,
        duplicates=3,
        archived=good,
        archived_revenue_cents=sent.revenue_cents,
    )
    assert all(check.holds for check in balance(sent, right))
    lost = Outcome(processed=good - 8, dead_lettered=sent.bad, late=4, duplicates=3)
    assert [check.name for check in balance(sent, lost) if not check.holds] == ["events"]
    misjudged = Outcome(processed=good + 1, dead_lettered=sent.bad - 1)
    assert [check.name for check in balance(sent, misjudged) if not check.holds] == ["bad records"]
    wrong_money = Outcome(
        processed=good, dead_lettered=sent.bad, archived=good, archived_revenue_cents=sent.revenue_cents - 1
    )
    assert [check.name for check in balance(sent, wrong_money) if not check.holds] == ["money"]


def test_kinds_have_a_topic_each_but_heartbeats() -> None:
    closing = Generator(FAST).closing(1.0)
    assert closing.topic == "shop.clicks"
    read = decode(closing.value)
    assert isinstance(read, ShopEvent)
    assert read.kind == str(Kind.HEARTBEAT)
