"""Balancing by ordered goals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from balance.clusters import clusters, even, held, led
from penstock.balance import (
    Broker,
    BrokerGroup,
    ClusterModel,
    Goal,
    Partition,
    PlanRefused,
    Rules,
    apply,
    balance,
    shortfalls,
)


def _partition(topic: str, index: int, replicas: tuple[int, ...], size: int = 0, rate: float = 0.0) -> Partition:
    return Partition(topic, index, replicas, leader=replicas[0], in_sync=replicas, size_bytes=size, rate=rate)


def test_a_balanced_cluster_is_left_alone() -> None:
    assert balance(even(600, 3, 6)).moves == ()


def test_an_empty_broker_is_filled_and_every_move_says_why() -> None:
    model = even(300, 2, 3, empty=1)
    plan = balance(model)
    counts = held(model, plan)
    assert all(135 <= count <= 165 for count in counts.values()), counts
    assert all("mean" in move.why for move in plan.moves)
    assert shortfalls(apply(model, plan)) == []


def test_leadership_is_evened_out_without_moving_data() -> None:
    model = ClusterModel(
        "a-cluster",
        [Broker(1), Broker(2), Broker(3)],
        [_partition("t", index, (1, 2 + index % 2) if index % 3 else (1, 3)) for index in range(30)],
    )
    plan = balance(model, Rules(goals=(Goal.LEADERS,)))
    assert plan.moves
    assert plan.bytes_to_move == plan.replicas_to_move == 0
    assert all(8 <= count <= 12 for count in led(model, plan).values())


def test_size_is_evened_out_by_exchanging_replicas_so_that_their_number_stays_even() -> None:
    large = [_partition("large", index, (1,), size=1000) for index in range(10)]
    small = [_partition("small", index, (2,), size=10) for index in range(10)]
    model = ClusterModel("a-cluster", [Broker(1), Broker(2)], [*large, *small])
    plan = balance(model, Rules(goals=(Goal.REPLICAS, Goal.SIZE)))
    assert all(9 <= count <= 11 for count in held(model, plan).values())
    sizes = [load.size_bytes for load in model.loads(plan.assignment).values()]
    assert max(sizes) <= 1.1 * sum(sizes) / 2
    assert any("exchanged" in move.why for move in plan.moves)


def test_traffic_is_evened_out() -> None:
    model = ClusterModel(
        "a-cluster",
        [Broker(1), Broker(2)],
        [_partition("busy", index, (1, 2), rate=100) for index in range(10)]
        + [_partition("idle", index, (2, 1), rate=1) for index in range(10)],
    )
    plan = balance(model, Rules(goals=(Goal.TRAFFIC,)))
    rates = [load.rate for load in model.loads(plan.assignment).values()]
    assert max(rates) <= 1.1 * sum(rates) / 2
    assert plan.bytes_to_move == 0, "passing the lead is enough"


def test_replicas_in_one_rack_are_separated_before_anything_else() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b"), Broker(4, "b")]
    model = ClusterModel("a-cluster", brokers, [_partition("t", index, (1, 2)) for index in range(8)])
    after = apply(model, balance(model))
    assert all(after.rack_count(one.replicas) == 2 for one in after.partitions)


def test_a_disk_that_is_too_full_is_relieved_though_the_number_of_replicas_gets_uneven() -> None:
    brokers = [Broker(1, total_bytes=1000), Broker(2, total_bytes=100_000)]
    parts = [_partition("t", index, (1 + index % 2,), size=200) for index in range(20)]
    model = ClusterModel("a-cluster", brokers, parts)
    plan = balance(model, Rules(goals=(Goal.REPLICAS,)))
    assert model.loads(plan.assignment)[1].size_bytes <= 850
    assert any("disk" in move.why for move in plan.moves)


def test_topics_of_a_group_are_on_its_brokers_only() -> None:
    model = even(120, 2, 6)
    rules = Rules(groups=(BrokerGroup("topic-00000", (5, 6)), BrokerGroup("*", (1, 2, 3, 4))))
    after = apply(model, balance(model, rules))
    for one in after.partitions:
        assert set(one.replicas) <= ({5, 6} if one.topic == "topic-00000" else {1, 2, 3, 4})
    with pytest.raises(PlanRefused, match="its group has 1 brokers only"):
        balance(model, Rules(groups=(BrokerGroup("*", (1,)),)))
    with pytest.raises(PlanRefused, match="names broker 9"):
        balance(model, Rules(groups=(BrokerGroup("*", (9,)),)))


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_balancing_is_sound_never_worse_and_done_once(model: ClusterModel) -> None:
    plan = balance(model)
    for move in plan.moves:
        assert len(move.after) == len(move.before) == len(set(move.after))
        assert set(move.after) <= set(model.brokers)
        assert model.rack_count(move.after) >= model.rack_count(move.before)
    after = apply(model, plan)
    if not model.has_racks:
        assert _violation(after) <= _violation(model) + 1e-6, "the first goal gets no worse"
    assert balance(after).moves == ()


def _violation(model: ClusterModel) -> float:
    return sum(one.band.violation(one.value) for one in shortfalls(model, Rules(goals=(Goal.REPLICAS,))))
