"""Many seeds on several processes, and what is told of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.sim.trials import __main__ as command
from penstock.sim.trials import campaign as campaigns
from penstock.sim.trials.campaign import Campaign, raft_seeds, run_campaign
from penstock.sim.trials.schedule import Fault, Kind, Schedule
from penstock.sim.trials.trial import Outcome


def test_seeds_of_both_kinds_are_run_and_counted() -> None:
    campaign = run_campaign(1, 2, 60, jobs=1, quiet=True)
    assert (campaign.trials, campaign.raft) == (2, 60)
    assert not campaign.failed
    assert not campaign.raft_failed
    assert campaign.acknowledged > 0
    assert campaign.raft_seen["leader change"] > 0


def test_a_seed_of_the_core_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seed: int) -> object:
        raise AssertionError(f"seed {seed}: two leaders")

    monkeypatch.setattr(campaigns, "run_chaos", fail)
    _, failed = raft_seeds([51, 53])
    assert failed == [(51, "AssertionError: seed 51: two leaders"), (53, "AssertionError: seed 53: two leaders")]


def test_a_failure_is_shrunk_printed_and_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what has to do with it is left: here, any schedule that still has its crash."""
    faults = (*(Fault(100 * number, Kind.RESET, 1) for number in range(5)), Fault(700, Kind.CRASH, 2, 50))

    def run_trial(schedule: Schedule) -> Outcome:
        crashed = any(fault.kind is Kind.CRASH for fault in schedule.faults)
        return Outcome(schedule.seed, failure="Violation: lost" if crashed else "")

    failed = Campaign(trials=1, failed=[Outcome(7, applied=faults, failure="Violation: lost")])
    monkeypatch.setattr("penstock.sim.trials.shrink.run_trial", run_trial)
    monkeypatch.setattr(command, "run_campaign", lambda *_, **__: failed)
    with pytest.raises(command.typer.Exit) as ended:
        command.main(seeds=1, raft=0, first=7, jobs=1, minutes=0.0, keep=tmp_path, replay=None, show=-1)
    assert ended.value.exit_code == 1
    told = capsys.readouterr().out
    assert "seed 7" in told
    assert "crash 2 for 50 ms" in told
    assert "reset" not in told
    stored = json.loads((tmp_path / "7.json").read_text())
    assert [fault["kind"] for fault in stored["faults"]] == ["crash"]
    assert stored["found"] == "Violation: lost"
