"""Truncation: which records, indexes, epochs and producers remain, and when it is durable."""

from __future__ import annotations

import pytest

from log.helpers import (
    WALL_MS,
    Stored,
    batch,
    check_epochs,
    check_indexes,
    check_producers,
    contents,
    open_log,
    simulate,
    stamped,
)
from penstock.log import Log, LogConfig, TimeSearch
from penstock.runtime import Runtime
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime

SIZE = len(batch(2, size=100))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, file_delete_delay_ms=10)


async def filled(runtime: Runtime, **options: object) -> tuple[Log, list[Stored]]:
    """Twenty batches of two records, four segments, an epoch every four batches, two producers."""
    log = await open_log(runtime, CONFIG, **options)
    for number in range(20):
        records = batch(
            2, size=100, timestamp=WALL_MS + number, producer_id=number % 2, epoch=0, sequence=number // 2 * 2
        )
        log.writer.append_leader(records, number // 4, WALL_MS)
    return log, await contents(log)


@pytest.mark.parametrize("offset", range(0, 42, 3))
def test_a_truncation_keeps_everything_before_it(offset: int) -> None:
    async def main(runtime: SimRuntime) -> None:
        log, before = await filled(runtime)
        await log.trimmer.truncate_to(offset)
        left = [one for one in before if one.next <= offset]
        assert log.end_offset == (left[-1].next if left else 0)
        assert await contents(log) == left
        check_epochs(log, left)
        check_producers(log, left)
        await check_indexes(log, left)
        assert log.latest_epoch == (left[-1].header.partition_leader_epoch if left else -1)

    simulate(main)


def test_appends_continue_after_a_truncation() -> None:
    async def main(runtime: SimRuntime) -> None:
        log, before = await filled(runtime)
        await log.trimmer.truncate_to(17)
        for _ in range(10):
            log.writer.append_leader(batch(3, size=50), 9, WALL_MS + 100)
        after = await contents(log)
        assert after[:8] == before[:8]
        assert after[8].first == 16
        assert log.epochs.entries[-1] == (9, 16)
        await check_indexes(log, after)

    simulate(main)


def test_a_truncation_beyond_the_end_does_nothing() -> None:
    async def main(runtime: SimRuntime) -> None:
        log, before = await filled(runtime)
        await log.trimmer.truncate_to(40)
        await log.trimmer.truncate_to(1_000)
        assert await contents(log) == before

    simulate(main)


def test_a_truncation_is_durable_before_the_next_append() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log, _ = await filled(runtime)
        await log.flush()
        await log.trimmer.truncate_to(13)
        assert len(disk.durable_content("topic-0/00000000000000000010.log")) == SIZE

    async def again(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        assert log.end_offset == 12

    simulate(main, disk)
    disk.restart(power_loss=True)
    simulate(again, disk)


def test_appends_during_a_truncation_are_refused() -> None:
    async def main(runtime: SimRuntime) -> None:
        log, _ = await filled(runtime)
        cutting = runtime.spawn(log.trimmer.truncate_to(13), "cut")
        await runtime.sleep(0.1)
        with pytest.raises(AssertionError, match="truncation"):
            log.writer.append_leader(batch(1), 9, WALL_MS)
        await cutting
        log.writer.append_leader(batch(1), 9, WALL_MS)

    simulate(main)


def test_the_recovery_point_is_lowered_on_disk_before_a_truncation() -> None:
    order: list[str] = []

    async def main(runtime: SimRuntime) -> None:
        async def checkpoint() -> None:
            size = runtime.disk.size("topic-0/00000000000000000010.log")
            order.append(f"checkpoint {log.recovery_point}, file {size}")

        log, _ = await filled(runtime, checkpoint=checkpoint)
        await log.flush()
        await log.trimmer.truncate_to(13)
        assert order == [f"checkpoint 12, file {5 * SIZE}"]
        log.writer.append_leader(batch(1), 9, WALL_MS)
        await log.trimmer.truncate_to(12)
        assert len(order) == 1, "nothing durable was cut"

    simulate(main)


def test_a_flush_during_a_truncation_does_not_count_for_the_new_tail() -> None:
    async def main(runtime: SimRuntime) -> None:
        log, _ = await filled(runtime)
        flushed = log.flush()
        await log.trimmer.truncate_to(13)
        log.writer.append_leader(batch(1), 9, WALL_MS)
        assert log.durable_end <= 12
        await flushed
        assert log.durable_end == 12
        await log.flush()
        assert log.durable_end == 13

    simulate(main)


@pytest.mark.parametrize("offset", [0, 7, 40, 1000])
def test_a_log_can_be_truncated_fully_and_start_at_an_offset(offset: int) -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log, _ = await filled(runtime)
        await log.trimmer.truncate_fully_and_start_at(offset)
        assert (log.start_offset, log.end_offset, log.size_bytes, len(log.producers)) == (offset, offset, 0, 0)
        assert log.epochs.entries == []
        log.writer.append_follower(memoryview(bytearray(stamped(batch(2), offset, 7))))
        await log.flush()

    async def again(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        assert (log.start_offset, log.end_offset) == (offset, offset + 2)
        await runtime.sleep(100)
        assert not [name for name in runtime.disk.list("topic-0") if name.endswith(".deleted")]

    simulate(main, disk)
    disk.restart(power_loss=True)
    simulate(again, disk)


def test_a_truncation_before_the_start_empties_the_log() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG, start_offset=100)
        log.writer.append_leader(batch(3), 0, WALL_MS)
        assert (log.start_offset, log.end_offset) == (100, 103)
        await log.trimmer.truncate_to(50)
        assert (log.start_offset, log.end_offset) == (50, 50)

    simulate(main)


def test_the_largest_timestamp_is_found_again() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(index_interval_bytes=10))
        for timestamp in (10, 50, 30, 90, 20):
            log.writer.append_leader(batch(1, timestamp=timestamp), 0, WALL_MS)
        await log.trimmer.truncate_to(3)
        found = await TimeSearch(log).max_timestamp_offset()
        assert found == (50, 1, 0)

    simulate(main)
