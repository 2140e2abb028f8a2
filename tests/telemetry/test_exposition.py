"""The text format: whatever the samples hold, Prometheus can read it, and reads what was meant."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry.exposition import exposition
from penstock.telemetry.samples import Histogram, Rate, Sample, counter, gauge, labelled, summary
from support.prometheus import parse, promtool_verdict

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_a_family_has_its_help_and_type_once_and_its_lines_together() -> None:
    text = exposition([
        counter("a_total", "What\nelse\\", 1, (("topic", 'q"\\\n'),)),
        gauge("b", "Else", 0.5),
        counter("a_total", "What\nelse\\", 2, (("topic", "r"),)),
    ])  # fmt: skip
    assert text == (
        '# HELP a_total What\\nelse\\\\\n# TYPE a_total counter\na_total{topic="q\\"\\\\\\n"} 1\na_total{topic="r"} 2\n'
        "# HELP b Else\n# TYPE b gauge\nb 0.5\n"
    )


def test_nothing_to_tell_is_an_empty_page() -> None:
    assert exposition([]) == ""


@given(st.lists(st.tuples(st.sampled_from("abc"), texts, st.floats() | st.integers(), texts), max_size=20))
def test_what_is_written_is_what_is_read(rows: list[tuple[str, str, float, str]]) -> None:
    samples = {(name, label): gauge(name, text, value, (("l", label),)) for name, text, value, label in rows}
    families = parse(exposition(samples.values())).values()
    read = {key: value for family in families for key, value in family.series.items()}
    expected = {(name, (("l", label),)): float(sample.value) for (name, label), sample in samples.items()}
    assert read.keys() == expected.keys()
    for key, value in expected.items():
        assert read[key] == value or (math.isnan(value) and math.isnan(read[key]))


def test_a_summary_is_one_family() -> None:
    histogram = Histogram()
    for duration_ms in (1, 10, 100):
        histogram.record(duration_ms)
    families = parse(exposition(summary("t_ms", "Time", histogram, (("request", "Fetch"),))))
    series = families["t_ms"].series
    assert families["t_ms"].kind == "summary"
    assert series["t_ms_count", (("request", "Fetch"),)] == 3
    assert series["t_ms_sum", (("request", "Fetch"),)] == 111
    assert series["t_ms", (("request", "Fetch"), ("quantile", "0.5"))] == pytest.approx(10, rel=0.13)


def test_shared_labels_come_before_a_samples_own() -> None:
    assert labelled([gauge("g", "", 1, (("topic", "t"),))], ("client_id", "c"))[0].labels == (
        ("client_id", "c"),
        ("topic", "t"),
    )


def test_a_rate_approaches_a_steady_counters_growth() -> None:
    rate = Rate()
    for turn in range(200):
        rate.tick(turn * 50)
    assert rate.per_second == pytest.approx(10, rel=0.01)


def test_promtool_reads_the_page() -> None:
    samples = [
        counter("penstock_x_total", 'Help with "quotes" and \\ and\nlines', 2**60, (("topic", 'a"b\\c\nd'),)),
        gauge("penstock_y", "Inf", math.inf),
        gauge("penstock_z", "NaN", math.nan),
        *summary("penstock_t_ms", "Time", Histogram()),
    ]
    verdict = promtool_verdict(exposition(samples))
    if verdict is None:
        pytest.skip("promtool is not installed (Debian: prometheus); the parser of these tests read the same page")
    assert verdict == ""


def test_samples_are_values() -> None:
    assert gauge("g", "text", 1) == Sample("g", "gauge", "text", 1.0)
