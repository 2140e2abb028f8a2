"""`penstock log`: a broker's files, read without a broker."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from cli.running import Run
from penstock.cli import exit_codes
from penstock.wire.compression import Codec
from penstock.wire.records import Record, build_batch

FIRST = build_batch(
    [
        Record(timestamp=1000, key=b"k", value=b"v", headers=[("h", b"x")]),
        Record(timestamp=1001, key=None, value=b"\xff"),
    ],
    leader_epoch=1,
    producer_id=7,
    producer_epoch=0,
    base_sequence=5,
)
SECOND = build_batch([Record(timestamp=1002, value=b"z" * 100)], base_offset=2, leader_epoch=1, codec=Codec.ZSTD)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two partitions, stopped cleanly."""
    for name in ("orders-0", "orders-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(FIRST + SECOND)
    (tmp_path / "clean-shutdown-checkpoint").touch()
    return tmp_path


@pytest.fixture
def segment(data: Path) -> Path:
    return data / "orders-0" / f"{0:020d}.log"


def test_batches_are_shown_a_line_each(run: Run, data: Path) -> None:
    result = run("log", "dump", data / "orders-0")
    assert result.code == exit_codes.OK
    first, second = result.lines
    assert first.startswith(f"0..1  2 records  {len(FIRST)} bytes at {0:020d}.log:0  epoch 1  none  CreateTime 1001")
    assert "producer 7/0/5" in first
    assert second.startswith("2..2  1 record")
    assert "zstd" in second


def test_records_are_shown_on_request(run: Run, data: Path) -> None:
    result = run("log", "dump", data / "orders-0", "--records", "--until-offset", 2)
    assert result.lines[1:] == ['  0  1000  key="k"  value="v"  h="x"', '  1  1001  key=null  value={"base64": "/w=="}']


def test_a_range_of_offsets_as_json(run: Run, data: Path) -> None:
    result = run("log", "dump", data / "orders-0", "--records", "--json", "--from-offset", 2)
    (batch,) = map(json.loads, result.lines)
    assert (batch["kind"], batch["base_offset"], batch["count"], batch["is_valid"]) == ("batch", 2, 1, True)
    assert batch["records"][0]["value"] == "z" * 100


def test_indexes_are_shown_on_request(run: Run, data: Path, segment: Path) -> None:
    segment.with_suffix(".index").write_bytes((2).to_bytes(4, "big") + len(FIRST).to_bytes(4, "big"))
    segment.with_suffix(".timeindex").write_bytes((1002).to_bytes(8, "big") + (2).to_bytes(4, "big"))
    result = run("log", "dump", data / "orders-0", "--indexes")
    assert result.lines[2].startswith("kind=offset index")
    assert f"offset=2  position={len(FIRST)}" in result.lines[2]
    assert "timestamp=1002  offset=2" in result.lines[3]


def test_what_makes_no_sense_is_told_with_its_place(run: Run, data: Path, segment: Path) -> None:
    segment.write_bytes(FIRST + b"\0" * 100)
    result = run("log", "dump", data / "orders-0")
    assert result.code == exit_codes.FAILED
    assert f"{0:020d}.log:{len(FIRST)}" in result.lines[1]
    assert result.lines[1].startswith("ERROR")


def test_sound_files_are_told_to_be_sound(run: Run, data: Path) -> None:
    result = run("log", "verify", data, "--records")
    assert result.code == exit_codes.OK
    assert [line.split("\t")[:5] for line in result.lines[1:]] == [
        ["orders-0", "sound", "1", "2", "3"],
        ["orders-1", "sound", "1", "2", "3"],
    ]


def test_one_partition_is_verified_alone(run: Run, data: Path) -> None:
    result = run("log", "verify", data / "orders-1", "--json")
    assert result.code == exit_codes.OK
    (log,) = json.loads(result.output)["logs"]
    assert (log["directory"], log["start_offset"], log["end_offset"], log["errors"]) == ("orders-1", 0, 3, 0)


def test_a_flipped_bit_is_found(run: Run, data: Path, segment: Path) -> None:
    damaged = bytearray(FIRST + SECOND)
    damaged[len(FIRST) - 1] ^= 1
    segment.write_bytes(damaged)
    result = run("log", "verify", data)
    assert result.code == exit_codes.FAILED
    assert any(line.startswith("ERROR") and "checksum" in line for line in result.lines)
    assert "1 partition damaged: orders-0" in result.messages
    assert "BAD CHECKSUM" in run("log", "dump", data / "orders-0").lines[0]


def test_a_torn_end_after_a_crash_is_only_a_note(run: Run, data: Path, segment: Path) -> None:
    segment.write_bytes(FIRST + SECOND[:-1])
    assert run("log", "verify", data).code == exit_codes.FAILED
    (data / "clean-shutdown-checkpoint").unlink()
    result = run("log", "verify", data)
    assert result.code == exit_codes.OK
    assert any(line.startswith("NOTE") for line in result.lines)


def test_a_data_directory_cannot_be_dumped_as_a_whole(run: Run, data: Path) -> None:
    result = run("log", "dump", data)
    assert result.code == exit_codes.USAGE
    assert str(data / "orders-0") in result.messages


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_directory_without_logs(run: Run, tmp_path: Path, command: str) -> None:
    assert run("log", command, tmp_path).code == exit_codes.NOT_FOUND
    assert run("log", command, tmp_path / "nowhere").code == exit_codes.NOT_FOUND


def test_nothing_is_written_and_a_running_broker_is_noticed(run: Run, data: Path) -> None:
    before = sorted(path for path in data.rglob("*"))
    (data / ".lock").touch()
    with (data / ".lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run("log", "verify", data)
    assert result.code == exit_codes.OK
    assert "a broker is using" in result.messages
    assert sorted(path for path in data.rglob("*") if path.name != ".lock") == before


def test_read_only_files_will_do(run: Run, data: Path, segment: Path) -> None:
    segment.chmod(0o444)
    segment.parent.chmod(0o555)
    try:
        assert run("log", "verify", data).code == exit_codes.OK
    finally:
        segment.parent.chmod(0o755)
