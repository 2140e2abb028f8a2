"""A compacted log is used like any other: read, searched, truncated, copied, verified, also during a compaction."""

from __future__ import annotations

from contextlib import suppress

import pytest

from log.compaction_helpers import (
    CONFIG,
    MAP_BYTES,
    append,
    batches_of,
    closed,
    compact,
    keyed,
    living,
    newest,
    on_a_log,
    records,
)
from log.helpers import batch, open_log, simulate, slice_bytes, stored
from penstock.log import Log, LogConfig, LogDirectory, TimeSearch
from penstock.log.compaction import Compaction, Interrupted, cleanable
from penstock.log.compaction_job import CorruptBatch
from penstock.log.tools import BatchDump, Problem, Severity, Verdict, dump, verify
from penstock.sim.disk import SimDisk, SimulatedCrash
from penstock.sim.runtime import SimRuntime
from penstock.wire.records import seal

# ---- reading and the rest of the log


def test_a_read_at_any_offset_finds_the_next_batch() -> None:
    async def check(log: Log) -> None:
        for number in range(40):
            append(log, (b"%d" % (number % 7), b"x" * 30))
        await closed(log)
        append(log, (b"z", b"1"))
        await compact(log)
        left = await batches_of(log)
        for offset in range(log.end_offset):
            expected = next(one for one in left if one.next > offset)
            for max_bytes in (1, 200, 1 << 20):
                assert stored(await slice_bytes(log, offset, max_bytes))[0] == expected
            for upto in range(offset + 1, log.end_offset + 1):
                inside = stored(await slice_bytes(log, offset, 1 << 20, upto))
                assert all(one.next <= upto for one in inside)

    on_a_log(check)


def test_times_are_found_in_what_is_left() -> None:
    async def check(log: Log) -> None:
        begun_ms = log.runtime.wall_ms()
        for number in range(30):
            await log.runtime.sleep(10)
            append(log, (b"%d" % (number % 4), b"x" * 30))
        await closed(log)
        await compact(log)
        left = await records(log)
        for timestamp in range(begun_ms, log.runtime.wall_ms(), 5):
            found = await TimeSearch(log).offset_for_timestamp(timestamp, log.end_offset)
            expected = [record for record in left if record.timestamp >= timestamp]
            assert (found.offset if found else None) == (expected[0].offset if expected else None)
        largest = await TimeSearch(log).max_timestamp_offset()
        assert largest is not None
        assert (largest.timestamp, largest.offset) == (left[-1].timestamp, left[-1].offset)

    on_a_log(check)


def test_the_largest_timestamp_ignores_compacted_records() -> None:
    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        late = keyed([(b"a", b"1")], timestamp=wall_ms + 500, producer_id=1, epoch=0, sequence=0)
        log.writer.append_leader(late, 0, wall_ms)
        log.writer.append_leader(keyed([(b"a", b"2")], timestamp=wall_ms), 0, wall_ms)
        await closed(log)
        await compact(log)
        assert len(await batches_of(log)) == 2, "the producer's header is kept"
        largest = await TimeSearch(log).max_timestamp_offset()
        assert largest is not None
        assert (largest.timestamp, largest.offset) == (wall_ms, 1)

    on_a_log(check)


