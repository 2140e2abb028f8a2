"""Whole clusters under random faults: what was promised holds, on seeds that nobody has seen before.

`PENSTOCK_SIM_FIRST=…` replays the seeds of another day, `PENSTOCK_SIM_SEEDS=…` runs more of them; `make sim` runs as
many as wanted on all cores, and shrinks what fails.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.sim.trials.coverage import missing
from penstock.sim.trials.schedule import Schedule, generate, storm
from penstock.sim.trials.trial import run_trial

STORED = sorted((Path(__file__).parent / "schedules").glob("*.json"))
FIRST = int(os.environ.get("PENSTOCK_SIM_FIRST", datetime.now(UTC).strftime("%Y%m%d%H")))
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "12"))
COVERED_WITHIN = 60


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_fresh_seed_breaks_no_promise(seed: int) -> None:
    outcome = run_trial(generate(seed))
    assert not outcome.failure, f"seed {seed}: {outcome.failure}\nshrink it: make sim SEEDS=1 FIRST={seed}"
    assert outcome.acknowledged


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_bug_that_was_found_once_stays_away(path: Path) -> None:
    schedule = Schedule.from_json(path.read_bytes())
    assert schedule.found, "a stored schedule says what it found"
    assert not run_trial(schedule).failure


def test_what_must_happen_in_a_set_of_trials_happens() -> None:
    seen: Counter[str] = Counter()
    for seed in range(COVERED_WITHIN):
        seen += run_trial(storm(seed) if seed % 3 == 0 else generate(seed)).seen
        if seed >= 9 and not missing(seen):
            return
    pytest.fail(f"never in {COVERED_WITHIN} seeds: {', '.join(missing(seen))}")
