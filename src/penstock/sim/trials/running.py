"""Runs a schedule of any kind."""

from __future__ import annotations

from penstock.sim.trials.alone import AloneTrial
from penstock.sim.trials.schedule import Schedule
from penstock.sim.trials.trial import Outcome, Trial

__all__ = ["run_trial"]


def run_trial(schedule: Schedule) -> Outcome:
    """Runs the trial; a failure is returned in the outcome, not raised."""
    trial = AloneTrial(schedule) if schedule.nodes == 1 else Trial(schedule)
    try:
        return trial.run()
    except Exception as error:
        trial.outcome.failure = f"{type(error).__name__}: {error}"
        return trial.outcome
