"""One node with damaged files: it serves everything, or it refuses, and deletes nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.sim.trials import alone as trials
from penstock.sim.trials.damage import all_files
from penstock.sim.trials.generators import DIRECTORY, FILES, alone
from penstock.sim.trials.running import run_trial
from penstock.sim.trials.schedule import DAMAGE, Schedule
from sim.trials import planted

SEEDS = 4


@pytest.mark.parametrize("files", FILES)
def test_damage_to_one_kind_of_file_costs_no_acknowledged_record(files: str) -> None:
    seen: Counter[str] = Counter()
    failures = []
    for seed in range(SEEDS):
        outcome = run_trial(alone(seed, files))
        seen += outcome.seen
        failures += [f"seed {seed}: {outcome.failure}"] if outcome.failure else []
    assert seen[f"damaged {files}"], "nothing was damaged, so nothing is shown"
    assert not failures


def test_a_partition_whose_directory_is_gone_is_not_served_as_if_it_were_empty() -> None:
    outcomes = [run_trial(alone(seed, DIRECTORY)) for seed in range(3 * SEEDS)]
    assert not [outcome.failure for outcome in outcomes if outcome.failure]
    assert sum(outcome.seen["partition refused after damage"] for outcome in outcomes), "nothing was removed"


def test_a_node_that_serves_an_empty_log_in_place_of_a_lost_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.lost_log_is_served_empty(monkeypatch)
    failures = [run_trial(alone(seed, DIRECTORY)).failure for seed in range(3 * SEEDS)]
    assert any("is served as if it ended at 0" in failure for failure in failures)


def test_every_file_of_a_data_directory_belongs_to_a_kind_that_is_damaged() -> None:
    """Whoever adds a file to the data directory adds it to the rehearsal, too."""
    from fnmatch import fnmatchcase

    paths: dict[str, None] = {}

    class Listed(trials.AloneTrial):
        def _damage(self) -> set[bytes]:
            paths.update(dict.fromkeys(all_files(self.cluster.nodes[0].host.disk)))
            return super()._damage()

    for seed in range(3):
        Listed(alone(seed, "quorum-state")).run()
    patterns = (*FILES.values(), ".lock", "c*-*/*", "*-stray/*")
    unknown = [path for path in paths if not any(fnmatchcase(path, pattern) for pattern in patterns)]
    assert not unknown


def test_a_node_that_forgets_a_topic_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict's own proof: between damage and start, the log of a partition is emptied."""
    start = trials.AloneTrial._start_and_judge

    def forgetful(self: trials.AloneTrial, number: int, left: set[bytes]) -> None:
        disk = self.cluster.nodes[0].host.disk
        for path in all_files(disk):
            if path.startswith("t-") and path.endswith(".log"):
                disk.namespace.file(path).truncate(0)
        start(self, number, left)

    monkeypatch.setattr(trials.AloneTrial, "_start_and_judge", forgetful)
    failure = run_trial(alone(1, "metadata epochs")).failure
    assert "is served as if it ended at" in failure or "were removed from the disk" in failure


def test_a_node_that_deletes_data_on_the_word_of_damaged_metadata_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.damage_is_believed(monkeypatch)
    assert any(run_trial(alone(seed, "metadata log")).failure for seed in range(SEEDS))


def test_a_recovery_that_throws_the_end_of_a_log_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.cut_end_is_not_kept(monkeypatch)
    failures = [run_trial(alone(seed, "segment")).failure for seed in range(8, 8 + SEEDS)]
    assert any("were removed from the disk" in failure for failure in failures)


def test_a_schedule_of_one_node_replays() -> None:
    schedule = alone(3, "synced-end")
    again = Schedule.from_json(schedule.to_json())
    assert again == schedule
    assert any(fault.kind in DAMAGE for fault in again.faults)
    assert run_trial(schedule).digest == run_trial(again).digest
