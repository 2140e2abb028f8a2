"""`dump` and `verify`: files of a log, read while no broker uses them."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from log.helpers import WALL_MS, batch, open_log, simulate
from penstock.log import AppendOrigin, LogConfig, LogDirectory
from penstock.log.tools import (
    BatchDump,
    Problem,
    RecordDump,
    Severity,
    Verdict,
    as_json,
    dump,
    dump_index,
    dump_snapshot,
    dump_time_index,
    verify,
)
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.wire.compression import Codec
from penstock.wire.records import ControlRecordType, Record, build_batch, control_key

SIZE = len(batch(2, size=100))
NAME = "topic-0"


def written(*, clean: bool = True) -> SimDisk:
    """Ten batches of two records in segments of four, an epoch every four batches."""
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open(NAME, LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=SIZE))
        for number in range(10):
            records = batch(2, size=100, timestamp=WALL_MS + number, producer_id=3, epoch=0, sequence=2 * number)
            log.writer.append_leader(records, number // 4, WALL_MS)
        if clean:
            await directory.close()

    simulate(write, disk)
    disk.restart(power_loss=False)
    return disk


def verified(disk: SimDisk, *, records: bool = False) -> tuple[list[Problem], Verdict]:
    async def look(runtime: SimRuntime) -> tuple[list[Problem], Verdict]:
        *problems, verdict = verify(runtime.disk, NAME, records=records)
        assert isinstance(verdict, Verdict)
        return [problem for problem in problems if isinstance(problem, Problem)], verdict

    return simulate(look, disk)


def dumped(disk: SimDisk, **options: object) -> list[BatchDump | Problem]:
    async def look(runtime: SimRuntime) -> list[BatchDump | Problem]:
        return list(dump(runtime.disk, NAME, **options))  # type: ignore[arg-type]

    return simulate(look, disk)


def spoil(disk: SimDisk, path: str, position: int) -> None:
    disk.namespace.file(f"{NAME}/{path}").data[position] ^= 0xFF


def test_batches_are_dumped_in_order_with_their_header_fields() -> None:
    batches = dumped(written())
    assert [one.base_offset for one in batches if isinstance(one, BatchDump)] == list(range(0, 20, 2))
    third = batches[2]
    assert isinstance(third, BatchDump)
    assert asdict(third) == {
        "delete_horizon_ms": None,
        "file": "topic-0/00000000000000000000.log",
        "position": 2 * SIZE,
        "size_bytes": SIZE,
        "base_offset": 4,
        "last_offset": 5,
        "count": 2,
        "leader_epoch": 0,
        "codec": "none",
        "timestamp_type": "CreateTime",
        "base_timestamp": WALL_MS + 2,
        "max_timestamp": WALL_MS + 3,
        "producer_id": 3,
        "producer_epoch": 0,
        "base_sequence": 4,
        "last_sequence": 5,
        "is_transactional": False,
        "is_control": False,
        "crc": third.crc,
        "is_valid": True,
        "records": None,
    }


def test_a_range_of_offsets_can_be_dumped() -> None:
    batches = dumped(written(), from_offset=5, upto_offset=11)
    assert [one.base_offset for one in batches if isinstance(one, BatchDump)] == [4, 6, 8, 10]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_are_decoded(codec: Codec) -> None:
    disk = SimDisk(0)
    record = Record(timestamp=WALL_MS, key=b"k", value=b"\xff\x00", headers=[("h", b"x"), ("n", None)])

    async def write(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        log.writer.append_leader(memoryview(bytearray(build_batch([record], codec=codec))), 0, WALL_MS)

    simulate(write, disk)
    disk.restart(power_loss=False)
    (found,) = dumped(disk, records=True)
    assert isinstance(found, BatchDump)
    assert found.codec == codec.name.lower()
    assert found.records == (RecordDump(0, WALL_MS, b"k", b"\xff\x00", (("h", b"x"), ("n", None))),)
    text = json.dumps(as_json(found))
    assert json.loads(text)["records"][0]["value"] == {"base64": "/wA="}
    assert json.loads(text)["records"][0]["key"] == "k"


def test_control_records_are_named() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        data = build_batch([Record(key=control_key(ControlRecordType.LEADER_CHANGE), value=b"")], control=True)
        log.writer.append_leader(memoryview(bytearray(data)), 0, WALL_MS, origin=AppendOrigin.RAFT_LEADER)

    simulate(write, disk)
    disk.restart(power_loss=False)
    (found,) = dumped(disk, records=True)
    assert isinstance(found, BatchDump)
    assert found.is_control
    assert found.records is not None
    assert found.records[0].control_type == "LEADER_CHANGE"


def test_indexes_and_snapshots_can_be_dumped() -> None:
    async def look(runtime: SimRuntime) -> None:
        assert [(one.offset, one.position) for one in dump_index(runtime.disk, NAME, 8)] == [(13, 2 * SIZE)]
        times = [(one.timestamp, one.offset) for one in dump_time_index(runtime.disk, NAME, 8)]
        assert times == [(WALL_MS + 7, 13), (WALL_MS + 8, 15)]
        (producer,) = dump_snapshot(runtime.disk, NAME, 16)
        assert (producer.producer_id, producer.last_sequence, producer.last_offset) == (3, 15, 15)

    simulate(look, written())


def test_an_intact_log_passes_verification() -> None:
    problems, verdict = verified(written(), records=True)
    assert problems == []
    assert verdict == Verdict(NAME, 3, 10, 20, 10 * SIZE, 0, 20, 0, 0)
    assert verdict.is_sound


def test_a_directory_without_a_log_is_empty_and_sound() -> None:
    problems, verdict = verified(SimDisk(0))
    assert problems == []
    assert verdict == Verdict(NAME, 0, 0, 0, 0, 0, 0, 0, 0)


def test_a_flipped_bit_is_found() -> None:
    disk = written()
    spoil(disk, "00000000000000000008.log", SIZE + 80)
    (problem,), verdict = verified(disk)
    assert problem == Problem(
        Severity.ERROR, "topic-0/00000000000000000008.log", SIZE, 10, "the batch does not match its checksum"
    )
    assert not verdict.is_sound
    (found,) = dumped(disk, from_offset=10, upto_offset=12, records=True)
    assert isinstance(found, BatchDump)
    assert (found.is_valid, found.records) == (False, None)


def test_invalid_bytes_end_a_segment_and_reading_continues_with_the_next() -> None:
    disk = written()
    spoil(disk, "00000000000000000000.log", SIZE + 16)
    problems, verdict = verified(disk)
    assert [problem.severity for problem in problems if problem.file.endswith(".log")] == [Severity.ERROR] * 2
    assert "cannot be read" in problems[0].text
    assert verdict.batches == 1 + 6
    assert [type(one).__name__ for one in dumped(disk)] == ["BatchDump", "Problem", *["BatchDump"] * 6]


def test_a_torn_tail_is_a_note_after_an_unclean_stop_and_an_error_after_a_clean_one() -> None:
    for clean, severity in ((False, Severity.NOTE), (True, Severity.ERROR)):
        disk = written(clean=clean)
        disk.namespace.file(f"{NAME}/00000000000000000016.log").truncate(SIZE + 70)
        problems, _ = verified(disk)
        assert [problem.severity for problem in problems if problem.file.endswith(".log")] == [severity]


def test_a_missing_segment_is_found() -> None:
    disk = written()
    disk.namespace.remove(f"{NAME}/00000000000000000008.log")
    problems, _ = verified(disk)
    assert [problem.text for problem in problems] == ["the segment begins at 16, but the one before it ends at 8"]


@pytest.mark.parametrize("name", ["00000000000000000000.index", "00000000000000000000.timeindex"])
def test_a_wrong_index_entry_is_found(name: str) -> None:
    disk = written()
    spoil(disk, name, 7)
    problems, verdict = verified(disk)
    assert {problem.file for problem in problems} == {f"{NAME}/{name}"}
    assert verdict.is_sound, "no record is lost with it"


def test_a_wrong_start_offset_of_an_epoch_is_found() -> None:
    disk = written()
    path = f"{NAME}/leader-epoch-checkpoint"
    disk.namespace.file(path).data[:] = b"0\n3\n0 0\n1 9\n2 16\n"
    (problem,), _ = verified(disk)
    assert problem.text == "the checkpoint starts epoch 1 at 9, but its records start at 8"


def test_a_damaged_snapshot_is_a_note() -> None:
    disk = written()
    spoil(disk, "00000000000000000020.snapshot", 20)
    (problem,), verdict = verified(disk)
    assert problem.severity is Severity.NOTE
    assert verdict.is_sound


def test_records_that_cannot_be_decoded_are_found_when_asked_for() -> None:
    from struct import pack_into

    from penstock.wire.records import seal

    disk = written()
    data = disk.namespace.file(f"{NAME}/00000000000000000016.log").data
    view = memoryview(data)[:SIZE]
    pack_into(">h", view, 21, Codec.GZIP)
    seal(view)
    view.release()
    assert verified(disk)[0] == []
    (problem,), _ = verified(disk, records=True)
    assert "gzip" in problem.text


def test_batches_larger_than_a_chunk_are_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.tools.walking.CHUNK_BYTES", 100)
    problems, verdict = verified(written())
    assert problems == []
    assert verdict.batches == 10
