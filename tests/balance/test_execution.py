"""Plans carried out on a simulated cluster: in steps, throttled, interrupted at every moment, refused with a reason."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from balance.clusters import Crash, SimulatedCluster, even
from penstock.balance import (
    Broker,
    ClusterModel,
    ExecutionFailed,
    Executor,
    Partition,
    Plan,
    PlanFile,
    PlanRefused,
    Progress,
    State,
    Throttled,
    add_brokers,
    assess,
    drain_brokers,
    state_of,
)

RATE = 1_000_000


class Saved:
    """The plan's file."""

    def __init__(self, plan: PlanFile) -> None:
        self.plan = plan

    def save(self, plan: PlanFile) -> None:
        self.plan = plan


def _prepared(
    partitions: int = 40, *, throttle: int | None = RATE, step: float = 0.1
) -> tuple[SimulatedCluster, Saved]:
    model = even(partitions, 2, 3, empty=1, partitions_per_topic=10)
    plan = add_brokers(model, [4])
    return SimulatedCluster(model), Saved(PlanFile(plan.moves, cluster="a-cluster", throttle=throttle, step=step))


def _run(cluster: SimulatedCluster, saved: Saved, on_progress: Callable[[Progress], None] = lambda told: None) -> None:
    Executor(cluster, saved.plan, save=saved.save, on_progress=on_progress, patience_s=60).run()


def _done(cluster: SimulatedCluster, saved: Saved) -> bool:
    model = cluster.observe()
    return all(state_of(move, model) is State.DONE for move in saved.plan.moves)


def test_a_plan_is_carried_out_in_steps_throttled_and_leaves_no_throttle() -> None:
    cluster, saved = _prepared()
    told: list[Progress] = []
    _run(cluster, saved, told.append)
    assert _done(cluster, saved)
    assert cluster.most_at_once == 2, "a tenth of 20 moves"
    assert cluster.unthrottled_copies == 0
    assert not cluster.throttles_left
    assert told[-1].moved == told[-1].moves == 20
    assert told[-1].copied_bytes == told[-1].total_bytes
    assert any(one.rate > 0 and one.left_s is not None for one in told)


def test_moved_partitions_are_led_by_the_first_of_their_replicas() -> None:
    cluster, saved = _prepared()
    _run(cluster, saved)
    assert all(one.leader == one.replicas[0] for one in cluster.partitions.values())


def test_throttles_of_others_are_put_back_and_their_entries_kept() -> None:
    cluster, saved = _prepared()
    cluster.broker_rates = {1: (7, 8)}
    theirs = Throttled(leaders=("3:1",), followers=("*",))
    cluster.topic_throttles = {"topic-00000": theirs}
    _run(cluster, saved)
    assert cluster.broker_rates[1] == (7, 8)
    assert cluster.topic_throttles["topic-00000"].followers == ("*",)
    assert "3:1" in cluster.topic_throttles["topic-00000"].leaders or any(
        move.topic == "topic-00000" and move.index == 3 for move in saved.plan.moves
    )


def test_without_a_throttle_no_setting_is_touched() -> None:
    cluster, saved = _prepared(throttle=None)
    cluster.broker_rates = {2: (5, 5)}
    _run(cluster, saved)
    assert _done(cluster, saved)
    assert cluster.broker_rates == {2: (5, 5)}
    assert saved.plan.rates_before is None


def _requests() -> int:
    cluster, saved = _prepared(12, step=0.34)
    _run(cluster, saved)
    return cluster.requests


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("in_between", ["at once", "when all has settled"])
def test_a_plan_goes_on_wherever_it_was_interrupted(after: bool, in_between: str) -> None:
    for number in range(1, _requests() + 1):
        cluster, saved = _prepared(12, step=0.34)
        cluster.crash_at, cluster.crash_after = number, after
        try:
            _run(cluster, saved)
        except Crash:
            cluster.crash_at = None
            if in_between == "when all has settled":
                cluster.settle()
            _run(cluster, saved)
        assert _done(cluster, saved), f"interrupted at request {number}"
        assert not cluster.throttles_left, f"interrupted at request {number}"


