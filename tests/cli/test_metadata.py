"""`penstock metadata recover`, `penstock log strays` and `restore`: what they show, refuse and do."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from cli.running import Run
from penstock.broker.layout import partition_metadata_text
from penstock.cli import exit_codes
from penstock.log.checkpoints import decode_offsets, encode_offsets
from penstock.metadata import MetaProperties, format_directory
from penstock.raft import Endpoint, Voter, VoterSet
from penstock.wire.records import Record, build_batch
from penstock.wire.uuids import format_uuid

TOPIC_ID = format_uuid(bytes(range(16)))
DIRECTORY_ID = bytes(range(100, 116))
BATCH = build_batch([Record(timestamp=1000, value=b"v")], leader_epoch=4, producer_id=2_345)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory whose metadata knows nothing of the topic in it."""
    root = tmp_path / "data"
    voters = VoterSet.of([Voter(1, DIRECTORY_ID, (Endpoint("CONTROLLER", "localhost", 9093),))])
    files = format_directory(MetaProperties("cluster", 1, DIRECTORY_ID), voters, timestamp_ms=0)
    for name, content in {
        **files,
        "orders-0/partition.metadata": partition_metadata_text(TOPIC_ID),
        f"orders-0/{0:020d}.log": BATCH,
        "gone-3.0123-stray/partition.metadata": partition_metadata_text(TOPIC_ID),
        "gone-3.0123-stray/stray.json": json.dumps({"name": "gone-3", "setAsideMs": 1_000, "reason": "why"}).encode(),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def contents(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_a_recovery_is_shown_first_and_changes_nothing(run: Run, data: Path) -> None:
    before = contents(data)
    result = run("metadata", "recover", "--data", data)
    assert result.code == exit_codes.OK
    assert "damage: the metadata lacks partitions of orders" in result.lines
    assert f"orders\t{TOPIC_ID}\t1\t1\t{len(BATCH)} B\t1004\tLOST: keeps everything" in result.lines
    assert "next producer id: 4000" in result.lines
    assert "nothing was changed" in result.messages
    assert contents(data) == before


def test_a_recovery_keeps_identity_and_the_old_metadata(run: Run, data: Path) -> None:
    before = contents(data)
    assert run("metadata", "recover", "--data", data, "--execute", "--yes").code == exit_codes.OK
    after = contents(data)
    assert after["meta.properties"] == before["meta.properties"]
    assert after[f"orders-0/{0:020d}.log"] == BATCH
    old = next(path for path in before if path.endswith(".checkpoint"))
    (kept,) = [path for path in after if path.startswith("__cluster_metadata-0.") and path.endswith(Path(old).name)]
    assert after[kept] == before[old]
    marker = json.loads(after["__cluster_metadata-0/recovered.json"])
    assert (marker["acls"], marker["topicsWithoutConfiguration"]) == ("unknown", ["orders"])
    again = run("metadata", "recover", "--data", data)
    assert "nothing to recover" in again.messages


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("controller.quorum.voters=1@a:9093,2@b:9093", "names other controllers"),
    ],
)
def test_a_recovery_is_refused_where_it_would_contradict_a_cluster(
    run: Run, data: Path, tmp_path: Path, line: str, reason: str
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(line + "\n", encoding="ascii")
    result = run("metadata", "recover", "--data", data, "--config", config)
    assert result.code == exit_codes.REFUSED
    assert reason in result.messages


@pytest.mark.parametrize("command", [("metadata", "recover", "--data"), ("log", "restore")])
def test_a_directory_that_a_broker_uses_is_left_alone(run: Run, data: Path, command: tuple[str, ...]) -> None:
    with (data / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run(*command, data, *(["gone-3.0123-stray"] if "restore" in command else []))
    assert result.code == exit_codes.REFUSED
    assert "a broker is using" in result.messages


def test_strays_are_listed_and_brought_back(run: Run, data: Path) -> None:
    size = sum(path.stat().st_size for path in (data / "gone-3.0123-stray").iterdir())
    shown = run("log", "strays", data)
    assert shown.lines[1:] == [f"gone-3.0123-stray\tgone-3\t{size} B\t1970-01-01T00:00:01+00:00\twhy"]
    assert run("log", "restore", data, "gone-3.0123-stray").lines == ["gone-3"]
    assert (data / "gone-3" / "partition.metadata").exists()
    assert run("log", "restore", data, "gone-3.0123-stray").code == exit_codes.REFUSED
    assert json.loads(run("log", "strays", data, "--json").output) == []


def test_the_nodes_of_a_local_cluster_are_searched(run: Run, data: Path) -> None:
    parent = data.parent / "cluster"
    parent.mkdir()
    data.rename(parent / "node-2")
    (parent / "node-1").mkdir()
    (parent / "node-1" / "meta.properties").write_text("")
    (found,) = json.loads(run("log", "strays", parent, "--json").output)
    assert found["directory"] == "node-2/gone-3.0123-stray"
    restored = run("log", "restore", parent, found["directory"], "--json")
    assert json.loads(restored.output)["restored"] == "node-2/gone-3"
    assert (parent / "node-2" / "gone-3" / "partition.metadata").exists()
    verified = json.loads(run("log", "verify", parent, "--json").output)
    assert "node-2/orders-0" in [log["directory"] for log in verified["logs"]]


def test_a_stray_does_not_take_the_place_of_a_directory(run: Run, data: Path) -> None:
    (data / "gone-3").mkdir()
    result = run("log", "restore", data, "gone-3.0123-stray")
    assert result.code == exit_codes.REFUSED
    assert "gone-3 already exists" in result.messages


def test_without_a_directory_there_is_nothing_to_do(run: Run, tmp_path: Path) -> None:
    assert run("metadata", "recover", "--data", tmp_path / "none").code == exit_codes.NOT_FOUND
    assert run("log", "strays", tmp_path / "none").code == exit_codes.NOT_FOUND


@pytest.mark.parametrize("name", ["../outside-0", "/outside-0", "..", "", "a/b-0", "meta.properties", "orders-x"])
def test_a_stray_is_never_restored_outside_its_data_directory(run: Run, data: Path, name: str) -> None:
    note = data / "gone-3.0123-stray/stray.json"
    note.write_text(json.dumps({"name": name, "setAsideMs": 1_000, "reason": "why"}))
    result = run("log", "restore", data, "gone-3.0123-stray")
    assert result.code == exit_codes.REFUSED
    assert (data / "gone-3.0123-stray/partition.metadata").exists()


def test_strays_are_named_by_their_directory_alone(run: Run, data: Path) -> None:
    for stray in ("../data/gone-3.0123-stray", "./gone-3.0123-stray", str(data / "gone-3.0123-stray")):
        assert run("log", "restore", data, stray).code == exit_codes.REFUSED


def test_a_loss_is_accepted_once_and_only_of_what_the_checkpoints_know(run: Run, data: Path) -> None:
    points = data / "recovery-point-offset-checkpoint"
    points.write_bytes(encode_offsets([("orders-0", 40), ("orders-1", 7)]))
    assert run("log", "accept-loss", data, "orders-0").code != exit_codes.OK, "nobody was asked"
    assert run("log", "accept-loss", data, "nothing-0", "--yes").code == exit_codes.NOT_FOUND
    result = run("log", "accept-loss", data, "orders-0", "--yes")
    assert result.code == exit_codes.OK
    assert "offset 40" in result.messages
    assert decode_offsets(points.read_bytes()) == {"orders-1": 7}
