"""Bits that flip where a start does not look: they hold up whoever reads them, and reach nobody else."""

from __future__ import annotations

from collections import Counter

from penstock.sim.trials.schedule import LOAD_TOPIC, Fault, Kind, Schedule
from penstock.sim.trials.trial import run_trial

SETTINGS = {"min.insync.replicas": "2", "default.replication.factor": "3"}


def test_what_rots_below_a_recovery_point_is_read_by_nobody_and_copied_by_nobody() -> None:
    """A clean stop writes down how far the logs are synced; then a bit flips below that, and its node leads again."""
    seen: Counter[str] = Counter()
    for seed in range(2):
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
    assert seen["rotten disk replaced"]
    assert seen["rot met"]