@pytest.mark.parametrize("after", [False, True])
def test_a_plan_can_be_cancelled_wherever_it_was_interrupted_and_carried_out_later(after: bool) -> None:
    for number in range(1, _requests() + 1):
        cluster, saved = _prepared(12, step=0.34)
        cluster.crash_at, cluster.crash_after = number, after
        try:
            _run(cluster, saved)
        except Crash:
            cluster.crash_at = None
            Executor(cluster, saved.plan, save=saved.save).cancel()
            model = cluster.observe()
            assert not any(one.moving for one in model.partitions), f"interrupted at request {number}"
            for move in saved.plan.moves:
                assert model.by_key[(move.topic, move.index)].replicas in (move.before, move.after)
            assert not cluster.throttles_left, f"interrupted at request {number}"
            _run(cluster, saved)
        assert _done(cluster, saved)


def test_a_broker_that_dies_and_comes_back_only_delays_the_plan() -> None:
    cluster, saved = _prepared()

    def on_progress(told: Progress) -> None:
        if told.step == 3 and cluster.time_s < 40:
            cluster.dead = {4}
        elif cluster.time_s >= 40:
            cluster.dead = set()

    _run(cluster, saved, on_progress)
    assert _done(cluster, saved)
    assert not cluster.throttles_left


def test_a_broker_that_stays_dead_has_its_step_cancelled_and_the_reason_told() -> None:
    cluster, saved = _prepared()

    def on_progress(told: Progress) -> None:
        if told.step == 3:
            cluster.dead = {4}

    with pytest.raises(ExecutionFailed, match=r"broker 4 is not in service.*cancelled.*throttles are removed"):
        _run(cluster, saved, on_progress)
    model = cluster.observe()
    assert not any(one.moving for one in model.partitions)
    assert sum(state_of(move, model) is State.DONE for move in saved.plan.moves) == 4
    cluster.dead = set()
    _run(cluster, saved)
    assert _done(cluster, saved)


def test_the_next_step_waits_until_all_are_in_sync_again() -> None:
    cluster, saved = _prepared()
    key = next(key for key in cluster.partitions if all(move.key != key for move in saved.plan.moves))
    whole = cluster.partitions[key]
    began_s = 0.0

    def on_progress(told: Progress) -> None:
        nonlocal began_s
        if told.step == 2 and not began_s:
            cluster.partitions[key] = msgspec.structs.replace(whole, in_sync=whole.replicas[:1])
            began_s = cluster.time_s
        if told.step == 3:
            assert cluster.partitions[key] == whole, "the third step has begun too early"

    pause = cluster.pause

    def heal(seconds: float) -> None:
        pause(seconds)
        if began_s and cluster.time_s > began_s + 30:
            cluster.partitions[key] = whole

    cluster.pause = heal  # type: ignore[method-assign]
    _run(cluster, saved, on_progress)
    assert _done(cluster, saved)


def test_brokers_that_have_become_slow_are_waited_for() -> None:
    cluster, saved = _prepared()

    def on_progress(told: Progress) -> None:
        cluster.latency = 500.0 if told.step == 2 and cluster.time_s < 30 else 1.0
        assert told.step < 3 or cluster.time_s >= 30

    pause = cluster.pause

    def quicker(seconds: float) -> None:
        pause(seconds)
        if cluster.time_s >= 30:
            cluster.latency = 1.0

    cluster.pause = quicker  # type: ignore[method-assign]
    _run(cluster, saved, on_progress)
    assert _done(cluster, saved)


# ---- what is refused, with nothing changed


def _refused(cluster: SimulatedCluster, plan: PlanFile, reason: str) -> None:
    partitions, rates, lists = dict(cluster.partitions), dict(cluster.broker_rates), dict(cluster.topic_throttles)
    with pytest.raises(PlanRefused, match=reason):
        Executor(cluster, plan, save=lambda changed: None).run()
    assert (cluster.partitions, cluster.broker_rates, cluster.topic_throttles) == (partitions, rates, lists)


