"""What moves when a broker comes or goes: no more than must, evenly, and never into fewer racks."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance.clusters import clusters, even, held, leaving, led
from penstock.balance import (
    Broker,
    ClusterModel,
    Partition,
    Plan,
    PlanRefused,
    add_brokers,
    apply,
    drain_brokers,
    flows,
    least_seconds,
    place,
    steps,
)


def test_a_fourth_broker_takes_83_83_and_84_of_a_thousand_single_replicas() -> None:
    model = even(1000, 1, 3, empty=1)
    plan = add_brokers(model, [4])
    assert sorted(leaving(plan).values()) == [83, 83, 84]
    assert held(model, plan) == {1: 250, 2: 250, 3: 250, 4: 250}


def test_a_fourth_broker_takes_250_from_each_of_a_thousand_with_three_replicas() -> None:
    model = even(1000, 3, 3, empty=1)
    plan = add_brokers(model, [4])
    assert leaving(plan) == {1: 250, 2: 250, 3: 250}
    assert held(model, plan) == {1: 750, 2: 750, 3: 750, 4: 750}
    assert led(model, plan) == {1: 250, 2: 250, 3: 250, 4: 250}


def test_every_topic_gives_in_proportion() -> None:
    model = even(1000, 3, 3, empty=1)
    taken = Counter(move.topic for move in add_brokers(model, [4]).moves)
    # 750 replicas of 20 topics go: 37 or 38 of each, give or take what even picking cannot do better.
    assert len(taken) == 20
    assert all(30 <= count <= 45 for count in taken.values())


def test_two_new_brokers_take_their_shares_without_moving_anything_twice() -> None:
    model = even(1200, 2, 3, empty=2)
    plan = add_brokers(model, [4, 5])
    assert held(model, plan) == {1: 480, 2: 480, 3: 480, 4: 480, 5: 480}
    assert plan.replicas_to_move == 960


def test_a_new_broker_in_a_rack_takes_only_what_keeps_replicas_in_as_many_racks() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "a"}
    model = even(300, 3, 3, empty=1, racks=racks)
    plan = add_brokers(model, [4])
    # Replicas in b and c cannot go to a; those of broker 1 can, until both have as many.
    assert held(model, plan) == {1: 150, 2: 300, 3: 300, 4: 150}
    assert "fewer racks" in plan.notes[0]


def test_a_drained_broker_gives_everything_and_the_others_share_it() -> None:
    model = even(1000, 2, 4)
    plan = drain_brokers(model, [2])
    assert leaving(plan) == {2: 500}
    assert held(model, plan)[2] == 0
    assert all(667 - 2 <= held(model, plan)[broker] <= 667 + 2 for broker in (1, 3, 4))
    assert all(abs(led(model, plan)[broker] - 333) <= 2 for broker in (1, 3, 4))


def test_a_drained_broker_gives_to_racks_that_a_partition_does_not_use_yet() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "c"}
    model = ClusterModel(
        "a-cluster", [Broker(number, rack) for number, rack in racks.items()], [Partition("t", 0, (1, 3), leader=1)]
    )
    (move,) = drain_brokers(model, [3]).moves
    assert set(move.after) in ({1, 2}, {1, 4})
    (move,) = drain_brokers(model, [1]).moves
    assert set(move.after) == {2, 3}, "broker 4 is in the same rack as broker 3"


def test_a_drain_that_must_use_fewer_racks_says_so() -> None:
    model = even(10, 2, 2, empty=1, racks={1: "a", 2: "b", 3: "b"})
    plan = drain_brokers(model, [1])
    assert len(plan.moves) == 10
    assert "10 partitions will have replicas in fewer racks" in plan.notes[0]


def test_too_few_brokers_left_are_refused() -> None:
    with pytest.raises(PlanRefused, match=r"only 2 brokers are left .* topic-00000 \(3\)"):
        drain_brokers(even(10, 3, 3), [1])
    with pytest.raises(PlanRefused, match="no broker is left"):
        drain_brokers(even(10, 1, 1), [1])


def test_unknown_brokers_and_those_out_of_service_are_refused() -> None:
    with pytest.raises(PlanRefused, match="there is no broker 9"):
        add_brokers(even(10, 1, 2), [9])
    with pytest.raises(PlanRefused, match="there is no broker 9"):
        drain_brokers(even(10, 1, 2), [9])
    fenced = ClusterModel("a-cluster", [Broker(1), Broker(2, in_service=False)], [Partition("t", 0, (1,), leader=1)])
    with pytest.raises(PlanRefused, match="not in service"):
        add_brokers(fenced, [2])
    with pytest.raises(PlanRefused, match="4 replicas cannot be on 3 brokers"):
        place(even(10, 1, 3), None, [1, 2, 3], 4)


def test_topics_are_placed_on_chosen_brokers_with_a_chosen_number_of_replicas() -> None:
    model = even(100, 1, 3, empty=2)
    plan = place(model, ["topic-00000"], [3, 4, 5], 2)
    assert {move.topic for move in plan.moves} == {"topic-00000"}
    after = apply(model, plan)
    chosen = [one for one in after.partitions if one.topic == "topic-00000"]
    assert all(len(one.replicas) == 2 and set(one.replicas) <= {3, 4, 5} for one in chosen)
    counts = Counter(broker for one in chosen for broker in one.replicas)
    assert max(counts.values()) - min(counts.values()) <= 1
    fewer = place(after, ["topic-00000"], [3, 4, 5], 1)
    assert all(move.after[0] in move.before and len(move.after) == 1 for move in fewer.moves)


def test_steps_are_a_tenth_and_what_moves_no_data_is_in_the_first() -> None:
    plan = add_brokers(even(1000, 1, 3, empty=1), [4])
    assert [len(piece) for piece in steps(plan.moves)] == [25] * 10
    assert [len(piece) for piece in steps(plan.moves, 1.0)] == [250]
    model = even(3, 3, 3)
    reordered = Plan(tuple(place(model, None, [1, 2, 3]).moves))
    assert steps(reordered.moves) in ([], [list(reordered.moves)])


def test_the_estimate_is_what_the_busiest_broker_needs() -> None:
    model = even(100, 1, 2, empty=1, size_bytes=1_000_000)
    plan = add_brokers(model, [3])
    assert flows(model, plan.moves)[3].bytes_in == plan.bytes_to_move == 33_000_000
    assert least_seconds(model, plan.moves, 1_000_000, 0.1) == 33.0


# ---- whatever a cluster looks like


def _sound(model: ClusterModel, plan: Plan) -> None:
    """As many replicas as before, on different brokers that are there, and in no fewer racks."""
    for move in plan.moves:
        assert len(move.after) == len(move.before)
        assert len(set(move.after)) == len(move.after)
        assert set(move.after) <= set(model.brokers)


@settings(max_examples=60)
@given(clusters(brokers_min=3))
def test_adding_is_sound_least_and_done_once(model: ClusterModel) -> None:
    new = max(model.brokers)
    emptied = apply(model, drain_or_nothing(model, new))
    plan = add_brokers(emptied, [new])
    _sound(emptied, plan)
    share = sum(len(one.replicas) for one in emptied.partitions) // len(emptied.brokers)
    had = emptied.loads()[new].replicas
    # No plan that gives it its share has fewer moves, and nothing moves but to it.
    assert plan.replicas_to_move <= max(0, share - had)
    assert all(move.coming == (new,) for move in plan.moves)
    for move in plan.moves:
        assert emptied.rack_count(move.after) >= emptied.rack_count(move.before)
    if not emptied.has_racks:
        assert held(emptied, plan)[new] >= min(share, sum(1 for one in emptied.partitions))
    assert add_brokers(apply(emptied, plan), [new]).moves == ()


@settings(max_examples=60)
@given(clusters(), st.data())
def test_draining_is_sound_empties_and_moves_nothing_else(model: ClusterModel, data: st.DataObject) -> None:
    broker = data.draw(st.sampled_from(sorted(model.brokers)))
    try:
        plan = drain_brokers(model, [broker])
    except PlanRefused:
        assert any(len(one.replicas) > len(model.brokers) - 1 for one in model.partitions)
        return
    _sound(model, plan)
    assert all(move.leaving == (broker,) for move in plan.moves)
    assert held(model, plan)[broker] == 0
    others = {model.rack_of(one) for one in model.brokers if one != broker}
    for move in plan.moves:
        possible = min(model.rack_count(move.before), len(others))
        assert model.rack_count(move.after) >= possible
    assert drain_brokers(apply(model, plan), [broker]).moves == ()


@settings(max_examples=60)
@given(clusters(), st.data())
def test_placing_is_sound_and_done_once(model: ClusterModel, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(model.brokers)), min_size=1, unique=True))
    try:
        plan = place(model, None, chosen)
    except PlanRefused:
        assert any(len(one.replicas) > len(chosen) for one in model.partitions)
        return
    _sound(model, plan)
    after = apply(model, plan)
    assert all(set(one.replicas) <= set(chosen) for one in after.partitions)
    assert place(after, None, chosen).moves == ()


def drain_or_nothing(model: ClusterModel, broker: int) -> Plan:
    try:
        return drain_brokers(model, [broker])
    except PlanRefused:
        return Plan()


def test_planning_depends_on_nothing_but_the_cluster() -> None:
    assert add_brokers(even(200, 2, 4, empty=1), [5]) == add_brokers(even(200, 2, 4, empty=1), [5])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("brokers", "expected"), [(3, 750_000), (100, 29_702)])
def test_a_million_partitions_are_planned_within_a_minute(
    brokers: int, expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    model = even(1_000_000, 3, brokers, empty=1, partitions_per_topic=10)
    started_s = time.process_time()
    plan = add_brokers(model, [brokers + 1])
    taken_s = time.process_time() - started_s
    with capsys.disabled():
        print(f"\n1,000,000 partitions, {brokers} brokers and a new one: {len(plan.moves):,} moves in {taken_s:.1f} s")
    assert plan.replicas_to_move == expected
    assert taken_s < 60


def test_the_time_for_a_plan_grows_no_faster_than_the_cluster() -> None:
    """Ten times the partitions take about ten times as long (and not a hundred)."""

    def cost(partitions: int) -> float:
        model = even(partitions, 3, 3, empty=1)
        started_s = time.process_time()
        assert len(add_brokers(model, [4]).moves) == partitions * 3 // 4
        return time.process_time() - started_s

    cost(1_000)
    small, large = min(cost(2_000) for _ in range(3)), cost(20_000)
    assert large < 30 * small
