"""Partitions that are moved all the time while faults happen: nothing lost, all replicas agree, positions kept."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.sim.cluster import BOTH, BROKER
from penstock.sim.trials.generators import anything
from penstock.sim.trials.running import run_trial
from penstock.sim.trials.schedule import Schedule

FIVE = (BOTH, BOTH, BOTH, BROKER, BROKER)


def moving(seed: int) -> Schedule:
    """A schedule of any faults, in a cluster with brokers to spare."""
    schedule = anything(seed)
    if schedule.nodes < 5:
        schedule = replace(schedule, nodes=5, roles=FIVE)
    return replace(schedule, moves=True)


@pytest.mark.parametrize("seed", [1, 2, 8])
def test_moves_and_faults_together_cost_nothing(seed: int) -> None:
    outcome = run_trial(moving(seed))
    assert outcome.failure == ""
    assert outcome.acknowledged
    assert outcome.seen["move begun"]


@pytest.mark.long
def test_moves_and_many_faults_together_cost_nothing() -> None:
    begun = cancelled = 0
    for seed in range(100, 160):
        outcome = run_trial(moving(seed))
        assert outcome.failure == "", seed
        begun += outcome.seen["move begun"]
        cancelled += outcome.seen["move cancelled"]
    assert begun > 100
    assert cancelled > 10
