"""Reading: where a slice begins and ends, sequential readers, cold files, and files that go away."""

from __future__ import annotations

import pytest

from log.helpers import WALL_MS, batch, check_indexes, contents, open_log, simulate, slice_bytes, stored
from penstock.log import IndexCache, Log, LogConfig, Slice
from penstock.log.reading import READ_MARKS_MAX
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.wire.errors import ErrorCode, KafkaError

SIZE = len(batch(2, size=100))
"""Of the batches below: two records each."""


async def filled(runtime: SimRuntime, count: int = 20, config: LogConfig | None = None, **options: object) -> Log:
    log = await open_log(runtime, config or LogConfig(index_interval_bytes=2 * SIZE), **options)
    for number in range(count):
        log.writer.append_leader(batch(2, size=100, label=str(number)), 0, WALL_MS)
    return log


def warm() -> SimDisk:
    return SimDisk(0, cold_read_probability=0.0)


def read_now(log: Log, offset: int, max_bytes: int, upto: int | None = None, *, min_one: bool = True) -> Slice:
    found = log.reader.try_read(offset, max_bytes, log.end_offset if upto is None else upto, min_one=min_one)
    assert found is not None
    return found


def test_a_slice_begins_with_the_batch_that_contains_the_offset() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        for offset in range(40):
            found = read_now(log, offset, SIZE)
            assert (found.position, found.size) == (offset // 2 * SIZE, SIZE)
            assert (found.first_offset, found.next_offset) == (offset // 2 * 2, offset // 2 * 2 + 2)

    simulate(main, warm())


def test_a_slice_ends_on_a_boundary_within_the_limit() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        for max_bytes in range(0, 12 * SIZE, 37):
            found = read_now(log, 4, max_bytes)
            assert found.size % SIZE == 0
            assert found.size <= max(max_bytes, SIZE)
            # The index knows a boundary every three batches.
            assert found.size >= max_bytes - 4 * SIZE

    simulate(main, warm())


def test_a_batch_larger_than_the_limit_is_sent_whole_or_not_at_all() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        assert read_now(log, 0, 10).size == SIZE
        assert read_now(log, 0, 10, min_one=False).size == 0
        assert read_now(log, 0, 0, min_one=False).size == 0

    simulate(main, warm())


def test_a_slice_never_reaches_the_limit_offset() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        for upto in range(41):
            data = await slice_bytes(log, 0, 1 << 20, upto)
            batches = stored(data)
            # A batch that only begins below the limit is left out.
            assert len(batches) == upto // 2
            assert all(one.next <= upto for one in batches)

    simulate(main)


def test_a_reader_at_the_end_gets_nothing() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        assert read_now(log, 40, 1 << 20).size == 0
        assert read_now(log, 30, 1 << 20, 20).size == 0

    simulate(main)


@pytest.mark.parametrize("offset", [-1, 9, 41])
def test_an_offset_outside_of_the_log_is_refused(offset: int) -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime)
        log.trimmer.advance_start_offset(10)
        with pytest.raises(KafkaError) as error:
            log.reader.try_read(offset, 100, log.end_offset)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(KafkaError) as error:
            await log.reader.read(offset, 100, log.end_offset)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    simulate(main)


def test_a_slice_stays_within_one_segment() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config=LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE))
        found = read_now(log, 2, 1 << 20)
        assert (found.size, found.next_offset) == (4 * SIZE, 10)
        found = read_now(log, 10, 1 << 20)
        assert (found.position, found.size) == (0, 5 * SIZE)

    simulate(main, warm())


