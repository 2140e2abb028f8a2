"""A single node with one damaged metadata file: it serves everything, or refuses and deletes nothing."""

from __future__ import annotations

import pytest

from broker.damaging import METADATA, METADATA_LOG, Files, Scene, flipped, mutations, outcome, scene

SNAPSHOT = f"{METADATA}/00000000000000000000-0000000000.checkpoint"


def sweep(found: Scene, path: str, stride: int, start: int = 0) -> dict[str, str]:
    """The result of every mutation of one file."""
    data = found.files[path]
    outcomes = {}
    for what, changed in mutations(data, range(start, len(data), stride)):
        files: Files = {name: content for name, content in found.files.items() if name != path or changed is not None}
        if changed is not None:
            files[path] = changed
        outcomes[what] = outcome(found, files, f"{path} {what}")
    return outcomes


@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_a_damaged_metadata_log_never_costs_a_topic(stop: str) -> None:
    found = scene(stop=stop)
    outcomes = sweep(found, METADATA_LOG, 41)
    assert all(told.startswith("refused") for told in outcomes.values())


@pytest.mark.parametrize("which", [".checkpoint", ".log"])
def test_damage_after_a_snapshot_was_taken_never_costs_a_topic(which: str) -> None:
    found = scene(settings={"metadata.log.max.record.bytes.between.snapshots": "700"}, wait_ms=1_000)
    paths = [path for path in found.files if path.startswith(METADATA) and path.endswith(which)]
    assert ".checkpoint" not in which or paths != [SNAPSHOT]
    outcomes = sweep(found, paths[-1], 37)
    assert outcomes["zeroed"].startswith("refused")


@pytest.mark.long
@pytest.mark.parametrize("path", [METADATA_LOG, SNAPSHOT, "meta.properties", "orders-0/partition.metadata"])
@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_no_byte_of_any_file_costs_a_topic(path: str, stop: str) -> None:
    assert sweep(scene(stop=stop), path, 1)


def test_an_owner_without_a_checksum_is_believed_only_where_nobody_can_contradict_it() -> None:
    """Kafka and earlier releases wrote none."""
    found = scene()
    path = "orders-0/partition.metadata"
    text = found.files[path].rpartition(b"\n")[0]
    assert outcome(found, found.files | {path: text}, "without a checksum") == "served"
    told = outcome(found, found.files | {path: flipped(text, 30, 1)}, "another topic")
    assert told.startswith("partition refused: orders-0/partition.metadata names topic ")


def test_a_damaged_snapshot_never_costs_a_topic() -> None:
    outcomes = sweep(scene(), SNAPSHOT, 11)
    assert {told.split(":")[0] for told in outcomes.values()} <= {"refused", "served"}
    assert "penstock metadata recover --data simulated" in outcomes["zeroed"]


@pytest.mark.parametrize("name", ["quorum-state", "synced-end", "synced-end-now"])
def test_no_other_file_of_the_quorum_costs_a_topic(name: str) -> None:
    found = scene(wait_ms=2_000)
    outcomes = sweep(found, f"{METADATA}/{name}", 5)
    served = [what for what, told in outcomes.items() if told == "served"]
    assert len(served) == len(outcomes) if name != "quorum-state" else served == ["removed"]


def test_damaged_meta_properties_are_refused() -> None:
    outcomes = sweep(scene(), "meta.properties", 4)
    assert all(told == "served" or "meta.properties" in told for told in outcomes.values())
    # A bit of the comment that holds the checksum may turn: nothing else has changed then.
    assert sum(told == "served" for told in outcomes.values()) <= 3


def test_another_directory_id_is_refused_where_no_other_voter_could_help() -> None:
    found = scene()
    lines = found.files["meta.properties"].splitlines(keepends=True)[1:]
    changed = b"".join(b"directory.id=J8aAPcfLQt2bqs1JT_rMgQ\n" if b"directory" in line else line for line in lines)
    told = outcome(found, found.files | {"meta.properties": changed}, "another directory id")
    assert "lists node 1 as a voter with directory.id=" in told


def test_a_damaged_owner_costs_at_most_the_partition_until_someone_has_looked() -> None:
    outcomes = sweep(scene(), "orders-0/partition.metadata", 2)
    flips = [told for what, told in outcomes.items() if "flipped" in what]
    assert all(told.startswith("partition refused: orders-0/partition.metadata") for told in flips)
    # What a crash leaves of a new file: the records are there, and the metadata knows whose they are.
    assert outcomes["removed"] == outcomes["truncated to 0"] == outcomes["truncated to 1"] == "served"


def test_metadata_that_is_older_than_the_data_is_refused() -> None:
    """As after restoring a backup: all files are intact, but topics are missing."""
    old, new = scene(topics={"logs": [[b"x"]]}), scene()
    mixed = {path: data for path, data in new.files.items() if not path.startswith(METADATA)}
    mixed |= {path: data for path, data in old.files.items() if path.startswith((METADATA, "meta.properties", "logs"))}
    told = outcome(new, mixed, "an old copy of the metadata")
    assert "the metadata does not know orders-0, orders-1, and has not deleted them" in told


@pytest.mark.parametrize("path", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_damaged_checkpoint_is_refused_with_a_sentence(path: str) -> None:
    outcomes = sweep(scene(stop="clean"), path, 1_000_000)
    assert path in outcomes["zeroed"]
