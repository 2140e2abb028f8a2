"""Retention by time and size, DeleteRecords, and how files go."""

from __future__ import annotations

import pytest

from log.helpers import WALL_MS, batch, contents, open_log, simulate
from penstock.log import Log, LogConfig
from penstock.log.tools import Problem, verify
from penstock.runtime import Runtime
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.wire.errors import ErrorCode, KafkaError

SIZE = len(batch(1, size=100))
HOUR_MS = 3_600_000


async def filled(runtime: Runtime, config: LogConfig, count: int = 10, *, step_ms: int = HOUR_MS) -> Log:
    """Segments of two batches; batch n is `step_ms * n` old at `WALL_MS`, the last one new."""
    log = await open_log(runtime, config)
    for number in range(count):
        timestamp = WALL_MS - (count - 1 - number) * step_ms
        log.writer.append_leader(batch(1, size=100, timestamp=timestamp), 0, WALL_MS)
    return log


def config(**options: object) -> LogConfig:
    return LogConfig(**({"segment_bytes": 2 * SIZE, "retention_ms": -1, "file_delete_delay_ms": 1_000} | options))  # type: ignore[arg-type]


def test_segments_whose_newest_record_is_too_old_are_removed() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_ms=6 * HOUR_MS))
        # The segment with the batches of 7 and 6 hours ago is kept: exactly 6 hours is not too old.
        assert await log.trimmer.retain(WALL_MS, 10) == 1
        assert log.start_offset == 2
        assert await log.trimmer.retain(WALL_MS + 1, 10) == 1
        assert log.start_offset == 4
        assert [one.first for one in await contents(log)] == [4, 5, 6, 7, 8, 9]

    simulate(main)


def test_the_oldest_segments_are_removed_while_the_log_is_too_large() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_bytes=5 * SIZE))
        # Kafka's rule: a segment goes if what is left is at least as large as allowed.
        assert await log.trimmer.retain(WALL_MS, 10) == 2
        assert log.size_bytes == 6 * SIZE
        assert await log.trimmer.retain(WALL_MS, 10) == 0

    simulate(main)


def test_segments_above_the_high_watermark_are_kept() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_bytes=0))
        assert await log.trimmer.retain(WALL_MS, 3) == 1
        assert log.start_offset == 2
        assert await log.trimmer.retain(WALL_MS, 9) == 3
        assert log.start_offset == 8

    simulate(main)


def test_a_log_that_is_completely_expired_continues_at_its_end_offset() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_ms=HOUR_MS))
        assert await log.trimmer.retain(WALL_MS + 100 * HOUR_MS, 10) == 5
        assert (log.start_offset, log.end_offset, log.size_bytes) == (10, 10, 0)

    async def again(runtime: SimRuntime) -> None:
        log = await open_log(runtime, config())
        assert (log.start_offset, log.end_offset) == (10, 10)
        assert log.writer.append_leader(batch(1), 0, WALL_MS).first_offset == 10

    simulate(main, disk)
    disk.restart(power_loss=True)
    simulate(again, disk)


def test_an_unbounded_log_keeps_everything() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config())
        assert await log.trimmer.retain(WALL_MS + 10**12, 10) == 0

    simulate(main)


def test_a_compacted_log_is_not_retained_by_time() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_ms=1, cleanup_policy="compact"))
        assert await log.trimmer.retain(WALL_MS + 10**12, 10) == 0

    simulate(main)


def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, config(retention_ms=1_000))
        for _ in range(4):
            log.writer.append_leader(batch(1, size=100, timestamp=-1), 0, runtime.wall_ms())
        assert await log.trimmer.retain(runtime.wall_ms() + 1_000, 4) == 0
        assert await log.trimmer.retain(runtime.wall_ms() + 1_001, 4) == 2

    simulate(main)


def test_deleted_records_are_not_readable_and_their_segments_are_removed() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config())
        log.trimmer.advance_start_offset(5)
        with pytest.raises(KafkaError) as error:
            log.reader.try_read(4, 100, 10)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert [one.first for one in await contents(log)] == [5, 6, 7, 8, 9]
        assert await log.trimmer.retain(WALL_MS, 10) == 2
        assert log.segments[0].base_offset == 4
        log.trimmer.advance_start_offset(3)
        assert log.start_offset == 5
        with pytest.raises(KafkaError) as error:
            log.trimmer.advance_start_offset(11)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    simulate(main)


def test_removed_files_are_unlinked_after_a_delay() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_bytes=0))
        names = runtime.disk.list("topic-0")
        assert "00000000000000000002.snapshot" in names
        await log.trimmer.retain(WALL_MS, 10)
        names = runtime.disk.list("topic-0")
        assert [name for name in names if name.endswith(".deleted")] == [
            f"{base:020d}.log.deleted" for base in (0, 2, 4, 6, 8)
        ]
        assert [name for name in names if "000000000002." in name] == ["00000000000000000002.log.deleted"]
        await runtime.sleep(1_100)
        assert runtime.disk.list("topic-0") == [
            "00000000000000000010.log", "00000000000000000010.snapshot", "leader-epoch-checkpoint",
        ]  # fmt: skip

    simulate(main)


def test_pending_removals_are_done_at_the_next_start() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_bytes=0))
        await log.trimmer.retain(WALL_MS, 10)

    async def again(runtime: SimRuntime) -> None:
        log = await open_log(runtime, config())
        assert log.start_offset == 10
        await runtime.sleep(1_100)
        assert not [name for name in runtime.disk.list("topic-0") if name.endswith(".deleted")]
        assert not [found for found in verify(runtime.disk, "topic-0") if isinstance(found, Problem)]

    simulate(main, disk)
    disk.restart(power_loss=False)
    simulate(again, disk)


def test_concurrent_retentions_run_once() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_bytes=0))
        first = runtime.spawn(log.trimmer.retain(WALL_MS, 10), "retain")
        second = runtime.spawn(log.trimmer.retain(WALL_MS, 10), "retain")
        assert sorted([await first, await second]) == [0, 5]

    simulate(main)


def test_appends_continue_while_segments_are_removed() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await filled(runtime, config(retention_bytes=0))
        retaining = runtime.spawn(log.trimmer.retain(WALL_MS, 10), "retain")
        for _ in range(10):
            await runtime.sleep(0.3)
            log.writer.append_leader(batch(1, size=100), 0, WALL_MS)
        await retaining
        assert [one.first for one in await contents(log)] == list(range(10, 20))

    simulate(main)
