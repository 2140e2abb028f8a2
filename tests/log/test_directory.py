"""A data directory: checkpoints, clean stops and starts, deletion."""

from __future__ import annotations

import pytest

from log.helpers import WALL_MS, batch, contents, simulate
from penstock.log import CheckpointDamaged, LogConfig, LogDirectory, LogState, TimeSearch
from penstock.log.accepting import accept_loss
from penstock.log.checkpoints import (
    SegmentState,
    decode_clean_shutdown,
    decode_offsets,
    encode_clean_shutdown,
    encode_offsets,
)
from penstock.runtime import Runtime
from penstock.sim.disk import SimDisk
from penstock.sim.mount import MountedDisk
from penstock.sim.runtime import SimRuntime

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=100)


async def loaded(runtime: Runtime, *names: str, path: str = "") -> LogDirectory:
    directory = LogDirectory(runtime, path)
    await directory.load()
    for name in names:
        await directory.open(name, CONFIG)
    return directory


def fill(directory: LogDirectory, name: str, count: int = 10, **options: int) -> None:
    for number in range(count):
        sequence = {"sequence": 2 * number} if options else {}
        directory.logs[name].writer.append_leader(batch(2, **options, **sequence), 0, WALL_MS)  # type: ignore[arg-type]


def test_offset_checkpoints_are_kafkas() -> None:
    data = encode_offsets([("my-topic-3", 17), ("a.b_c-0", 0)])
    plain = b"0\n2\nmy-topic 3 17\na.b_c 0 0\n"
    assert [line.split() for line in data.splitlines()] == [line.split() for line in plain.splitlines()]
    assert data.startswith(plain[:-1])
    assert data.endswith(b"\n")
    assert decode_offsets(data) == decode_offsets(plain) == {"my-topic-3": 17, "a.b_c-0": 0}
    assert decode_offsets(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\0" * 20]
)
def test_a_damaged_offset_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        decode_offsets(data)


def test_an_offset_checkpoint_with_one_wrong_bit_or_a_lost_end_is_refused() -> None:
    data = encode_offsets([("my-topic-3", 17), ("a.b_c-0", 1 << 40)])
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(CheckpointDamaged):
                decode_offsets(bytes(flipped))
        with pytest.raises(CheckpointDamaged):
            decode_offsets(data[:position])


@simulate
async def test_a_damaged_start_offset_removes_nothing(runtime: SimRuntime) -> None:
    directory = await loaded(runtime, "a-0")
    fill(directory, "a-0")
    directory.logs["a-0"].trimmer.advance_start_offset(3)
    await directory.close()
    disk = runtime.disk
    before = {name: disk.read_bytes(f"a-0/{name}") for name in disk.list("a-0")}
    starts = disk.read_bytes("log-start-offset-checkpoint")
    assert b"a 0 3" in starts
    await disk.replace_bytes("log-start-offset-checkpoint", starts.replace(b"a 0 3", b"a 0 7"))
    again = LogDirectory(runtime)
    with pytest.raises(CheckpointDamaged, match="log-start-offset-checkpoint: the file does not match its checksum"):
        await again.load()
    assert {name: disk.read_bytes(f"a-0/{name}") for name in disk.list("a-0")} == before


@simulate
async def test_accepting_a_loss_removes_the_log_from_every_checkpoint(runtime: SimRuntime) -> None:
    directory = await loaded(runtime, "a-0", "b-0")
    fill(directory, "a-0")
    fill(directory, "b-0")
    await directory.close()
    assert await accept_loss(runtime.disk, "a-0") == 20
    assert await accept_loss(runtime.disk, "a-0") is None
    again = LogDirectory(runtime)
    await again.load()
    assert (again.had("a-0"), again.had("b-0"), again.is_clean) == (False, True, True)


def test_a_clean_shutdown_checkpoint_with_any_flipped_bit_is_ignored() -> None:
    state = LogState("t-0", 3, 90, [SegmentState(0, 1_000, 55, 12)], [(0, 0), (2, 40)], 7, 1, (3, 4, 5, 6))
    data = encode_clean_shutdown([state])
    assert decode_clean_shutdown(data) == [state]
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 4
        with pytest.raises(CheckpointDamaged):
            decode_clean_shutdown(bytes(flipped))
        with pytest.raises(CheckpointDamaged):
            decode_clean_shutdown(data[:position])


