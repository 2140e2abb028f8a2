"""With a bug of transactions planted, the trials fail within the number of seeds that is stated here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.sim.trials.generators import transactional
from penstock.sim.trials.running import run_trial
from sim.trials import planted_transactions as planted

WITHIN = 12


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        (planted.old_marker_is_accepted, 0),
        (planted.nothing_is_verified, 0),
        (planted.all_that_is_replicated_is_stable, 0),
        (planted.offsets_are_visible_early, 0),
        (planted.aborted_index_is_lost, 0),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first`: a seed that found it when this was written, to be quick; any others would do."""
    bug(monkeypatch)
    if not any(run_trial(transactional(seed)).failure for seed in range(first, first + WITHIN)):
        pytest.fail(f"{bug.__name__} survived {WITHIN} seeds")
