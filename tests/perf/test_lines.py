"""The lines of Kafka's tools, and what leads to them."""

from __future__ import annotations

from datetime import datetime

import pytest

from penstock.cli.perf_dates import date_text
from penstock.perf import Histogram
from penstock.perf.lines import (
    consumer_head,
    consumer_progress,
    consumer_total,
    latency_results,
    producer_total,
    producer_window,
)
from penstock.perf.payloads import of_list, of_numbers, of_size, split_payloads
from penstock.perf.plot import plot, short
from penstock.perf.throttle import Throttle


def test_a_producers_lines() -> None:
    latencies = Histogram([1000] * 98 + [20_000, 50_000])
    assert producer_window(latencies, 1024 * 1024, 2.0) == (
        "100 records sent, 50.0 records/sec (0.50 MB/sec), 1.7 ms avg latency, 50.0 ms max latency."
    )
    assert producer_total(latencies, 1024 * 1024, 2.0, steady=True) == (
        "100 steady state records sent, 50.000000 records/sec (0.50 MB/sec), 1.68 ms avg latency, "
        "50.00 ms max latency, 1 ms 50th, 1 ms 95th, 20 ms 99th, 50 ms 99.9th."
    )


def test_a_consumers_lines() -> None:
    assert consumer_head(detailed=False) == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    assert consumer_head(detailed=True).startswith("time, threadId, data.consumed.in.MB")
    assert consumer_total("S", "E", 1000, 2 * 1024 * 1024, 2000, 1000) == (
        "S, E, 2.0000, 1.0000, 1000, 500.0000, 1000, 1000, 2.0000, 1000.0000"
    )
    assert consumer_progress("T", (3000, 3 * 1024 * 1024), (1000, 1024 * 1024), 500, 0) == (
        "T, 0, 3.0000, 2.0000, 3000, 2000.0000, 0, 500, 2.0000, 2000.0000"
    )


def test_the_latency_tools_lines() -> None:
    assert latency_results(Histogram([1500, 2500])) == [
        "Avg latency: 2.0000 ms",
        "Percentiles: 50th = 1, 99th = 2, 99.9th = 2",
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-03-04 05:06:07:089"),
        ("d.M.yy h:mm a", "4.3.26 5:06 AM"),
        ("'at' HH 'o''clock'", "at 05 o'clock"),
        ("EEE MMM dd", "Wed Mar 04"),
    ],
)
def test_times_are_written_as_java_writes_them(pattern: str, expected: str) -> None:
    assert date_text(datetime(2026, 3, 4, 5, 6, 7, 89_000), pattern) == expected


def test_a_letter_that_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match="'Q'"):
        date_text(datetime(2026, 3, 4), "QQ")


def test_a_rate_is_kept_over_the_whole_run() -> None:
    throttle = Throttle(100)
    assert throttle.allowed(0.0, 0, 50) == 1
    assert throttle.wait_s(0.0, 1) == pytest.approx(0.01)
    assert throttle.allowed(1.0, 40, 500) == 61
    assert throttle.allowed(1.0, 200, 10) == 0
    assert Throttle(-1).allowed(0.0, 10**9, 7) == 7
    assert Throttle(-1).wait_s(0.0, 10**9) == 0


def test_payloads() -> None:
    some = of_size(100)(0, 1000)
    assert {len(one) for one in some} == {100}
    assert set(b"".join(some)) == set(range(65, 91))
    assert some == of_size(100)(0, 1000), "the same in every run"
    assert len(set(some)) > 990
    assert of_numbers()(7, 3) == [b"7", b"8", b"9"]
    assert set(of_list([b"a", b"b"])(0, 100)) == {b"a", b"b"}
    assert split_payloads(b"one\n\nthree\n", b"\n") == [b"one", b"", b"three"]
    assert split_payloads(b"one;two", b";") == [b"one", b"two"]
    assert split_payloads(b"", b"\n") == []


def test_a_chart_shows_the_largest_and_every_spike() -> None:
    lines = plot([0, 50, 100], width=3, height=2, unit="ms")
    assert lines == ["100 ┤  █ ms", "  0 ┤ ██"]
    squeezed = plot([1.0] * 500 + [100.0] + [1.0] * 499, width=10, height=1)
    assert squeezed[0].count("█") == 1
    assert plot([], width=5, height=1) == ["0 ┤     "]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (1.25, "1.2"), (950, "950"), (1200, "1.2k"), (35_000, "35k"), (2.5e6, "2.5M")]
)
def test_short_numbers(number: float, text: str) -> None:
    assert short(number) == text
