"""Whole clusters under random faults: what was promised holds, on seeds that nobody has seen before.

The hour decides which. `PENSTOCK_SIM_FIRST=2026111607` replays those of another, `PENSTOCK_SIM_SEEDS=…` runs more of
them; `make sim` runs as many as wanted on all cores, and shrinks what fails.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.sim.trials.coverage import missing
from penstock.sim.trials.generators import generate
from penstock.sim.trials.running import run_trial
from penstock.sim.trials.schedule import Schedule

STORED = sorted((Path(__file__).parent / "schedules").glob("*.json"))
FIRST = 100 * int(os.environ.get("PENSTOCK_SIM_FIRST", datetime.now(UTC).strftime("%Y%m%d%H")))
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "12"))
COVERED_WITHIN = max(150, SEEDS)
"""In so many seeds everything that must happen does, mostly within the first dozens; the rarest is in 9 % of them."""


def test_fresh_seeds_break_no_promise_and_everything_happens_in_them() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + COVERED_WITHIN):
        outcome = run_trial(generate(seed))
        assert not outcome.failure, f"seed {seed}: {outcome.failure}\nshrink it: make sim SEEDS=1 RAFT=0 FIRST={seed}"
        assert outcome.acknowledged
        seen += outcome.seen
        if seed >= FIRST + SEEDS - 1 and not missing(seen):
            return
    pytest.fail(f"never in {COVERED_WITHIN} seeds: {', '.join(missing(seen))}")


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_bug_that_was_found_once_stays_away(path: Path) -> None:
    schedule = Schedule.from_json(path.read_bytes())
    assert schedule.found, "a stored schedule says what it found"
    assert not run_trial(schedule).failure
