"""Where offsets go, spans of time, and offset files: without a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.durations import parse_duration_ms
from penstock.cli.groups_describe import age_text, places_text, trend_text
from penstock.cli.reset_plan import Change, Facts, Impossible, Way, export, parse_file, parse_topic, plan
from penstock.lag import Direction, Trend

PLACE = ("orders", 0)


def after(way: Way, *, start: int = 10, end: int = 50, committed: int | None = 20, **more: int) -> Change:
    facts = Facts(start=start, end=end, committed=committed, at_time=more.pop("at_time", None))
    offsets = {PLACE: more.pop("in_file")} if "in_file" in more else None
    (change,) = plan(way, {PLACE: facts}, offsets=offsets, **more)
    return change


@pytest.mark.parametrize(
    ("way", "more", "offset", "note"),
    [
        (Way.EARLIEST, {}, 10, ""),
        (Way.LATEST, {}, 50, ""),
        (Way.CURRENT, {}, 20, ""),
        (Way.CURRENT, {"committed": None}, 50, "has no offset yet: the end"),
        (Way.CURRENT, {"committed": 3}, 10, "3 is before the first record"),
        (Way.TIME, {"at_time": 33}, 33, ""),
        (Way.TIME, {"at_time": -1}, 50, "all records are older: the end"),
        (Way.SHIFT, {"amount": -5}, 15, ""),
        (Way.SHIFT, {"amount": -15}, 10, "5 is before the first record"),
        (Way.SHIFT, {"amount": 31}, 50, "51 is beyond the end"),
        (Way.OFFSET, {"amount": 50}, 50, ""),
        (Way.OFFSET, {"amount": 0}, 10, "0 is before the first record"),
        (Way.FILE, {"in_file": 12}, 12, ""),
        (Way.FILE, {"in_file": 60}, 50, "60 is beyond the end"),
    ],
)
def test_where_each_way_leads(way: Way, more: dict[str, int], offset: int, note: str) -> None:
    change = after(way, **more)
    assert (change.after, change.note) == (offset, note)


def test_without_an_offset_there_is_nothing_to_shift() -> None:
    with pytest.raises(Impossible, match="orders-0 has no offset"):
        after(Way.SHIFT, committed=None, amount=1)


def test_changes_are_sorted_and_know_their_size() -> None:
    facts = {("b", 1): Facts(start=0, end=9, committed=4), ("a", 2): Facts(start=0, end=9, committed=None)}
    changes = plan(Way.LATEST, facts)
    assert [(one.topic, one.partition, one.difference) for one in changes] == [("a", 2, None), ("b", 1, 5)]


@given(
    st.sampled_from(list(Way)), st.integers(0, 100), st.integers(0, 100), st.integers(0, 300), st.integers(-300, 300)
)
def test_no_way_leaves_the_log(way: Way, start: int, size: int, committed: int, amount: int) -> None:
    change = after(
        way, start=start, end=start + size, committed=committed, amount=amount, at_time=-1, in_file=abs(amount)
    )
    assert start <= change.after <= start + size


def test_files_are_read_with_and_without_groups() -> None:
    text = 'orders,0,5\n\n"or,ders",1, 7\nbilling,orders,2,9\nother,orders,3,1\n'
    assert parse_file(text, "billing") == {("orders", 0): 5, ("or,ders", 1): 7, ("orders", 2): 9}
    assert parse_file("TOPIC,PARTITION,OFFSET\norders,0,5\n", "billing") == {("orders", 0): 5}
    assert parse_file("group,topic,partition,offset\nbilling,orders,0,5\n", "billing") == {("orders", 0): 5}


@pytest.mark.parametrize("line", ["orders", "orders,0", "orders,x,5", "orders,-1,5", ",0,5", "a,b,c,d,e", "orders,0,y"])
def test_a_line_that_makes_no_sense_is_told(line: str) -> None:
    with pytest.raises(Impossible, match="line 2"):
        parse_file(f"orders,0,1\n{line}\n", "billing")


def test_two_lines_that_contradict_each_other_are_told() -> None:
    with pytest.raises(Impossible, match="line 2: orders-0"):
        parse_file("orders,0,1\norders,0,2\n", "billing")


TOPICS = st.text("ab,\"' é", min_size=1).map(str.strip).filter(bool)


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 9)), st.integers(0)))
def test_what_is_exported_is_read_back(offsets: dict[tuple[str, int], int]) -> None:
    changes = [Change(topic=t, partition=p, before=None, after=offset) for (t, p), offset in offsets.items()]
    assert parse_file(export(changes), "any") == offsets


def test_topics_with_and_without_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:3,0,3") == ("orders", [3, 0])
    for text in ("orders:", "orders:a", "orders:0,-1", ":1"):
        with pytest.raises(Impossible, match="--topic"):
            parse_topic(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000), ("PT1H30M", 5_400_000), ("P7D", 604_800_000), ("P1DT2H3M4.5S", 93_784_500),
        ("pt15m", 900_000), ("-PT1M", -60_000), ("PT-1M", -60_000), ("-PT-1M", 60_000), ("PT0S", 0), ("+PT1S", 1_000),
        ("90s", 90_000), ("15m", 900_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("250ms", 250),
    ],
)  # fmt: skip
def test_spans_of_time(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1", "1y", "P1Y", "P1M", "PT1", "h", "1h 30m x", "-90s"])
def test_what_is_no_span_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="no span of time"):
        parse_duration_ms(text)


def test_words_for_people() -> None:
    assert [age_text(one) for one in (0, 499, 500, 1_500, 61_000)] == ["0s", "0s", "1s", "1s", "1m 1s"]
    assert places_text([("a", 0), ("a", 2), ("b", 1)]) == "a:0,2 b:1"
    assert trend_text(Trend(Direction.UNKNOWN), 5) is None
    assert trend_text(Trend(Direction.STEADY, 0.1), 5) == "steady"
    assert trend_text(Trend(Direction.GROWING, 12.345), 5) == "growing +12.3/s"
    assert trend_text(Trend(Direction.SHRINKING, -80.0), 9_600) == "shrinking -80/s, 0 in 2m"