def test_a_clean_start_touches_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(0)
    touched: list[str] = []

    async def write(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0", "b-0", "b-1")
        fill(directory, "a-0", producer_id=5, epoch=0)
        fill(directory, "b-1", 3)
        await directory.close()

    async def look(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        assert directory.is_clean
        for method in ("open", "list", "size", "exists", "read_bytes", "mtime_ms", "mkdir"):
            original = getattr(MountedDisk, method)

            def watched(self, path, *args, _original=original, **options):  # type: ignore[no-untyped-def]
                touched.append(path)
                return _original(self, path, *args, **options)

            monkeypatch.setattr(MountedDisk, method, watched)
        before = disk.operations
        for name in ("a-0", "b-0", "b-1"):
            await directory.open(name, CONFIG)
        assert touched == []
        logs = directory.logs
        assert [log.end_offset for log in logs.values()] == [20, 0, 6]
        assert logs["a-0"].size_bytes > 0
        assert logs["a-0"].epochs.entries == [(0, 0)]
        assert (logs["a-0"].snapshots.loaded is None, logs["b-1"].snapshots.loaded is None) == (True, False)
        await directory.close()
        assert disk.operations - before <= 10, "a log that was not used costs nothing to close"

    simulate(write, disk)
    disk.restart(power_loss=False)
    simulate(look, disk)


def test_logs_are_complete_after_a_clean_stop_and_a_power_loss() -> None:
    for seed in range(20):
        disk = SimDisk(seed)

        async def write(runtime: SimRuntime) -> None:
            directory = await loaded(runtime, "a-0")
            fill(directory, "a-0", producer_id=5, epoch=0)
            await directory.close()

        async def look(runtime: SimRuntime) -> None:
            directory = await loaded(runtime, "a-0")
            assert directory.is_clean
            log = directory.logs["a-0"]
            assert [one.first for one in await contents(log)] == list(range(0, 20, 2))
            retry = batch(2, producer_id=5, epoch=0, sequence=18)
            assert log.writer.append_leader(retry, 0, WALL_MS).duplicate
            assert await TimeSearch(log).max_timestamp_offset() == (WALL_MS + 1, 1, 0)

        simulate(write, disk)
        disk.restart(power_loss=True)
        simulate(look, disk)


def test_a_directory_is_unclean_from_its_load_on() -> None:
    disk = SimDisk(0)

    async def close(runtime: SimRuntime) -> None:
        await (await loaded(runtime, "a-0")).close()

    async def load(runtime: SimRuntime) -> bool:
        return (await loaded(runtime)).is_clean

    simulate(close, disk)
    disk.restart(power_loss=True)
    assert simulate(load, disk)
    disk.restart(power_loss=True)
    assert not simulate(load, disk)


def test_logs_that_were_not_opened_stay_cleanly_closed() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0", "b-0")
        fill(directory, "a-0")
        fill(directory, "b-0")
        await directory.close()

    async def open_one(runtime: SimRuntime) -> None:
        await (await loaded(runtime, "a-0")).close()

    async def look(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0", "b-0")
        assert [log.end_offset for log in directory.logs.values()] == [20, 20]
        assert not any(log.names_in_doubt for log in directory.logs.values())

    simulate(write, disk)
    for step in (open_one, look):
        disk.restart(power_loss=False)
        simulate(step, disk)


def test_deleted_records_stay_deleted_once_a_checkpoint_is_written() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0")
        fill(directory, "a-0")
        await directory.logs["a-0"].flush()
        directory.logs["a-0"].trimmer.advance_start_offset(3)
        await directory.checkpoint()
        assert decode_offsets(disk.durable_content("log-start-offset-checkpoint")) == {"a-0": 3}
        assert decode_offsets(disk.durable_content("recovery-point-offset-checkpoint")) == {"a-0": 20}

    async def look(runtime: SimRuntime) -> int:
        return (await loaded(runtime, "a-0")).logs["a-0"].start_offset

    simulate(write, disk)
    disk.restart(power_loss=True)
    assert simulate(look, disk) == 3


def test_a_checkpoint_that_would_change_nothing_is_not_written() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0")
        await directory.checkpoint()
        before = disk.operations
        await directory.checkpoint()
        assert disk.operations == before

    simulate(main, disk)


def test_checkpoints_asked_for_at_once_are_written_once() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0")
        fill(directory, "a-0")
        await directory.logs["a-0"].flush()
        before = disk.operations
        for task in [runtime.spawn(directory.checkpoint(), "checkpoint") for _ in range(10)]:
            await task
        assert disk.operations - before <= 10

    simulate(main, disk)


def test_a_deleted_log_leaves_nothing_to_a_new_one_of_its_name() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0", "b-0")
        fill(directory, "a-0", producer_id=5, epoch=0)
        directory.logs["a-0"].trimmer.advance_start_offset(7)
        await directory.logs["a-0"].flush()
        await directory.checkpoint()
        await directory.delete("a-0")
        assert directory.names() == []
        assert [name for name in runtime.disk.list("") if name.endswith("-delete")]

    async def look(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0")
        log = directory.logs["a-0"]
        assert (log.start_offset, log.end_offset, len(log.producers)) == (0, 0, 0)
        assert not [name for name in runtime.disk.list("") if name.endswith("-delete")]
        fill(directory, "a-0", 2)
        assert log.end_offset == 4

    simulate(write, disk)
    disk.restart(power_loss=True)
    simulate(look, disk)


def test_the_files_of_a_deleted_log_are_removed_later() -> None:
    async def main(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0")
        fill(directory, "a-0")
        await directory.delete("a-0")
        await directory.delete("never-0")
        await runtime.sleep(200)
        assert not [name for name in runtime.disk.list("") if name.startswith("a-0")]

    simulate(main)


def test_a_removed_directory_starts_empty() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0")
        fill(directory, "a-0")
        await directory.logs["a-0"].flush()
        await directory.checkpoint()
        runtime.disk.rmtree("a-0")

    async def look(runtime: SimRuntime) -> None:
        log = (await loaded(runtime, "a-0")).logs["a-0"]
        assert (log.start_offset, log.end_offset) == (0, 0)

    simulate(write, disk)
    disk.restart(power_loss=False)
    simulate(look, disk)


def test_a_damaged_recovery_point_checkpoint_is_refused_with_its_name() -> None:
    async def main(runtime: SimRuntime) -> None:
        await runtime.disk.replace_bytes("recovery-point-offset-checkpoint", b"nonsense")
        with pytest.raises(CheckpointDamaged, match="recovery-point-offset-checkpoint"):
            await loaded(runtime)

    simulate(main)


def test_a_data_directory_may_lie_below_the_root_of_the_disk() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0", path="data")
        fill(directory, "a-0")
        await directory.close()
        assert "clean-shutdown-checkpoint" in runtime.disk.list("data")

    async def look(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0", path="data")
        assert directory.is_clean
        assert len(await contents(directory.logs["a-0"])) == 10

    simulate(write, disk)
    disk.restart(power_loss=True)
    simulate(look, disk)


def test_a_clean_log_without_saved_state_is_opened_from_its_file_names() -> None:
    """`Log.open(clean=True)` without a state only lists the directory."""
    from penstock.log import Log

    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        directory = await loaded(runtime, "a-0")
        fill(directory, "a-0", producer_id=5, epoch=0)
        await directory.close()

    async def look(runtime: SimRuntime) -> None:
        log = await Log.open(runtime, "a-0", CONFIG, clean=True, recovery_point=20, start_offset=0)
        assert (log.end_offset, log.durable_end) == (20, 20)
        assert len(await contents(log)) == 10
        assert log.writer.append_leader(batch(2, producer_id=5, epoch=0, sequence=20), 0, WALL_MS).first_offset == 20

    simulate(write, disk)
    disk.restart(power_loss=False)
    simulate(look, disk)
