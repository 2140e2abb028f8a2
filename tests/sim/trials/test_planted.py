"""The trials' proof of themselves: with a bug planted, they fail within the number of seeds that is stated here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.sim.trials.generators import storm
from penstock.sim.trials.running import run_trial
from penstock.sim.trials.schedule import Schedule
from sim.trials import planted

HERE = Path(__file__).parent
WITHIN = 20


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        (planted.no_epoch_check, 1),
        (planted.high_watermark_moves_back, 7),
        (planted.duplicate_acknowledged_early, 0),
        (planted.read_before_commit, 0),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first`: a seed that found it when this was written, to be quick; any others would do."""
    bug(monkeypatch)
    if not any(run_trial(storm(seed)).failure for seed in range(first, first + WITHIN)):
        pytest.fail(f"{bug.__name__} survived {WITHIN} seeds")


def test_a_replica_that_lost_its_tail_and_stays_in_the_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must come back while nobody else can lead: too rare for a few seeds, so the schedule is given."""
    schedule = Schedule.from_json((HERE / "lost_tail.json").read_bytes())
    assert not run_trial(schedule).failure
    planted.unclean_replica_kept_in_the_isr(monkeypatch)
    assert run_trial(schedule).failure