def test_an_unhealthy_cluster_is_refused() -> None:
    cluster, saved = _prepared()
    key, one = next(iter(cluster.partitions.items()))
    cluster.partitions[key] = msgspec.structs.replace(one, in_sync=one.replicas[:1])
    _refused(cluster, saved.plan, "under-replicated: topic-00000-0")
    cluster.partitions[key] = msgspec.structs.replace(one, leader=-1)
    _refused(cluster, saved.plan, "offline")


def test_somebody_elses_reassignment_is_refused() -> None:
    cluster, saved = _prepared()
    ours = {(move.topic, move.index) for move in saved.plan.moves}
    key, one = next((key, one) for key, one in cluster.partitions.items() if key not in ours)
    cluster.partitions[key] = msgspec.structs.replace(one, replicas=(*one.replicas, 4), adding=(4,))
    _refused(cluster, saved.plan, "in a reassignment that is not finished")


def test_a_plan_does_not_take_over_what_another_one_moves() -> None:
    cluster, saved = _prepared()
    first = saved.plan.moves[0]
    cluster.reassign({first.key: first.after})
    model = cluster.observe()
    drain = drain_brokers(model, [4])
    assert [move.key for move in drain.moves] == [first.key]
    assert [one.text for one in assess(model, drain.moves) if one.stops] == [
        f"1 partition is in a reassignment that is not finished: {first.key}"
    ]
    assert not any(one.stops for one in assess(model, saved.plan.moves))


def test_disks_without_room_are_refused() -> None:
    cluster, saved = _prepared()
    cluster.brokers[4] = Broker(4, total_bytes=100_000, usable_bytes=25_000)
    _refused(cluster, saved.plan, "less than 10% of its disk would be left")


def test_a_full_disk_takes_what_makes_no_difference_to_it() -> None:
    cluster, saved = _prepared()
    cluster.brokers[4] = Broker(4, total_bytes=10**12, usable_bytes=5 * 10**10)
    found = [one for one in assess(cluster.observe(), saved.plan.moves) if "of its disk would be left" in one.text]
    assert [one.stops for one in found] == [False]


def test_a_plan_for_another_state_of_the_cluster_is_refused() -> None:
    cluster, saved = _prepared()
    move = saved.plan.moves[0]
    one = cluster.partitions[(move.topic, move.index)]
    (other,) = {1, 2, 3} - set(one.replicas)
    moved = (*one.replicas[:1], other)
    cluster.partitions[(move.topic, move.index)] = msgspec.structs.replace(one, replicas=moved, in_sync=moved)
    _refused(cluster, saved.plan, "was on .* when the plan was made")
    del cluster.partitions[(move.topic, move.index)]
    _refused(cluster, saved.plan, "no such partition")


def test_unknown_brokers_and_too_many_replicas_are_refused() -> None:
    cluster, saved = _prepared()
    first, *rest = saved.plan.moves
    strange = msgspec.structs.replace(first, after=(9, *first.after[1:]))
    _refused(cluster, msgspec.structs.replace(saved.plan, moves=(strange, *rest)), "there is no broker 9")
    many = msgspec.structs.replace(first, after=(1, 2, 3, 4, 5))
    _refused(cluster, msgspec.structs.replace(saved.plan, moves=(many, *rest)), "5 replicas, but there are 4 brokers")


def test_a_dead_broker_can_be_drained() -> None:
    model = even(30, 2, 4)
    dead = ClusterModel(
        model.cluster_id,
        [msgspec.structs.replace(one, in_service=one.id != 2) for one in model.brokers.values()],
        [_without(one, 2) for one in model.partitions],
    )
    cluster = SimulatedCluster(dead)
    cluster.dead = {2}
    plan: Plan = drain_brokers(dead, [2])
    saved = Saved(PlanFile(plan.moves, cluster="a-cluster", throttle=RATE, leaving=(2,)))
    _run(cluster, saved)
    assert all(2 not in one.replicas for one in cluster.partitions.values())


def _without(one: Partition, broker: int) -> Partition:
    in_sync = tuple(other for other in one.replicas if other != broker)
    return msgspec.structs.replace(one, in_sync=in_sync, leader=in_sync[0])
