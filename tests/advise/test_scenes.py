"""For every item of advice: a cluster in that state, where the advice names it first; after the cure it is gone."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import inf

import pytest

from advise.scenes import NOW_MS, observed, read, situation, topic_figure, written
from penstock.advise import Situation, Urgency, advise
from penstock.advise.consumers import COOLDOWN_MS, GroupFigures, Scaler, drain_s, wanted
from penstock.advise.hot import best, simulate
from penstock.advise.situation import KeySample, TopicFacts
from penstock.client.placement import murmur2_partition
from penstock.monitor.history import Span
from penstock.monitor.observed import PartitionShape, TopicShape
from penstock.monitor.samples import Kind, MetricSample
from penstock.planning.catalogue import Catalogue

VALUES = Catalogue()
EVEN = [100.0] * 6
BUSY = {"host_cpu_share": 0.3, "network_share": 0.2, "memory_share": 0.4, "stall_p99_ms": 3.0, "request_p95_ms": 2.0}


def first(found: Situation) -> str:
    items = advise(found)
    assert items, "no advice"
    one = items[0]
    assert one.evidence
    assert one.effect
    assert one.risk
    assert one.command
    assert one.source
    return one.code


# ---- nothing to do


def test_a_healthy_busy_cluster_gets_no_advice() -> None:
    state = read(written(observed(), EVEN), members=3, lag=60, per_s=600)
    assert advise(situation(state, {str(node): BUSY for node in (1, 2, 3)})) == []


def test_an_idle_cluster_gets_no_advice() -> None:
    state = read(written(observed(), [0.0] * 6), members=0, lag=0, per_s=0)
    assert advise(situation(state, {"1": {"cpu_share": 0.0, "messages_in_per_s": 0.0}})) == []


def test_an_empty_cluster_gets_no_advice() -> None:
    assert advise(situation(observed(partitions=0))) == []


# ---- health


def test_a_broker_that_is_down_comes_first() -> None:
    state = read(written(observed(), EVEN), members=3, lag=600_000, per_s=10)
    state.shape.brokers[2] = state.shape.brokers[2]._replace(is_up=False)
    found = situation(state)
    assert first(found) == "health.broker-down"
    assert advise(found)[0].subject == "broker 2"
    state.shape.brokers[2] = state.shape.brokers[2]._replace(is_up=True)
    assert advise(situation(state))[0].code != "health.broker-down"


def test_partitions_without_a_leader_are_named() -> None:
    state = observed()
    rows = state.shape.topics["orders"].partitions
    state.shape.topics["orders"] = TopicShape("orders", b"", False, (rows[0]._replace(leader=-1), *rows[1:]))
    assert first(situation(state)) == "health.offline-partitions"


def test_too_few_in_sync_replicas_are_named() -> None:
    state = observed()
    state.shape.under_min_isr = (("orders", 1),)
    assert first(situation(state)) == "health.under-min-isr"


def test_replicas_that_stay_behind_are_named_unless_they_move() -> None:
    state = observed()
    rows = state.shape.topics["orders"].partitions
    state.shape.topics["orders"] = TopicShape("orders", b"", False, (rows[0]._replace(in_sync=(1, 2)), *rows[1:]))
    assert first(situation(state)) == "health.under-replicated"
    state.shape.reassigning = frozenset({("orders", 0)})
    assert advise(situation(state)) == []


def test_leaders_that_strayed_are_named_and_an_election_cures_it() -> None:
    state = observed()
    rows = tuple(PartitionShape(number, 1, (2, 1), (1, 2)) for number in range(6))
    state.shape.topics["orders"] = TopicShape("orders", b"", False, rows)
    found = situation(state)
    assert first(found) == "health.preferred-leaders"
    assert advise(found)[0].command == "penstock leaders elect --all"
    elected = tuple(row._replace(leader=row.replicas[0]) for row in rows)
    state.shape.topics["orders"] = TopicShape("orders", b"", False, elected)
    assert advise(situation(state)) == []


# ---- the bottleneck


@pytest.mark.parametrize(
    ("figures", "code"),
    [
        ({"cpu_share": 0.95, "stall_p99_ms": 150.0}, "bottleneck.cpu"),
        ({"host_cpu_share": 0.9, "network_share": 0.1}, "bottleneck.cpu"),
        ({"disk_busy_share": 0.95, "cpu_share": 0.2, "request_p99_ms": 80.0}, "bottleneck.disk"),
        ({"network_share": 0.85, "host_cpu_share": 0.2}, "bottleneck.network"),
        ({"replica_lag_ms": 60_000.0, "replica_lag_messages": 5_000.0, "cpu_share": 0.1}, "bottleneck.replication"),
        ({"cpu_share": 0.7, "produce_per_s": 5_000.0, "bytes_per_produce": 120.0}, "bottleneck.producer"),
    ],
)
def test_the_bottleneck_is_named_first_and_gone_when_the_figures_are_good(figures: dict[str, float], code: str) -> None:
    state = read(written(observed(), EVEN), members=3, lag=20_000, per_s=600)
    assert first(situation(state, {"1": figures})) == code
    good = dict.fromkeys(figures, 0.0) | ({"bytes_per_produce": 16_384.0} if "bytes_per_produce" in figures else {})
    assert not any(one.code.startswith("bottleneck") for one in advise(situation(state, {"1": good})))


def test_lag_on_brokers_with_room_is_the_consumers_own() -> None:
    state = read(written(observed(), EVEN), members=1, lag=600_000, per_s=300, lag_s=2_000)
    codes = [one.code for one in advise(situation(state, {"1": BUSY | {"cpu_share": 0.1}}))]
    assert codes == ["consumers.scale-up"]


def test_a_peak_is_no_trigger_where_there_is_history() -> None:
    def at(minute: int, value: float) -> MetricSample:
        return MetricSample(
            time_ms=NOW_MS + minute,
            cluster="c",
            kind=Kind.BROKER,
            name="1",
            metric="cpu_share",
            value=value,
            unit="share",
        )

    found = situation(observed(), {"1": {"cpu_share": 0.99}})
    calm = Span([at(minute, 0.1) for minute in range(20)], NOW_MS, False)
    assert first(found) == "bottleneck.cpu"
    assert advise(replace(found, history=calm)) == []


# ---- consumers


def test_a_group_that_falls_behind_gets_as_many_consumers_as_it_needs() -> None:
    state = read(written(observed(), EVEN), members=2, lag=120_000, per_s=400, lag_s=300)
    (item,) = advise(situation(state))
    assert (item.code, item.urgency) == ("consumers.scale-up", Urgency.NOW)
    assert "run 5 consumers of shipping instead of 2" in item.what
    grown = read(written(observed(), EVEN), members=5, lag=120_000, per_s=1_000, lag_s=300)
    assert advise(situation(grown)) == []


def test_a_group_without_members_is_to_be_started() -> None:
    state = read(written(observed(), EVEN), members=0, lag=80_000, per_s=0, lag_s=500)
    assert first(situation(state)) == "consumers.start"


def test_beyond_the_partitions_the_topic_must_grow() -> None:
    state = read(written(observed(), EVEN), members=6, lag=600_000, per_s=480, lag_s=2_000)
    found = situation(state)
    assert first(found) == "consumers.add-partitions"
    assert advise(found)[0].command.startswith("penstock topics alter orders --partitions ")


def test_idle_consumers_are_to_be_stopped() -> None:
    state = read(written(observed(), EVEN), members=9, lag=0, per_s=600)
    assert first(situation(state)) == "consumers.idle"
    assert "stop 3 consumers" in advise(situation(state))[0].what


def test_the_range_assignor_keeps_members_beyond_the_largest_topic_idle() -> None:
    state = read(written(observed(), EVEN), members=6, lag=0, per_s=600, assignor="range")
    state.shape.topics["small"] = TopicShape("small", b"", False, state.shape.topics["orders"].partitions[:2])
    view = (state.groups.value or {})["shipping"]
    (state.groups.value or {})["shipping"] = view._replace(committed=view.committed | {("small", 0): 0}, members=7)
    assert first(situation(state)) == "consumers.idle"


def test_with_a_benchmark_fewer_consumers_are_advised_off_peak() -> None:
    state = read(written(observed(), EVEN), members=6, lag=0, per_s=600)
    found = situation(state, per_consumer_per_s=1_000.0)
    assert first(found) == "consumers.scale-down"
    assert "run 1 consumers" in advise(found)[0].what


def test_the_time_to_drain() -> None:
    assert drain_s(1_000, 300, 100) == 5.0
    assert drain_s(1_000, 100, 100) == inf
    assert drain_s(0, 0, 100) == 0.0


def test_more_load_never_needs_fewer_consumers() -> None:
    last = 0
    for produce in range(0, 100_000, 5_000):
        figures = GroupFigures(
            name="g", members=3, partitions=1_000, lag_records=200_000, lag_s=300, consume_per_s=3_000,
            produce_per_s=produce, per_consumer_per_s=1_000,
        )  # fmt: skip
        count = wanted(VALUES, figures).consumers
        assert count >= last
        last = count


def test_a_scaler_goes_up_at_once_and_down_after_a_cooldown() -> None:
    def figures(lag: float, produce: float) -> GroupFigures:
        return GroupFigures(
            name="g", members=2, partitions=10, lag_records=lag, lag_s=0, consume_per_s=1_000, produce_per_s=produce,
            per_consumer_per_s=1_000,
        )  # fmt: skip

    scaler = Scaler()
    assert scaler.step(VALUES, figures(0, 1_000), NOW_MS) == 2
    assert scaler.step(VALUES, figures(3_000_000, 2_000), NOW_MS + 10_000) == 7
    for after_ms in range(20_000, COOLDOWN_MS, 10_000):
        assert scaler.step(VALUES, figures(0, 1_000), NOW_MS + after_ms) == 7
    assert scaler.step(VALUES, figures(0, 1_000), NOW_MS + COOLDOWN_MS + 30_000) == 2
    assert scaler.step(VALUES, figures(900_000_000, 90_000), NOW_MS + COOLDOWN_MS + 40_000) == 10


# ---- hot partitions and keys


def keyed(weights: dict[str, int], partitions: int, *, values: bool = False) -> KeySample:
    rng = random.Random(1)
    keys = [key.encode() for key, count in weights.items() for _ in range(count)]
    rng.shuffle(keys)
    payload = [json.dumps({"user": rng.randrange(200), "id": number}).encode() for number in range(len(keys))]
    return KeySample(
        keys=[(key, murmur2_partition(key, partitions)) for key in keys],
        values=payload if values else [None] * len(keys),
    )


def test_keys_that_share_a_partition_are_spread_by_more_partitions() -> None:
    crowded = [f"k{number}" for number in range(4_000) if murmur2_partition(f"k{number}".encode(), 6) == 3][:200]
    others = [f"o{number}" for number in range(200)]
    sample = keyed(dict.fromkeys(crowded, 5) | dict.fromkeys(others, 2), 6)
    state = written(observed(), [50.0, 50.0, 50.0, 600.0, 50.0, 50.0])
    found = situation(state, keys={"orders": sample})
    assert first(found) == "hot.partition"
    item = advise(found)[0]
    assert item.command.startswith("penstock topics alter orders --partitions ")
    count = int(item.command.rsplit(" ", 1)[1])
    hot_now = [number for number in range(count) if number % 6 == 3]
    rates = [600.0 / len(hot_now) if number in hot_now else 250.0 / (count - len(hot_now)) for number in range(count)]
    assert advise(situation(written(observed(partitions=count), rates))) == []


def test_one_hot_key_needs_another_key_and_no_partitions() -> None:
    weights = {"big": 900} | {f"k{number}": 3 for number in range(200)}
    state = written(observed(), [30.0, 30.0, 30.0, 600.0, 30.0, 30.0])
    salted = situation(state, keys={"orders": keyed(weights, 6)})
    assert first(salted) == "hot.key"
    assert "random.randrange" in advise(salted)[0].command
    composite = situation(state, keys={"orders": keyed(weights, 6, values=True)})
    assert "record['user']" in advise(composite)[0].command


def test_the_simulation_tells_what_each_cure_would_do() -> None:
    current, share, cures = simulate(keyed({"big": 900, **{f"k{n}": 3 for n in range(200)}}, 6), 6, 6)
    assert share == pytest.approx(0.6)
    assert current > 3
    grown = [one for one in cures if one.name == "more partitions"]
    assert all(one.skew > 0.9 * 6 * share for one in grown), "one key stays on one partition"
    assert best(cures).name == "salt"
    assert best(cures).skew < 2


def test_a_quiet_topic_is_never_hot() -> None:
    assert advise(situation(written(observed(), [1.0, 0, 0, 0, 0, 0]))) == []


def test_a_hot_partition_without_a_sample_is_still_named() -> None:
    assert first(situation(written(observed(), [900.0, 10, 10, 10, 10, 10]))) == "hot.partition"


# ---- brokers and topics


@pytest.mark.parametrize(
    ("figures", "code", "urgency"),
    [
        ({"partitions": 2_600.0}, "brokers.horizontal", Urgency.NOW),
        ({"partitions": 2_100.0}, "brokers.horizontal", Urgency.TODAY),
        ({"partitions": 1_600.0}, "brokers.horizontal", Urgency.PLAN),
        ({"request_p95_ms": 60.0}, "brokers.horizontal", Urgency.NOW),
        ({"memory_share": 0.85, "stall_p99_ms": 30.0}, "brokers.vertical", Urgency.TODAY),
    ],
)
def test_brokers_follow_002s_thresholds(figures: dict[str, float], code: str, urgency: Urgency) -> None:
    (item,) = advise(situation(observed(), {"1": figures}))
    assert (item.code, item.urgency) == (code, urgency)


def test_a_disk_that_the_cluster_fills_is_named_and_one_that_others_fill_is_not() -> None:
    full = {"disk_used_share": 0.85, "disk_total_bytes": 1e12, "size_bytes": 8e11}
    assert first(situation(observed(), {"1": full})) == "brokers.disk"
    assert advise(situation(observed(), {"1": full | {"size_bytes": 1e9}})) == []
    assert advise(situation(observed(), {"1": full | {"disk_used_share": 0.6}})) == []


def test_a_large_uncompressed_topic_is_named_with_what_it_saves() -> None:
    facts = TopicFacts(retention_ms=-1, stored_codec="none", sampled_ratio={"lz4": 2.0, "zstd": 4.0})
    found = topic_figure(situation(observed(), facts={"orders": facts}), "size_bytes", 4e11)
    (item,) = advise(found)
    assert item.code == "topics.codec"
    assert item.saves_month == pytest.approx(400 * 0.75 * 0.10)
    done = replace(facts, stored_codec="zstd")
    assert advise(replace(found, facts={"orders": done})) == []


def test_a_topic_that_is_kept_longer_than_anybody_reads_it_is_named() -> None:
    state = read(written(observed(), EVEN), members=3, lag=60, per_s=600, lag_s=5)
    facts = TopicFacts(retention_ms=7 * 86_400_000, stored_codec="zstd")
    found = topic_figure(situation(state, facts={"orders": facts}), "size_bytes", 7e11)
    (item,) = advise(found)
    assert item.code == "topics.retention"
    assert item.command == "penstock configs alter --topic orders --add retention.ms=259200000"
    assert item.saves_month == pytest.approx(700 * 4 / 7 * 0.10)
    assert advise(replace(found, facts={"orders": replace(facts, retention_ms=259_200_000)})) == []


def test_a_topic_that_is_too_narrow_for_its_load_is_named_where_the_limit_was_measured() -> None:
    found = topic_figure(situation(observed()), "bytes_in_per_s", 80e6)
    assert advise(found) == []
    (item,) = advise(replace(found, per_partition_mb_s=10.0))
    assert item.code == "topics.partitions"
    assert item.command == "penstock topics alter orders --partitions 12"
