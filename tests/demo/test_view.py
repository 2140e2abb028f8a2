"""What is shown: figures as characters, the live view, the summary."""

from __future__ import annotations

import io
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from penstock.demo.accounts import Outcome, Sent
from penstock.demo.drawing import Rates, bar, clock_time, euros, sparkline
from penstock.demo.generator import Fate, Kind
from penstock.demo.pipelines import Stage
from penstock.demo.results import BestSellers, HourFigures, Results, Seller
from penstock.demo.screens import LineScreen
from penstock.demo.snapshot import History, Snapshot, TopicLine
from penstock.demo.starting import start_notice
from penstock.demo.summary import Summary, lines, next_steps
from penstock.demo.topics import DEAD_LETTERS, REVENUE
from penstock.demo.view import render
from penstock.pipeline.dead_letter_headers import dead_letter_headers

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def results() -> Results:
    found = Results()
    for hour in range(6, 12):
        found.hours[NOON.replace(hour=hour)] = HourFigures(NOON.replace(hour=hour), 400, 350, 12, hour * 10_000)
    found.best = BestSellers(NOON.replace(hour=11), [Seller("hand grinder", 3, 19_200), Seller("apron", 2, 4_400)])
    found.revenue_cents = 510_000
    found.visits, found.visits_with_order, found.visit_clicks, found.visit_minutes = 50, 10, 200, 120.0
    found.reasons = Counter({"the value is not a JSON object": 9})
    found.dead_letters = 9
    found.events = 2_400
    return found


def sent() -> Sent:
    return Sent(
        by_kind=Counter({Kind.CLICK: 2_000, Kind.ORDER: 300, Kind.PAYMENT: 200}),
        by_fate=Counter({Fate.GOOD: 2_460, Fate.BAD: 9, Fate.LATE: 20, Fate.DUPLICATE: 11}),
        bytes=400_000,
        revenue_cents=520_000,
    )


def snapshot(**changes: object) -> Snapshot:
    fields: dict[str, object] = {
        "address": "127.0.0.1:9092",
        "elapsed_s": 42.0,
        "seconds": 60.0,
        "shop_time": NOON,
        "engine": "Spark local[*]",
        "doing": "running",
        "topics": [TopicLine("shop.clicks", 2_000, 350.0, [1, 2, 3]), TopicLine("shop.orders", 300, 12.0, [1])],
        "stages": [
            Stage(name="archive", batch=4, rows=2_500, rows_per_s=400.0, lag=37, took_ms=900),
            Stage(name="hours", batch=-1),
        ],
        "lag_history": [0, 10, 37],
        "sent": sent(),
        "outcome": Outcome(processed=2_400, dead_lettered=9, late=20, duplicates=11),
        "results": results(),
    }
    return Snapshot(**{**fields, **changes})  # type: ignore[arg-type]


def drawn(shown: Snapshot, width: int, height: int = 40) -> str:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(render(shown, width, height))
    return capture.get()


def test_a_sparkline_is_as_high_as_its_values() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5, 5], 2) == "██"
    assert sparkline([0, 0], 8) == "▁▁"
    assert sparkline([], 8) == ""


def test_a_bar_has_eighths() -> None:
    assert bar(10, 10, 4) == "████"
    assert bar(5, 10, 4) == "██"
    assert bar(1, 64, 8) == "▏"
    assert bar(0, 10, 4) == bar(3, 0, 4) == ""


def test_money_and_time_are_for_people() -> None:
    assert euros(1_234_567) == "€12,346"
    assert clock_time(65) == "1:05"
    assert clock_time(3_725) == "1:02:05"


def test_rates_are_per_second_whenever_they_are_asked() -> None:
    rates = Rates()
    for now_s, count in ((0.0, 0), (0.4, 100), (1.0, 300), (1.5, 500), (3.0, 700)):
        rates.add(now_s, count)
    assert rates.values == [300.0, 200.0]
    assert rates.latest == 200.0


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_view_shows_everything_at_any_width(width: int) -> None:
    text = drawn(snapshot(), width)
    assert all(len(line) <= width for line in text.splitlines())
    for shown in (
        "127.0.0.1:9092", "running", "Mon 12:00", "0:42 of 1:00", "shop.clicks", "2,000", "archive", "37", "€1,100",
        "€5,100", "hand grinder", "50 visits", "20 % buy", "2,500 sent", "2,400 processed", "9 dead letters",
        "20 late", "11 duplicates", "under way", "not a JSON object", "penstock consume shop.revenue",
    ):  # fmt: skip
        assert shown in text, shown


