"""The trials' proof of themselves: with a bug planted, they fail within the number of seeds that is stated here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.sim.trials.schedule import Schedule, storm
from penstock.sim.trials.trial import run_trial
from sim.trials import planted

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("bug", "seeds"),
    [
        (planted.no_epoch_check, 20),
        (planted.high_watermark_moves_back, 20),
        (planted.duplicate_acknowledged_early, 20),
        (planted.read_before_commit, 20),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    if not any(run_trial(storm(seed)).failure for seed in range(seeds)):
        pytest.fail(f"{bug.__name__} survived {seeds} seeds")


def test_a_replica_that_lost_its_tail_and_stays_in_the_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must come back while nobody else can lead: too rare for a few seeds, so the schedule is given."""
    schedule = Schedule.from_json((HERE / "lost_tail.json").read_bytes())
    assert not run_trial(schedule).failure
    planted.unclean_replica_kept_in_the_isr(monkeypatch)
    assert run_trial(schedule).failure
