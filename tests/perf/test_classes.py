"""Verdicts on measured latencies."""

from __future__ import annotations

from penstock.perf import Histogram
from penstock.perf.classes import Verdict, verdicts


def of(found: list[Verdict], subject: str) -> list[str]:
    return [one.word for one in found if one.subject == subject]


def test_a_fast_cluster_meets_every_class() -> None:
    fast = Histogram([900] * 1000)
    found = verdicts({"1": fast, "all": fast}, {"1": fast, "all": fast}, 3)
    assert {one.word for one in found} == {"met"}
    assert [one.subject for one in found] == [
        "budget", "budget", "real-time", "events", "batch", "logs", "replication", "acks=1", "acks=all",
    ]  # fmt: skip
    assert "faster than that" in found[-1].note


def test_the_tail_decides_and_the_safest_level_is_judged() -> None:
    slow = Histogram([5_000] * 90 + [30_000] * 10)
    found = verdicts({"0": Histogram([100]), "all": slow}, {"0": Histogram([100]), "all": slow}, 3)
    assert of(found, "budget") == ["met", "missed"]
    assert of(found, "real-time") == ["missed"]
    assert of(found, "events") == ["met"]
    assert "acks=all" in found[0].measure
    assert found[0].limit_ms == 7
    assert found[1].limit_ms == 20


def test_levels_of_acks_are_judged_by_their_tail_as_document_003_does() -> None:
    tail = Histogram([1_000] * 90 + [15_000] * 10)
    found = verdicts({"1": tail, "all": tail}, {"1": tail, "all": tail}, 3)
    assert of(found, "acks=1") == ["missed"], "15 ms at p99 is beyond 5 to 10 ms, whatever the median is"
    assert of(found, "acks=all") == ["met"]
    assert {one.measure for one in found if one.subject.startswith("acks=")} == {"p99 until acknowledged"}


def test_the_budget_names_the_stages_of_document_001() -> None:
    some = Histogram([1_000])
    note = verdicts({"all": some}, {"all": some}, 3)[0].note
    assert note == "2 ms to the broker, 3 ms to the replicas, 2 ms to the consumer"


def test_what_was_not_measured_is_not_judged() -> None:
    some = Histogram([1000])
    assert of(verdicts({"1": some}, {"1": some}, 3), "replication") == ["not measured"]
    one_copy = verdicts({"all": some}, {"all": some}, 1)
    assert next(one for one in one_copy if one.subject == "replication").note == "the topic has one copy"
    assert [one.subject for one in verdicts({}, {}, 1)] == ["replication"]
