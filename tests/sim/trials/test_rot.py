"""Bits that flip where a start does not look: they hold up whoever reads them, and reach nobody else."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from penstock.replication import Leader
from penstock.sim.trials.running import run_trial
from penstock.sim.trials.schedule import LOAD_TOPIC, Fault, Kind, Schedule
from penstock.sim.trials.trial import Trial

SETTINGS = {"min.insync.replicas": "2", "default.replication.factor": "3"}


def test_what_rots_below_a_recovery_point_is_read_by_nobody_and_copied_by_nobody() -> None:
    """A clean stop writes down how far the logs are synced; then a bit flips below that, and its node leads again."""
    seen: Counter[str] = Counter()
    # In the second one a reader meets the rot, in the first it does not.
    for seed in (1, 14):
        faults = (
            Fault(5_000, Kind.STOP, 1, 500),
            Fault(8_000, Kind.ROT, 1, 300, path=f"{LOAD_TOPIC}-"),
            Fault(11_000, Kind.STOP, 2, 500),
            Fault(14_000, Kind.STOP, 3, 500),
        )
        schedule = Schedule(
            seed, 20_000, faults, settings=SETTINGS, partitions=1, groups=False, topics=False, pause_ms=200
        )
        outcome = run_trial(schedule)
        assert outcome.failure == "", seed
        seen += outcome.seen
    # Whether a reader meets it, and whether a disk must be replaced in the end, depends on the seed: try some more.
    for seed in range(20, 40):
        if seen["rotten disk replaced"] and seen["rot met"]:
            break
        outcome = run_trial(replace(schedule, seed=seed))
        assert outcome.failure == "", seed
        seen += outcome.seen
    assert seen["rotten disk replaced"]
    assert seen["rot met"]


def rot_in_the_leader_and_an_empty_replica(seed: int) -> Schedule:
    """Node 1 rots below its recovery point and leads again; then another node comes back with an empty disk."""
    faults = (
        Fault(5_000, Kind.STOP, 1, 500),
        Fault(8_000, Kind.ROT, 1, 300, path=f"{LOAD_TOPIC}-"),
        Fault(11_000, Kind.STOP, 2, 500),
        Fault(14_000, Kind.STOP, 3, 500),
        Fault(18_000, Kind.WIPE, 2, 500),
    )
    return Schedule(seed, 30_000, faults, settings=SETTINGS, partitions=1, groups=False, topics=False, pause_ms=200)


def test_an_empty_replica_catches_up_although_the_leaders_copy_has_rotted() -> None:
    repaired = 0
    for seed in range(3):
        trial = Trial(rot_in_the_leader_and_an_empty_replica(seed))
        outcome = trial.run()
        assert outcome.failure == "", seed
        repaired += sum(len(node.events.named("damaged log cut")) for node in trial.cluster.nodes)
    assert repaired


def test_without_giving_up_the_leadership_it_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "give_up", lambda leader, now_ms: None)
    failures = (run_trial(rot_in_the_leader_and_an_empty_replica(seed)).failure for seed in range(3))
    assert any("in sync" in failure or "replaced" in failure for failure in failures)
