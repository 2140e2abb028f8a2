"""Starts after an unclean stop: torn tails are cut, rot is told, and no more is read than must be."""

from __future__ import annotations

import pytest

from log.helpers import WALL_MS, batch, check_indexes, contents, open_log, simulate, stamped
from penstock.log import CorruptLog, Cut, Log, LogConfig, LogDirectory, Progress, Stray, strays_in
from penstock.log.checkpoints import read_offsets
from penstock.log.opening_many import CONCURRENT_LOGS
from penstock.runtime import Runtime
from penstock.sim.disk import SimDisk
from penstock.sim.mount import SimFile
from penstock.sim.runtime import SimRuntime

SIZE = len(batch(2, size=100))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE)
FIRST, SECOND, THIRD = (f"topic-0/{base:020d}.log" for base in (0, 10, 20))


def written(count: int = 13) -> SimDisk:
    """Batches of two records in segments of five, written by a process that was then killed."""
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        for number in range(count):
            records = batch(2, size=100, timestamp=WALL_MS + number, producer_id=7, epoch=0, sequence=2 * number)
            log.writer.append_leader(records, number // 5, WALL_MS)

    simulate(write, disk)
    disk.restart(power_loss=False)
    return disk


def recovered(disk: SimDisk, *, recovery_point: int = 0) -> tuple[int, list[int], tuple[str, ...]]:
    """(end offset, first offsets of the batches, damage) after a recovery; a second recovery must find the same."""

    async def look(runtime: SimRuntime) -> tuple[int, list[int], tuple[str, ...]]:
        log = await open_log(runtime, CONFIG, recovery_point=recovery_point)
        batches = await contents(log)
        await check_indexes(log, batches)
        return log.end_offset, [one.first for one in batches], log.damage

    first = simulate(look, disk)
    disk.restart(power_loss=False)
    assert simulate(look, disk) == first
    return first


def damage(disk: SimDisk, path: str, position: int, byte: int | None = None) -> None:
    inode = disk.namespace.file(path)
    for data in (inode.data, inode.durable):
        if position < len(data):
            data[position] = byte if byte is not None else data[position] ^ 0xFF


def test_all_valid_batches_are_kept() -> None:
    end, firsts, problems = recovered(written())
    assert (end, firsts, problems) == (26, list(range(0, 26, 2)), ())


@pytest.mark.parametrize("cut", [1, 30, 61, 100, SIZE - 1])
def test_a_torn_tail_is_truncated_after_the_last_valid_batch(cut: int) -> None:
    disk = written()
    disk.namespace.file(THIRD).truncate(2 * SIZE + cut)
    end, firsts, problems = recovered(disk)
    assert (end, firsts[-1], problems) == (24, 22, ())
    assert len(disk.content(THIRD)) == 2 * SIZE


def test_zeros_at_the_end_are_cut() -> None:
    disk = written()
    disk.namespace.file(THIRD).data.extend(bytes(5_000))
    assert recovered(disk)[0] == 26
    assert len(disk.content(THIRD)) == 3 * SIZE


def test_valid_batches_after_a_torn_one_are_cut_off() -> None:
    disk = written()
    damage(disk, SECOND, SIZE + 70)
    end, firsts, _ = recovered(disk)
    assert (end, firsts) == (12, list(range(0, 12, 2)))
    assert not disk.namespace.find(THIRD)


def cuts(disk: SimDisk) -> tuple[Cut, ...]:
    async def look(runtime: SimRuntime) -> tuple[Cut, ...]:
        return (await open_log(runtime, CONFIG)).cuts

    found = simulate(look, disk)
    disk.restart(power_loss=False)
    assert simulate(look, disk) == (), "the next recovery has nothing to cut"
    return found


def test_batches_cut_off_after_a_flipped_bit_are_set_aside_and_reported_with_their_offsets() -> None:
    disk = written()
    damage(disk, THIRD, 70)
    before = disk.content(THIRD)
    (cut,) = cuts(disk)
    assert (cut.first_offset, cut.last_offset, cut.size_bytes) == (20, 25, 3 * SIZE)
    assert cut.kept.startswith("topic-0.")
    assert disk.content(f"{cut.kept}/{20:020d}.log") == before
    (stray,) = simulate(_strays, disk)
    assert (stray.name, stray.note is not None and stray.note.is_part) == ("topic-0", True)


async def _strays(runtime: SimRuntime) -> list[Stray]:
    return strays_in(runtime.disk)


def test_segments_after_a_flipped_bit_are_set_aside_completely() -> None:
    disk = written()
    damage(disk, SECOND, SIZE + 70)
    end, third = disk.content(SECOND)[SIZE:], disk.content(THIRD)
    first, second = cuts(disk)
    assert (first.first_offset, first.last_offset) == (12, 19)
    assert disk.content(f"{first.kept}/{12:020d}.log") == end
    assert (second.first_offset, second.last_offset) == (12, 25)
    assert disk.content(f"{second.kept}/{20:020d}.log") == third


def test_a_corrupt_last_batch_of_full_length_is_set_aside() -> None:
    """A killed process does not leave this, only a power failure or bit rot."""
    disk = written()
    damage(disk, THIRD, 2 * SIZE + 70)
    (cut,) = cuts(disk)
    assert (cut.first_offset, cut.size_bytes) == (24, SIZE)


@pytest.mark.parametrize("cut", [1, 61, SIZE - 1])
def test_a_clearly_torn_write_is_not_set_aside(cut: int) -> None:
    disk = written()
    disk.namespace.file(THIRD).truncate(2 * SIZE + cut)
    assert cuts(disk) == ()


def test_valid_batches_after_a_large_damaged_one_are_found() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> int:
        log = await open_log(runtime, LogConfig(max_message_bytes=1 << 24))
        for number in range(3):
            log.writer.append_leader(batch(1, size=1_500_000, timestamp=WALL_MS + number), 0, WALL_MS)
        return log.end_offset

    assert simulate(write, disk) == 3
    disk.restart(power_loss=False)
    damage(disk, FIRST, 1_000)
    (cut,) = cuts(disk)
    assert (cut.first_offset, cut.last_offset) == (0, 2)


def test_a_log_is_not_truncated_if_the_disk_has_no_room_for_the_cut_off_part() -> None:
    disk = written()
    damage(disk, THIRD, 70)
    before = disk.content(THIRD)
    disk.fill(SIZE)

    async def look(runtime: SimRuntime) -> None:
        with pytest.raises(CorruptLog, match="no room"):
            await open_log(runtime, CONFIG)

    simulate(look, disk)
    assert disk.content(THIRD) == before


@pytest.mark.parametrize(
    ("path", "position", "cut_whole"),
    [
        (THIRD, 2 * SIZE + 70, False),
        (THIRD, 2 * SIZE + 8, False),
        (THIRD, SIZE + 70, True),
        (THIRD, SIZE + 8, True),
        (THIRD, 16, True),
        (SECOND, 4 * SIZE + 70, True),
    ],
    ids=["last", "length of the last", "last but one", "length of the last but one", "first", "of a closed segment"],
)
def test_valid_batches_after_a_corrupt_one_are_reported(path: str, position: int, cut_whole: bool) -> None:
    """A torn write is usually the last one; the quorum must distinguish the cases, so recovery reports it."""
    disk = written()
    damage(disk, path, position)

    async def look(runtime: SimRuntime) -> bool:
        return (await open_log(runtime, CONFIG)).cut_whole

    assert simulate(look, disk) is cut_whole


@pytest.mark.parametrize(
    ("position", "byte"),
    [(7, 99), (8, 0x7F), (8, 0xFF), (16, 1), (26, 9), (23, 0xFF)],
    ids=["offset", "length", "negative length", "magic", "delta", "negative delta"],
)
def test_a_batch_with_unexpected_offsets_ends_the_log(position: int, byte: int) -> None:
    disk = written()
    damage(disk, SECOND, 2 * SIZE + position, byte)
    assert recovered(disk)[0] == 14


@pytest.mark.parametrize("byte", [0, 1, 2, 3])
def test_an_offset_that_no_index_can_hold_is_damage(byte: int) -> None:
    """The checksum does not cover the base offset, and the active segment has no end that it must be below."""
    disk = written()
    damage(disk, THIRD, SIZE + byte, 0x40)
    assert recovered(disk)[0] == 22
    disk = written()
    damage(disk, THIRD, SIZE + byte, 0x40)
    with pytest.raises(CorruptLog, match=r"synced up to offset 26"):
        recovered(disk, recovery_point=26)


def test_a_batch_of_an_older_epoch_cannot_follow() -> None:
    """If a truncated tail reappears after newer records, it has an older epoch."""
    disk = written()
    damage(disk, THIRD, 15, 0)
    assert recovered(disk)[0] == 20


def test_a_missing_segment_ends_the_log() -> None:
    disk = written()
    disk.namespace.remove(SECOND)
    end, firsts, problems = recovered(disk)
    assert (end, firsts, problems) == (10, [0, 2, 4, 6, 8], ())


# ---- below the recovery point


def test_bit_rot_below_the_recovery_point_is_reported_and_not_truncated() -> None:
    disk = written()
    damage(disk, SECOND, SIZE + 70)
    end, firsts, problems = recovered(disk, recovery_point=26)
    assert end == 26
    assert firsts == list(range(0, 26, 2))
    assert problems == ()  # the segment lies before the last snapshot: nobody looked

    disk = written()
    damage(disk, THIRD, SIZE + 70)
    end, _, problems = recovered(disk, recovery_point=26)
    assert end == 26
    assert problems == (f"{THIRD}: the batch of offsets 22..23 is damaged",)


def test_a_torn_tail_is_truncated_even_after_earlier_bit_rot() -> None:
    disk = written()
    damage(disk, THIRD, 70)
    disk.namespace.file(THIRD).truncate(2 * SIZE + 50)
    end, _, problems = recovered(disk, recovery_point=24)
    assert end == 24
    assert len(problems) == 1


def test_damage_that_hides_the_end_of_a_synced_log_is_refused() -> None:
    disk = written()
    damage(disk, THIRD, SIZE + 16, 77)
    before = disk.content(THIRD)
    with pytest.raises(CorruptLog, match="penstock log accept-loss"):
        recovered(disk, recovery_point=26)
    assert disk.content(THIRD) == before


def test_a_missing_synced_segment_is_reported() -> None:
    disk = written()
    for name in list(disk.namespace.directory("topic-0").entries):
        if name.endswith(".snapshot"):
            disk.namespace.remove(f"topic-0/{name}")
    disk.namespace.remove(SECOND)

    async def look(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG, recovery_point=26)
        assert log.end_offset == 26
        assert log.damage == ("topic-0: the file with offsets 10..19 is missing",)
        assert (await log.reader.read(12, 100, 26)).first_offset == 20

    simulate(look, disk)


def test_a_log_that_ends_before_its_recovery_point_is_reported() -> None:
    disk = written()
    disk.namespace.file(THIRD).truncate(SIZE)
    end, _, problems = recovered(disk, recovery_point=26)
    assert end == 22
    assert problems == ("topic-0 ends at offset 22, but was synced up to 26",)


# ---- how much is read


class Reads:
    """Counts the bytes of the log that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        pread, try_pread_into = SimFile.pread, SimFile.try_pread_into

        def counted(file: SimFile, size: int, position: int):  # type: ignore[no-untyped-def]
            if file.path.endswith(".log"):
                self.bytes += min(size, file.size() - position)
            return pread(file, size, position)

        def counted_if_cached(file: SimFile, buffer: memoryview, position: int) -> int:
            got = try_pread_into(file, buffer, position)
            if file.path.endswith(".log") and got == len(buffer):
                self.bytes += got
            return got

        monkeypatch.setattr(SimFile, "pread", counted)
        monkeypatch.setattr(SimFile, "try_pread_into", counted_if_cached)


def test_closed_segments_below_the_recovery_point_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = written()
    reads = Reads(monkeypatch)

    async def look(runtime: SimRuntime) -> int:
        return (await open_log(runtime, CONFIG, recovery_point=20)).end_offset

    assert simulate(look, disk) == 26
    # The tail of the last closed one is compared with its index.
    assert reads.bytes <= (3 + 2) * SIZE


async def directory_with(runtime: Runtime, names: list[str], count: int = 8) -> LogDirectory:
    directory = LogDirectory(runtime)
    await directory.load()
    for name in names:
        log = await directory.open(name, CONFIG)
        for number in range(count):
            log.writer.append_leader(batch(2, size=100, producer_id=1, epoch=0, sequence=2 * number), 0, WALL_MS)
    return directory


def test_only_what_was_written_since_the_last_clean_stop_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(0)
    reads = Reads(monkeypatch)

    async def write(runtime: SimRuntime) -> None:
        await (await directory_with(runtime, ["a-0", "b-0", "c-0"])).close()

    async def write_a_little(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        for name in ("a-0", "b-0", "c-0"):
            await directory.open(name, CONFIG)
        directory.logs["b-0"].writer.append_leader(batch(1), 0, WALL_MS)

    async def look(runtime: SimRuntime) -> list[int]:
        directory = LogDirectory(runtime)
        await directory.load()
        assert not directory.is_clean
        reads.bytes = 0
        ends = [(await directory.open(name, CONFIG)).end_offset for name in ("a-0", "b-0", "c-0")]
        assert reads.bytes == len(batch(1))
        for log in directory.logs.values():
            await check_indexes(log, await contents(log))
            assert log.producers.get(1) is not None
        return ends

    simulate(write, disk)
    disk.restart(power_loss=False)
    simulate(write_a_little, disk)
    disk.restart(power_loss=False)
    assert simulate(look, disk) == [16, 17, 16]


def test_a_scan_yields_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances while batches are checked."""
    monkeypatch.setattr("penstock.log.recovery_check.BATCHES_PER_VISIT", 10)
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        for _ in range(1_000):
            log.writer.append_leader(batch(1), 0, WALL_MS)

    async def look(runtime: SimRuntime) -> tuple[int, float]:
        clock, given, longest = [0.0], [0.0], [0.0]
        turns = [0]
        sleep = runtime.sleep

        def now_ms() -> float:
            clock[0] += 0.5
            return clock[0]

        async def give_back(delay_ms: float) -> None:
            turns[0] += 1
            longest[0] = max(longest[0], clock[0] - given[0])
            given[0] = clock[0]
            await sleep(delay_ms)

        monkeypatch.setattr(runtime, "now_ms", now_ms)
        monkeypatch.setattr(runtime, "sleep", give_back)
        await open_log(runtime, slice_ms=2.0)
        return turns[0], longest[0]

    simulate(write, disk)
    disk.restart(power_loss=False)
    turns, longest_ms = simulate(look, disk)
    assert turns > 15
    assert longest_ms <= 4.0


# ---- many logs


def test_many_logs_are_opened_a_few_at_a_time_and_served_as_they_come() -> None:
    disk = SimDisk(0)
    names = [f"t-{number}" for number in range(20)]

    async def write(runtime: SimRuntime) -> None:
        await directory_with(runtime, names)

    async def look(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        assert directory.names() == sorted(names)
        opened: list[Log] = []
        progress: list[Progress] = []
        served: list[int] = []

        def serve(log: Log) -> None:
            opened.append(log)
            log.writer.append_leader(batch(1), 0, WALL_MS)
            served.append(len(opened))

        done = await directory.open_all(dict.fromkeys(names, CONFIG), serve, on_progress=progress.append)
        assert done == Progress(20, 0, 20)
        assert progress[-1] == done
        assert [one.opened for one in progress] == list(range(1, 21))
        assert sorted(log.name for log in opened) == sorted(names)
        assert all(log.end_offset == 17 for log in opened)

    simulate(write, disk)
    disk.restart(power_loss=False)
    simulate(look, disk)


def test_a_damaged_log_does_not_keep_the_others_from_opening() -> None:
    disk = SimDisk(0)
    names = [f"t-{number}" for number in range(2 * CONCURRENT_LOGS)]

    async def write(runtime: SimRuntime) -> None:
        directory = await directory_with(runtime, names)
        for log in directory.logs.values():
            await log.flush()
        await directory.checkpoint()

    async def look(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        failed: list[str] = []
        done = await directory.open_all(
            dict.fromkeys(names, CONFIG),
            lambda log: None,
            on_failure=lambda name, error: failed.append(f"{name} {type(error).__name__}"),
        )
        assert failed == ["t-3 CorruptLog"]
        assert done == Progress(len(names) - 1, 1, len(names))
        await directory.close()

    async def again(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        assert directory.is_clean
        await directory.open("t-1", CONFIG)
        with pytest.raises(CorruptLog):
            await directory.open("t-3", CONFIG)

    simulate(write, disk)
    disk.restart(power_loss=True)
    damage(disk, "t-3/00000000000000000010.log", SIZE + 16, 77)
    simulate(look, disk)
    disk.restart(power_loss=False)
    simulate(again, disk)


@pytest.mark.parametrize("position", [SIZE + 70, SIZE + 16], ids=["rot", "damage that hides the end"])
def test_a_replicated_log_is_truncated_at_damage_even_below_its_recovery_point(position: int) -> None:
    """The rest is then copied again. If a crash comes first, the next start trusts nothing unchecked."""
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        directory = await directory_with(runtime, ["t-0"])
        assert directory.logs["t-0"].end_offset > 14
        await directory.logs["t-0"].flush()
        await directory.checkpoint()

    async def open_again(runtime: SimRuntime) -> tuple[Log, int]:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("t-0", CONFIG, replicated=True)
        return log, read_offsets(runtime.disk, "recovery-point-offset-checkpoint").get("t-0", 0)

    async def look(runtime: SimRuntime) -> None:
        log, recovery_point = await open_again(runtime)
        assert log.end_offset == 12
        assert recovery_point <= 12
        assert log.damage[-1] == "t-0 was truncated at offset 12; the rest will be copied from its leader"
        batches = await contents(log)
        assert [one.first for one in batches] == [0, 2, 4, 6, 8, 10]
        await check_indexes(log, batches)
        log.writer.append_follower(memoryview(bytearray(stamped(batch(2, size=100), 12, 3))))

    async def look_again(runtime: SimRuntime) -> None:
        log, _ = await open_again(runtime)
        assert log.end_offset == 14
        assert log.damage == ()

    simulate(write, disk)
    disk.restart(power_loss=True)
    damage(disk, "t-0/00000000000000000010.log", position, 77)
    simulate(look, disk)
    disk.restart(power_loss=False)
    simulate(look_again, disk)
