"""Whole quorums under random faults: Raft's promises hold after every step, and the simulator can tell if they do not.

`PENSTOCK_RAFT_SEEDS=2000 pytest tests/raft/test_simulation.py` runs as many fresh seeds as wanted; a failure names
the seed, and `run_chaos(seed)` replays it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import pytest

from penstock.sim.raft.chaos import run_chaos, run_storm
from penstock.sim.raft.kafka import SCENARIOS as SCENARIOS_OF_KAFKA
from raft import planted
from raft.transcript import Scenario
from support.transcripts import played

SCENARIOS = Path(__file__).parent / "scenarios"
FOUND = {
    1006252: "an observer that was about to be a voter believed in a leader that had resigned, and kept its vote back",
}
"""Seeds that found a bug, with the bug."""
FRESH_SEEDS = int(os.environ.get("PENSTOCK_RAFT_SEEDS", "60"))
MUST_HAPPEN = (
    "leader change",
    "divergent truncation",
    "snapshot taken",
    "snapshot install",
    "voter change",
    "power loss",
    "kill",
    "pause",
    "corrupt log",
    "wiped disk",
    "message lost",
)


def test_quorums_keep_their_promises_under_every_fault() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen += run_chaos(seed).seen
    for what in MUST_HAPPEN:
        assert seen[what] > 0, f"{what} never happened: these seeds prove nothing about it"


@pytest.mark.parametrize("seed", FOUND)
def test_a_bug_that_was_found_once_stays_away(seed: int) -> None:
    run_chaos(seed)


@pytest.mark.parametrize("scenario", SCENARIOS_OF_KAFKA.values(), ids=SCENARIOS_OF_KAFKA)
def test_the_seven_scenarios_of_kafka(scenario: Callable[[int], object]) -> None:
    first = SystemRandom().randrange(1 << 40)
    for seed in (*range(3), *range(first, first + 3)):
        scenario(seed)


def test_quorums_keep_their_promises_on_fresh_seeds() -> None:
    first = SystemRandom().randrange(1 << 40)
    for seed in range(first, first + FRESH_SEEDS):
        run_chaos(seed)


def test_elections_under_a_storm_of_power_failures() -> None:
    for seed in range(4):
        assert run_storm(seed).seen["leader change"] > 1
    # How often leaders change is a matter of luck on seeds that nobody has seen; what is promised is not.
    first = SystemRandom().randrange(1 << 40)
    for seed in range(first, first + 4):
        run_storm(seed)


def test_a_seed_replays_under_another_hash_seed() -> None:
    script = (
        "from penstock.sim.raft.chaos import run_chaos\n"
        "from hashlib import sha256\n"
        "cluster = run_chaos(7)\n"
        "print(sha256(repr((cluster.committed, cluster.now, sorted(cluster.seen.items()))).encode()).hexdigest())\n"
    )
    traces = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1]


@pytest.mark.parametrize(
    ("bug", "run", "seeds"),
    [
        (planted.acknowledge_before_sync, run_storm, 60),
        (planted.two_voter_changes_at_once, run_chaos, 60),
        (planted.vote_for_a_shorter_log, run_storm, 10),
    ],
)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None],
    run: Callable[[int], object],
    seeds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bug(monkeypatch)
    for seed in range(seeds):
        try:
            run(seed)
        except Exception:
            return
    pytest.fail(f"{bug.__name__} survived {seeds} seeds")


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        (planted.vote_not_synced, "double_vote.txt"),
        (planted.corrupt_minority_votes, "corrupt_log.txt"),
        (planted.vote_for_a_wiped_voter, "wiped_voter.txt"),
    ],
)
def test_a_planted_bug_that_needs_the_right_moment_breaks_its_scenario(
    bug: Callable[[pytest.MonkeyPatch], None], scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=r"lead epoch|a leader with"):
        played(SCENARIOS / scenario, Scenario().execute)