class CountingReads:
    """Counts reads of the page cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from penstock.sim.mount import SimFile

        self.count = 0
        original = SimFile.try_pread_into

        def counted(file: SimFile, buffer: memoryview, position: int) -> int:
            self.count += 1
            return original(file, buffer, position)

        monkeypatch.setattr(SimFile, "try_pread_into", counted)


def test_a_reader_at_the_tail_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, 5)
        offset = read_now(log, 9, 1 << 20).next_offset
        reads = CountingReads(monkeypatch)
        for _ in range(50):
            log.writer.append_leader(batch(2, size=100), 0, WALL_MS)
            found = read_now(log, offset, 1 << 20)
            assert (found.first_offset, found.size) == (offset, SIZE)
            offset = found.next_offset
        assert reads.count == 0

    simulate(main, warm())


def test_a_reader_that_catches_up_reads_one_header_per_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, 100)
        reads = CountingReads(monkeypatch)
        offset = count = 0
        while offset < log.end_offset:
            offset = read_now(log, offset, 7 * SIZE).next_offset
            count += 1
        assert count > 10
        assert reads.count <= count

    simulate(main, warm())


def test_only_a_few_read_positions_are_remembered() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, 200)
        for offset in range(0, 400, 2):
            read_now(log, offset, SIZE)
        assert log.reader._marks is not None
        assert len(log.reader._marks) <= READ_MARKS_MAX

    simulate(main, warm())


def test_a_search_is_short_however_long_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, 2_000, LogConfig(index_interval_bytes=4096, segment_bytes=1 << 20))
        reads = CountingReads(monkeypatch)
        for offset in range(1, 4_000, 97):
            log.reader._marks = None
            read_now(log, offset, SIZE)
        assert reads.count <= 3 * len(range(1, 4_000, 97))

    simulate(main, warm())


def test_uncached_data_is_read_off_the_loop() -> None:
    disk = SimDisk(0, cold_read_probability=1.0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config=LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE))
        for segment in log.segments:
            segment.release()
        assert log.reader.try_read(5, 100, log.end_offset) is None
        found = await log.reader.read(5, 100, log.end_offset)
        assert (found.first_offset, found.size) == (4, SIZE)
        assert len(await contents(log)) == 20

    simulate(main, disk)


def test_indexes_are_dropped_and_loaded_again_as_memory_allows() -> None:
    async def main(runtime: SimRuntime) -> None:
        cache = IndexCache(bytes_max=1_200)
        config = LogConfig(segment_bytes=20 * SIZE, index_interval_bytes=SIZE)
        log = await filled(runtime, 100, config, cache=cache)
        assert cache.size_bytes <= 1_200
        assert [one.first for one in await contents(log)] == list(range(0, 200, 2))
        assert cache.size_bytes <= 1_200

    simulate(main)


def test_a_lost_or_damaged_index_is_rebuilt_when_it_is_needed() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, 30, LogConfig(segment_bytes=15 * SIZE, index_interval_bytes=SIZE))
        await log.flush()
        path = "topic-0/00000000000000000000.index"
        before = disk.content(path)
        # The position of the batch that is to be read: nothing tells that it is wrong before there is no batch.
        for spoil in (lambda: runtime.disk.unlink(path), lambda: disk.rot(path, 39)):
            log.segments[0].release()
            log.segments[0]._index = None
            log.reader._marks = None
            spoil()
            found = await log.reader.read(21, 100, log.end_offset)
            assert found.first_offset == 20
            log.segments[0].index.store()
            assert disk.content(path) == before

    simulate(main, disk)


@pytest.mark.parametrize("seed", range(8))
def test_a_rebuilt_index_is_valid_or_rebuilt_again_after_a_power_loss(seed: int) -> None:
    disk = SimDisk(seed)
    config = LogConfig(segment_bytes=2 * SIZE, index_interval_bytes=4_096)

    async def write(runtime: SimRuntime) -> int:
        log = await filled(runtime, 6, config)
        await log.flush()
        for suffix in ("index", "timeindex"):
            runtime.disk.unlink(f"topic-0/00000000000000000000.{suffix}")
        await runtime.disk.sync_dir("topic-0")
        return log.end_offset

    async def look(runtime: SimRuntime, end: int) -> None:
        log = await open_log(runtime, config, recovery_point=end)
        await check_indexes(log, await contents(log))
        entries = list(log.segments[0].index.time_entries())
        assert entries, "its batches have timestamps"

    end = simulate(write, disk)
    disk.restart(power_loss=False)
    for _ in range(3):
        simulate(lambda runtime: look(runtime, end), disk)
        disk.restart(power_loss=True)


def test_a_removed_segment_stays_readable_while_it_is_retained() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, 20, LogConfig(segment_bytes=5 * SIZE, retention_bytes=0, file_delete_delay_ms=100))
        found = await log.reader.read(2, 1 << 20, log.end_offset)
        found.file.retain()
        expected = await found.file.pread(found.size, found.position)
        assert await log.trimmer.retain(WALL_MS, log.end_offset) == 4
        assert runtime.disk.exists("topic-0/00000000000000000000.log.deleted")
        await runtime.sleep(1_000)
        assert not runtime.disk.exists("topic-0/00000000000000000000.log.deleted")
        assert await found.file.pread(found.size, found.position) == expected
        found.file.release()

    simulate(main)


def test_a_read_interrupted_by_a_truncation_searches_again() -> None:
    disk = SimDisk(0, cold_read_probability=1.0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, 20, LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE))
        for segment in log.segments:
            segment.release()

        async def read(offset: int) -> int:
            try:
                return (await log.reader.read(offset, 100, 40)).first_offset
            except KafkaError as error:
                return -error.code

        late, early = runtime.spawn(read(35), "read"), runtime.spawn(read(3), "read")
        await runtime.sleep(0)
        await log.trimmer.truncate_to(20)
        assert await late == -ErrorCode.OFFSET_OUT_OF_RANGE
        assert await early == 2

    simulate(main, disk)


def test_damage_in_a_segment_is_reported_and_not_served() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, 30, LogConfig(segment_bytes=30 * SIZE, index_interval_bytes=10 * SIZE))
        # The magic of the sixth batch.
        inode = disk.namespace.file("topic-0/00000000000000000000.log")
        inode.data[5 * SIZE + 16] = 77
        with pytest.raises(KafkaError) as error:
            await log.reader.read(13, 100, log.end_offset)
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "penstock log verify" in error.value.message
        assert (await log.reader.read(3, 100, log.end_offset)).first_offset == 2

    simulate(main, disk)