def test_a_truncation_into_a_gap_ends_the_log_where_the_gap_begins() -> None:
    async def fill(runtime: SimRuntime) -> int:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", CONFIG)
        append(log, (b"a", b"1"))
        for _ in range(8):
            append(log, (b"b", b"x" * 10))
        append(log, (b"c", b"1"))
        await closed(log)
        await compact(log)
        assert [record.offset for record in await records(log)] == [0, 8, 9]
        await log.trimmer.truncate_to(5)
        assert log.end_offset == 1
        append(log, (b"d", b"1"))
        await log.flush()
        await directory.checkpoint()
        return log.end_offset

    async def look(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", CONFIG)
        assert log.damage == ()
        assert [(record.key, record.offset) for record in await records(log)] == [(b"a", 0), (b"d", 1)]

    disk = SimDisk(2)
    assert simulate(fill, disk) == 2
    disk.restart(power_loss=True)
    simulate(look, disk)


def test_a_log_that_was_compacted_once_is_recovered_under_any_policy() -> None:
    """Gaps above the recovery point are not a torn tail, whatever the topic's current policy."""

    async def fill(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        for number in range(40):
            append(log, (b"%d" % (number % 5), b"x" * 40))
        await closed(log)
        await compact(log)
        append(log, (b"z", b"1"))

    async def look(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(segment_bytes=1_000))
        assert log.end_offset == 41
        assert log.damage == ()
        assert len(await records(log)) == 6

    disk = SimDisk(3)
    simulate(fill, disk)
    disk.restart(power_loss=False)
    simulate(look, disk)


def test_a_follower_copies_a_compacted_log_as_it_is() -> None:
    async def main(runtime: SimRuntime) -> None:
        leader = await open_log(runtime, CONFIG)
        for number in range(60):
            append(leader, (b"%d" % (number % 9), b"x" * 30), producer_id=4, epoch=0, sequence=number)
        await closed(leader)
        await compact(leader)
        follower = await Log.open(runtime, "copy-0", LogConfig(), clean=False, recovery_point=0, start_offset=0)
        for one in await batches_of(leader):
            follower.writer.append_follower(memoryview(bytearray(one.data)))
        assert await batches_of(follower) == await batches_of(leader)
        assert follower.end_offset == leader.end_offset
        entry = follower.producers.get(4)
        assert entry is not None
        assert entry.last_sequence == 59

    simulate(main)


def test_verify_finds_a_compacted_log_sound() -> None:
    async def main(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", CONFIG)
        for number in range(80):
            wall_ms = runtime.wall_ms()
            pairs = [(b"%d" % (number % 9), b"x" * 30), (b"t", None)]
            epoch = number // 3
            log.writer.append_leader(
                keyed(pairs, timestamp=wall_ms, producer_id=1, epoch=0, sequence=2 * number), epoch, wall_ms
            )
        await closed(log)
        await compact(log)
        await directory.close()
        *problems, verdict = verify(runtime.disk, "topic-0", records=True)
        assert problems == []
        assert isinstance(verdict, Verdict)
        assert verdict.gaps > 5
        assert verdict.end_offset == 160

    simulate(main)


def test_verify_still_finds_a_missing_segment() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        for number in range(60):
            append(log, (b"%d" % number, b"x" * 30))
        await closed(log)
        await compact(log)
        runtime.disk.unlink(log.segments[1].path(".log"))
        problems = [found for found in verify(runtime.disk, "topic-0") if isinstance(found, Problem)]
        assert any("but the one before it ends at" in problem.text for problem in problems)

    simulate(main)


# ---- while others use the log


def test_readers_of_a_replaced_segment_can_continue() -> None:
    async def check(log: Log) -> None:
        for number in range(30):
            append(log, (b"%d" % (number % 2), b"x" * 50))
        await closed(log)
        before = await slice_bytes(log, 0, 1 << 20)
        held = await log.reader.read(0, 1 << 20, log.end_offset)
        held.file.retain()
        await compact(log)
        await log.runtime.sleep(1_000)
        assert await held.file.pread(held.size, held.position) == before, "beyond file.delete.delay.ms"
        held.file.release()
        assert len(await records(log)) == 2

    on_a_log(check)


def test_reads_and_appends_continue_while_segments_are_replaced() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        for number in range(60):
            append(log, (b"%d" % (number % 5), b"%d" % number))
        await closed(log)
        running = runtime.spawn(compact(log), "compaction")
        appended = reads = 0
        while not running.done():
            append(log, (b"%d" % (appended % 5), b"later"))
            appended += 1
            table = newest(await records(log))
            assert sorted(table) == [b"0", b"1", b"2", b"3", b"4"]
            reads += 1
            await runtime.sleep(1)
        await running
        assert reads > 10
        assert log.end_offset == 60 + appended
        assert len(await records(log)) == 5 + appended

    for seed in range(5):
        simulate(main, seed=seed)


def test_retention_does_not_run_during_a_compaction() -> None:
    config = LogConfig(cleanup_policy="compact,delete", segment_bytes=1_000, retention_bytes=0, file_delete_delay_ms=5)

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, config)
        for number in range(60):
            append(log, (b"%d" % (number % 5), b"%d" % number))
        await closed(log)
        running = runtime.spawn(compact(log), "compaction")
        await runtime.sleep(1)
        removed = 0
        while not running.done():
            removed += await log.trimmer.retain(runtime.wall_ms(), log.end_offset)
            await runtime.sleep(1)
        assert removed == 0
        assert await log.trimmer.retain(runtime.wall_ms(), log.end_offset) > 0
        assert log.start_offset == 60

    simulate(main)


@pytest.mark.parametrize("how", ["delete", "truncate", "close", "stop"])
@pytest.mark.parametrize("after_ms", [0, 5, 20, 40, 60, 80, 100, 120, 140])
def test_a_compaction_stops_when_its_log_is_closed_deleted_or_truncated(how: str, after_ms: int) -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        for number in range(60):
            append(log, (b"%d" % (number % 5), b"%d" % number))
        await closed(log)
        extent = await cleanable(log, log.end_offset, runtime.wall_ms())
        compaction = Compaction(log, extent, map_bytes=MAP_BYTES)

        async def work() -> bool:
            try:
                await compaction.run()
            except Interrupted:
                return False
            return True

        running = runtime.spawn(work(), "compaction")
        await runtime.sleep(after_ms)
        if how == "delete":
            await log.delete()
        elif how == "truncate":
            await log.trimmer.truncate_to(10)
        elif how == "close":
            compaction.stop()
            await running
            await log.close()
        else:
            compaction.stop()
        await running
        assert not log.is_compacting
        left = runtime.disk.list("topic-0")
        assert not [name for name in left if name.endswith((".cleaned", ".swap"))]
        if how != "delete":
            log = await open_log(runtime, CONFIG)
            end = log.end_offset
            assert end == 60 if how != "truncate" else end <= 10
            assert log.damage == ()
            if how != "truncate":
                assert newest(await records(log)) == {b"%d" % (n % 5): b"%d" % n for n in range(55, 60)}

    simulate(main)


# ---- damage


@pytest.mark.parametrize("position", [70, 106, 8, 16], ids=["payload", "offset", "length", "magic"])
def test_a_damaged_batch_stops_compaction_and_nothing_is_lost(position: int) -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        for number in range(30):
            append(log, (b"%d" % (number % 5), b"%02d" % number * 13))
        assert log.size_bytes == 30 * 99
        await closed(log)
        path = log.segments[1].path(".log")
        log.segments[1].file.pwrite(b"\xff", position)
        with pytest.raises(CorruptBatch, match=path):
            await compact(log)
        assert log.clean_end == 0
        assert not [name for name in runtime.disk.list("topic-0") if name.endswith((".cleaned", ".swap"))]
        assert len(log.segments) == 4

    simulate(main)


def test_malformed_records_stop_compaction() -> None:
    """Happens only if records were not validated when they were appended."""

    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        lying = bytearray(batch(2, timestamp=wall_ms))
        lying[61] = 0x7E
        seal(lying)
        log.writer.append_leader(memoryview(lying), 0, wall_ms)
        await closed(log)
        log.config = CONFIG
        with pytest.raises(CorruptBatch, match=r"offsets 0\.\.1"):
            await compact(log)

    on_a_log(check, LogConfig(segment_bytes=1_000, validates_records=False))


def test_a_full_disk_ends_a_compaction_and_not_the_broker() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        for number in range(60):
            append(log, (b"%d" % (number % 30), b"%d" % number * 10))
        await closed(log)
        runtime.disk.disk.fill()
        with pytest.raises(OSError, match="no space"):
            await compact(log)
        assert not [name for name in runtime.disk.list("topic-0") if name.endswith(".cleaned")]
        runtime.disk.disk.capacity_bytes = 1 << 30
        await compact(log)
        assert len(living(newest(await records(log)))) == 30

    simulate(main)


# ---- what the last clean stop said


def test_compaction_removes_a_log_from_the_clean_shutdown_checkpoint() -> None:
    """Recovery would trust the old end of the log, which is the middle of a batch in the compacted file."""
    config = LogConfig(cleanup_policy="compact", segment_bytes=100_000, file_delete_delay_ms=5)

    def add(log: Log, key: bytes, size: int) -> None:
        log.writer.append_leader(keyed([(key, b"x" * size)], timestamp=-1), 0, log.runtime.wall_ms())

    async def stop(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", config)
        add(log, b"a", 70)
        await directory.close()

    async def go_on(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", config)
        for number in range(6):
            add(log, b"%d" % number, 10 * number)
        add(log, b"a", 5)
        log.writer.roll()
        await log.flush()
        await compact(log)
        # The process is killed before the next checkpoint.

    async def look(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", config)
        assert log.damage == ()
        assert log.end_offset == 8
        assert [record.key for record in await records(log)] == [b"0", b"1", b"2", b"3", b"4", b"5", b"a"]

    disk = SimDisk(9)
    for life in (stop, go_on, look):
        simulate(life, disk)
        disk.restart(power_loss=False)


# ---- offline


@pytest.mark.parametrize("operation", range(1, 60))
def test_verify_explains_an_unfinished_compaction(operation: int) -> None:
    """After a kill at any point the unfinished compaction is reported as a note, and no record as missing."""

    async def work(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        for number in range(40):
            append(log, (b"%d" % (number % 5), b"%d" % number * 5))
        await closed(log)
        await compact(log)
        for number in range(5):
            append(log, (b"%d" % number, b"more"))
        await closed(log)
        await runtime.sleep(100)
        runtime.disk.disk.crash_after(operation)
        await compact(log)
        runtime.disk.disk.cancel_crash()

    async def look(runtime: SimRuntime) -> None:
        found = list(verify(runtime.disk, "topic-0"))
        errors = [problem for problem in found if isinstance(problem, Problem) and problem.severity is Severity.ERROR]
        assert errors == []
        verdict = found[-1]
        assert isinstance(verdict, Verdict)
        assert verdict.end_offset == 45
        pending = [name for name in runtime.disk.list("topic-0") if name.endswith((".cleaned", ".swap"))]
        notes = [problem for problem in found if isinstance(problem, Problem) and "compaction" in problem.text]
        assert len(notes) == len(pending)
        dumped = [one for one in dump(runtime.disk, "topic-0", records=True) if isinstance(one, BatchDump)]
        table = {record.key: record.value for one in dumped for record in one.records or ()}
        assert table == {b"%d" % number: b"more" for number in range(5)}

    disk = SimDisk(operation)
    with suppress(SimulatedCrash):
        simulate(work, disk)
    disk.restart(power_loss=False)
    simulate(look, disk)