def test_the_view_fits_a_small_terminal() -> None:
    topics = [TopicLine(f"shop.{number}", 1, 1.0, [1]) for number in range(3)]
    stages = [Stage(name=str(number), batch=1, lag=0) for number in range(3)]
    busy = snapshot(topics=topics, stages=stages)
    assert len(drawn(busy, 80, 24).splitlines()) <= 24
    assert len(drawn(busy, 140, 24).splitlines()) <= 24


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (60, 15), (40, 15), (30, 8)])
def test_a_smaller_terminal_gets_less(width: int, height: int) -> None:
    topics = [TopicLine(f"shop.topic{number}", 12_345, 1.0, [1]) for number in range(3)]
    stages = [Stage(name=str(number), batch=1, lag=0, rows=123_456, took_ms=1_234) for number in range(3)]
    text = drawn(snapshot(topics=topics, stages=stages, notice="finishing what was sent"), width, height)
    assert len(text.splitlines()) <= height
    assert all(len(line) <= width for line in text.splitlines())
    assert "2,500 sent" in text


def test_a_view_without_results_says_that_it_waits() -> None:
    text = drawn(snapshot(results=Results(), stages=[], doing="starting Spark", notice="no Java here"), 100)
    assert "starting Spark" in text
    assert "no Java here" in text
    assert "waiting for the first hour" in text


def test_a_pipe_gets_a_line_every_two_seconds() -> None:
    file, now_s = io.StringIO(), iter((100.0, 100.5, 101.0, 102.0, 102.5, 104.1))
    with LineScreen(file, clock=lambda: next(now_s)) as screen:
        for _ in range(6):
            screen.show(snapshot(notice="no Java here"))
    first, *rest = file.getvalue().splitlines()
    assert first == "no Java here"
    assert len(rest) == 3
    assert "sent 2,500" in rest[0]
    assert "lag 37" in rest[0]


def test_history_keeps_rates_and_lag() -> None:
    history = History()
    for second in range(4):
        sent_now = Sent(by_kind=Counter({Kind.CLICK: second * 100}))
        history.add(float(second), sent_now, [Stage(name="a", batch=0, lag=second)])
    assert history.topics(sent_now)[0] == TopicLine("shop.clicks", 300, 100.0, [100.0, 100.0, 100.0])
    assert history.lags == [0, 1, 2, 3]


def summary(**changes: object) -> Summary:
    fields: dict[str, object] = {
        "address": "127.0.0.1:9092",
        "data": Path("demo-data"),
        "engine": "Spark local[*]",
        "seconds": 60.0,
        "shop_days": 1.0,
        "sent": sent(),
        "outcome": Outcome(
            processed=2_460, dead_lettered=9, late=20, duplicates=11, archived=2_491, archived_revenue_cents=520_000
        ),
        "results": results(),
        "batches": 30,
        "first_batch_s": 12.3,
        "complete": True,
    }
    return Summary(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_summary_that_adds_up_says_so() -> None:
    done = summary()
    text = "\n".join(lines(done))
    assert done.adds_up
    assert "✓ events" in text
    assert "✗" not in text
    assert "12.3 s" in text
    assert json.loads(json.dumps(done.as_json()))["adds_up"] is True


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome(processed=2_459, dead_lettered=9, late=20, duplicates=11)},
        {"complete": False},
        {"problems": ("the broker ended by itself",)},
        {"sent": Sent(), "outcome": Outcome()},
    ],
    ids=["one event lost", "not finished", "a problem", "nothing sent"],
)
def test_a_summary_that_does_not_add_up_says_why(changes: dict[str, object]) -> None:
    done = summary(**changes)
    assert not done.adds_up
    if changes.keys() != {"sent", "outcome"}:
        assert "✗" in "\n".join(lines(done))


def test_a_lost_event_is_named_as_such() -> None:
    done = summary(outcome=Outcome(processed=2_459, dead_lettered=9, late=20, duplicates=11))
    assert "(-1)" in "\n".join(lines(done))


def test_the_next_steps_name_the_data() -> None:
    assert "demo-data/broker" in "\n".join(next_steps(summary(), has_tables=True))
    assert "tables" not in "\n".join(next_steps(summary(), has_tables=False))


def test_results_that_come_again_count_once() -> None:
    found = Results()
    hour = b'{"hour":"2026-01-05T06:00:00Z","events":10,"clicks":8,"orders":1,"revenue_cents":500}'
    headers = dead_letter_headers("shop.clicks", 0, 7, "not UTF-8: char 141")
    for _ in range(2):
        found.take(REVENUE, hour, [])
        found.take(DEAD_LETTERS, b"<", headers)
    found.take(DEAD_LETTERS, None, dead_letter_headers("shop.clicks", 0, 8, "not UTF-8: char 9"))
    shown = found.figures()
    assert (shown.events, shown.revenue_cents, len(shown.hours)) == (10, 500, 1)
    assert shown.dead_letters == 2
    assert shown.reasons == {"not UTF-8: char …": 2}


@pytest.mark.parametrize(
    ("elapsed_s", "load", "words"),
    [(1.0, 9.0, ""), (10.0, 9.0, "first results after 10"), (60.0, 9.4, "a load of 9 on 2 cores"),
     (60.0, 1.0, "penstock doctor")],
)  # fmt: skip
def test_a_wait_for_the_first_results_is_explained(elapsed_s: float, load: float, words: str) -> None:
    notice = start_notice(elapsed_s, load, 2)
    assert words in notice
    assert bool(notice) is bool(words)
