"""Rules over time: sustained, hysteresis, families, resources that vanish, clocks that jump."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from alerts.samples import NOW_MS, sample
from penstock.alerts.catalogue import RULES, UNREACHABLE, Comparison, Severity
from penstock.alerts.engine import ALERTS_MAX, Engine, State
from penstock.monitor.samples import METRICS, Kind
from penstock.planning.catalogue import Catalogue


def run(engine: Engine, values: Sequence[float | None], *, metric: str = "lag_records", step_s: int = 10) -> list[str]:
    """`fired RULE` and `resolved RULE`, with the second at which it happened."""
    told = []
    for number, value in enumerate(values):
        samples = [] if value is None else [sample(metric, value)]
        other = sample("members", 1.0, name="other")
        changes = engine.take([*samples, other], NOW_MS + number * step_s * 1000)
        told += [f"{number * step_s} fired {one.rule}" for one in changes.fired]
        told += [f"{number * step_s} resolved {one.rule}" for one in changes.resolved]
    return told


def test_a_rule_fires_only_after_its_time() -> None:
    assert run(Engine(), [20_000] * 30) == []
    assert run(Engine(), [20_000] * 32) == ["300 fired ConsumerLag"]


def test_one_good_value_ends_what_was_pending() -> None:
    assert run(Engine(), [20_000] * 20 + [0] + [20_000] * 20) == []


def test_an_alert_is_resolved_after_the_value_was_good_for_a_while() -> None:
    told = run(Engine(), [20_000] * 31 + [100] * 10)
    assert told == ["300 fired ConsumerLag", "370 resolved ConsumerLag"]


def test_a_value_that_wavers_around_the_bound_rings_once() -> None:
    wavering = [20_000.0] * 31 + [9_900.0, 10_100.0] * 30
    assert run(Engine(), wavering) == ["300 fired ConsumerLag"]


def test_of_a_family_only_the_worst_is_told() -> None:
    engine = Engine()
    told = run(engine, [500_000] * 60)
    assert told == ["120 fired ConsumerLagCritical"]
    assert [one.rule for one in engine.firing()] == ["ConsumerLagCritical"]


def test_a_lower_step_is_told_when_the_higher_one_ends() -> None:
    told = run(Engine(), [500_000] * 40 + [20_000] * 60)
    assert told[0] == "120 fired ConsumerLagCritical"
    assert "fired ConsumerLag" in " ".join(told[1:])
    assert any("resolved ConsumerLagCritical" in one for one in told)


def test_a_group_that_vanishes_resolves_its_alerts() -> None:
    told = run(Engine(), [20_000] * 31 + [None] * 15)
    assert told[0] == "300 fired ConsumerLag"
    assert told[1].endswith("resolved ConsumerLag")


def test_one_missing_sample_changes_nothing() -> None:
    assert run(Engine(), [20_000] * 31 + [None, None] + [20_000] * 5) == ["300 fired ConsumerLag"]


def test_a_cluster_that_does_not_answer_is_an_alert_and_keeps_the_others() -> None:
    engine = Engine()
    run(engine, [20_000] * 31)
    told = []
    for number in range(60):
        changes = engine.unreachable("connection refused", NOW_MS + 310_000 + number * 10_000)
        told += [one.rule for one in changes.fired] + [f"resolved {one.rule}" for one in changes.resolved]
    assert told == [UNREACHABLE]
    assert {one.rule for one in engine.firing()} == {UNREACHABLE, "ConsumerLag"}
    changes = engine.take([sample("lag_records", 20_000)], NOW_MS + 920_000)
    assert [one.rule for one in changes.resolved] == [UNREACHABLE]


def test_a_clock_that_jumps_neither_fires_nor_forgets() -> None:
    for jump_ms in (86_400_000, -86_400_000):
        engine = Engine()
        engine.take([sample("lag_records", 20_000)], NOW_MS)
        assert engine.take([sample("lag_records", 20_000)], NOW_MS + jump_ms).fired == []
        later = engine.take([sample("lag_records", 20_000)], NOW_MS + jump_ms + 300_000)
        assert [one.rule for one in later.fired] == ["ConsumerLag"]


def test_an_alert_says_what_is_wrong_and_what_to_do() -> None:
    engine = Engine()
    run(engine, [20_000] * 31)
    (alert,) = engine.firing()
    assert alert.text == "group g has 20,000 unread records"
    assert alert.command == "penstock groups describe g"
    assert (alert.value, alert.bound, alert.unit, alert.severity) == (20_000, 10_000, "records", Severity.WARNING)


def test_a_users_threshold_is_used() -> None:
    catalogue = Catalogue().with_overrides("[alert]\nlag_records_warning = 50\n")
    assert run(Engine(catalogue), [100] * 32) == ["300 fired ConsumerLag"]


def test_a_restarted_monitor_does_not_tell_again() -> None:
    first = Engine()
    run(first, [20_000] * 31)
    second = Engine()
    second.resume(first.firing())
    now_ms = NOW_MS + 400_000
    assert second.take([sample("lag_records", 20_000)], now_ms).fired == []
    good = [second.take([sample("lag_records", 0)], now_ms + number * 10_000) for number in range(1, 10)]
    assert [one.rule for changes in good for one in changes.resolved] == ["ConsumerLag"]


def test_alerts_are_bounded() -> None:
    engine = Engine()
    engine.take([sample("lag_records", 20_000, name=str(number)) for number in range(ALERTS_MAX + 500)], NOW_MS)
    assert len(engine.pending()) == ALERTS_MAX


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_fires_on_a_bad_value_and_not_on_a_good_one(rule: object) -> None:
    from penstock.alerts.catalogue import Rule

    assert isinstance(rule, Rule)
    bound = Catalogue()[rule.bound]
    bad = bound - 1 if rule.comparison is Comparison.BELOW else bound + 1
    engine = Engine(rules=[rule])
    for number in range(rule.for_s // 10 + 1):
        engine.take([sample(rule.metric, bound, kind=rule.kind)], NOW_MS + number * 10_000)
    assert engine.firing() == []
    for number in range(rule.for_s // 10 + 2):
        engine.take([sample(rule.metric, bad, kind=rule.kind)], NOW_MS + 10_000_000 + number * 10_000)
    (alert,) = engine.firing()
    assert alert.state is State.FIRING
    assert "{" not in alert.text + alert.meaning + alert.command


def test_rules_are_unique_and_about_metrics_that_exist() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all((rule.kind, rule.metric) in METRICS for rule in RULES)


def test_idle_brokers_inform_and_do_not_alarm() -> None:
    engine = Engine()
    for number in range(100):
        for metric in ("messages_in_per_s", "bytes_in_per_s", "bytes_out_per_s"):
            engine.take([sample(metric, 0.0, name="1", kind=Kind.BROKER)], NOW_MS + number * 10_000)
    assert {one.severity for one in engine.firing()} <= {Severity.INFO}


def test_under_replication_that_a_reassignment_explains_does_not_count() -> None:
    from penstock.monitor.derive import samples
    from penstock.monitor.observed import Observed, PartitionShape, Shape, TopicShape

    rows = tuple(PartitionShape(number, 1, (1, 2, 3), (1, 2)) for number in range(20))
    moving = frozenset(("t", number) for number in range(20))
    for reassigning, expected in ((moving, []), (frozenset(), ["UnderReplicatedPartitionsMany"])):
        state = Observed(
            shape=Shape(
                cluster_id="c", controller_id=1, topics={"t": TopicShape("t", b"", False, rows)},
                reassigning=reassigning,
            )
        )  # fmt: skip
        engine = Engine(rules=[rule for rule in RULES if rule.family == "under-replicated"])
        for number in range(20):
            engine.take(samples(state, NOW_MS), NOW_MS + number * 10_000)
        assert [one.rule for one in engine.firing()] == expected
