"""Schedules are data: they replay, in any process; they are stored and read; what fails is made small."""

from __future__ import annotations

import os
import subprocess
import sys

from msgspec.structs import replace

from penstock.sim.trials.generators import generate
from penstock.sim.trials.running import run_trial
from penstock.sim.trials.schedule import Fault, Kind, Schedule
from penstock.sim.trials.shrink import Shrinker, signature


def test_a_schedule_survives_being_written_and_read() -> None:
    for seed in range(50):
        schedule = generate(seed)
        assert Schedule.from_json(schedule.to_json()) == schedule


def test_every_kind_of_fault_is_drawn() -> None:
    drawn = {fault.kind for seed in range(400) for fault in generate(seed).faults}
    assert drawn == set(Kind)


def test_a_trial_replays_under_another_hash_seed() -> None:
    script = (
        "from penstock.sim.trials.generators import generate\n"
        "from penstock.sim.trials.running import run_trial\n"
        "print(run_trial(generate(8)).digest)\n"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) > 20


def test_a_fault_more_is_all_the_difference() -> None:
    schedule = replace(generate(1), faults=(), length_ms=4_000)
    calm = run_trial(schedule)
    crashed = run_trial(replace(schedule, faults=(Fault(1_000, Kind.CRASH, "leader", 500),)))
    assert not calm.failure
    assert not crashed.failure
    assert calm.seen["unclean restart"] == 0
    assert crashed.seen["unclean restart"] == 1
    assert calm.digest != crashed.digest


def test_only_what_the_failure_needs_is_left_of_a_schedule() -> None:
    """Two faults of thirty that fail only together, and only while groups are at work."""
    faults = tuple(Fault(100 * number, Kind.RESET, 1 + number % 3) for number in range(30))
    needed = {faults[4], faults[21]}
    tried: list[Schedule] = []

    def fails(candidate: Schedule) -> bool:
        tried.append(candidate)
        return needed <= set(candidate.faults) and candidate.groups

    shrunk = Shrinker(fails, 200).run(Schedule(1, 60_000, faults))
    assert set(shrunk.faults) == needed
    assert shrunk.groups
    assert not shrunk.topics
    assert shrunk.length_ms < 10_000
    assert len(tried) < 60


def test_shrinking_ends_after_so_many_tries() -> None:
    faults = tuple(Fault(number, Kind.RESET, 1) for number in range(64))
    tries = 0

    def fails(candidate: Schedule) -> bool:
        nonlocal tries
        tries += 1
        return len(candidate.faults) > 60

    Shrinker(fails, 10).run(Schedule(1, 1_000, faults))
    assert tries == 10


def test_failures_are_told_apart_by_what_they_are_about() -> None:
    one = signature("Violation: t-0: b'0-000033' was acknowledged at 48, where [] is\nnode-1: …")
    assert one == signature("Violation: t-1: b'7-000001' was acknowledged at 3, where [] is")
    assert one != signature("Violation: the nodes do not agree on the metadata")
