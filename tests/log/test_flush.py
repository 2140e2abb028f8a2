"""Durability: which appends `flush.messages` and `flush.ms` delay, group commit, and a failing sync."""

from __future__ import annotations

from contextlib import suppress

import pytest

from log.helpers import batch, contents, open_log, simulate
from penstock.log import Log, LogConfig
from penstock.sim.disk import SimDisk, SimulatedCrash
from penstock.sim.host import ProcessEnded
from penstock.sim.runtime import SimRuntime


def append(log: Log, count: int = 1) -> int:
    wall_ms = log.runtime.wall_ms()
    return log.writer.append_leader(batch(count, timestamp=wall_ms), 0, wall_ms).last_offset + 1


async def stable(log: Log, offset: int) -> None:
    """Wait as an acknowledgement does, until the log reports progress."""
    while log.stable_end < offset:
        moved = log.runtime.future()
        log.on_durable = lambda _, moved=moved: moved.done() or moved.set_result(None)
        await moved


def test_by_default_everything_is_stable_at_once_and_nothing_is_synced() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        append(log, 3)
        assert (log.durable_end, log.stable_end, log.end_offset) == (0, 3, 3)
        await runtime.sleep(60_000)
        assert (log.durable_end, disk.syncs) == (0, 0)
        await log.flush()
        assert log.durable_end == 3

    simulate(main, disk)


def test_flushing_a_durable_log_needs_no_sync() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        append(log)
        await log.flush()
        before = disk.operations
        assert log.flush().done()
        assert disk.operations == before

    simulate(main, disk)


def test_every_append_waits_with_flush_messages_1() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(flush_messages=1))
        moves: list[int] = []
        log.on_durable = lambda one: moves.append(one.durable_end)
        append(log, 2)
        assert log.stable_end == 0
        await log.flush()
        assert (log.stable_end, log.durable_end) == (2, 2)
        assert moves == [2]

    simulate(main)


def test_appends_during_a_sync_share_the_next_one() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(flush_messages=1))
        append(log)
        await log.flush()
        before = disk.syncs
        for _ in range(50):
            append(log)
        await stable(log, 51)
        assert disk.syncs - before <= 2

    simulate(main, disk)


def test_flush_messages_n_lets_fewer_than_n_go_unsynced() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(flush_messages=5))
        append(log, 2)
        append(log, 2)
        assert (log.stable_end, log.durable_end) == (4, 0)
        append(log, 2)
        assert log.stable_end == 4
        append(log)
        assert log.stable_end == 4
        await stable(log, 7)
        assert log.durable_end >= 3

    simulate(main)


def test_flush_ms_syncs_in_time_and_delays_later_appends() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(flush_ms=100))
        append(log)
        assert log.stable_end == 1
        await runtime.sleep(99)
        assert log.durable_end == 0
        disk.slowness = 50.0
        await runtime.sleep(2)
        append(log)
        assert (log.stable_end, log.durable_end) == (1, 0)
        await stable(log, 2)
        assert log.durable_end >= 1
        disk.slowness = 1.0
        await runtime.sleep(200)
        assert log.durable_end == 2

    simulate(main, disk)


def test_flush_ms_0_makes_every_append_wait() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(flush_ms=0))
        end = append(log)
        assert log.stable_end == 0
        await stable(log, end)
        assert log.durable_end == end

    simulate(main)


def test_asking_for_syncs_later_takes_effect_at_once() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        append(log)
        log.config = LogConfig(flush_messages=1)
        assert log.stable_end == 1
        append(log)
        assert log.stable_end == 1
        await stable(log, 2)
        log.config = LogConfig()
        append(log)
        assert log.stable_end == 3

    simulate(main)


def test_a_rolled_segment_is_synced_in_the_background() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        append(log, 4)
        log.writer.roll()
        append(log, 2)
        assert log.recovery_point == 0
        await runtime.sleep(1_000)
        assert log.recovery_point == 4
        disk = runtime.disk.disk
        for suffix in (".log", ".index", ".timeindex"):
            path = f"topic-0/00000000000000000000{suffix}"
            assert disk.durable_content(path) == disk.content(path)
        assert disk.durable_content("topic-0/00000000000000000004.snapshot")

    simulate(main)


@pytest.mark.parametrize("operation", range(1, 40))
def test_stable_records_are_never_lost_with_flush_messages_1(operation: int) -> None:
    """The power fails at every operation of a log that rolls several times."""
    config = LogConfig(flush_messages=1, segment_bytes=400, index_interval_bytes=50)
    for seed in range(4):
        disk = SimDisk(100 * operation + seed)
        acknowledged = [0]

        async def write(runtime: SimRuntime, acknowledged: list[int] = acknowledged) -> None:
            log = await open_log(runtime, config)
            for number in range(12):
                end = append(log, 1 + number % 3)
                await stable(log, end)
                acknowledged[0] = end

        async def check(runtime: SimRuntime, acknowledged: list[int] = acknowledged) -> None:
            log = await open_log(runtime, config)
            assert log.end_offset >= acknowledged[0]
            assert sum(one.header.records_count for one in await contents(log)) == log.end_offset

        disk.crash_after(operation)
        with suppress(SimulatedCrash):
            simulate(write, disk)
        disk.restart(power_loss=True)
        simulate(check, disk)


def test_a_failed_sync_ends_the_process_and_nothing_becomes_stable() -> None:
    disk = SimDisk(0)
    logs: list[Log] = []
    stable_ends: list[int] = []

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(flush_messages=1))
        logs.append(log)
        log.on_durable = lambda one: stable_ends.append(one.stable_end)
        append(log)
        await log.flush()
        disk.fail_next_syncs()
        append(log)
        await runtime.sleep(10_000)

    with pytest.raises(ProcessEnded, match="sync failed"):
        simulate(main, disk)
    assert stable_ends == [1]
    assert (logs[0].stable_end, logs[0].durable_end) == (1, 1)


def test_a_log_that_was_written_by_a_killed_process_is_synced_before_it_is_stable() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        append(await open_log(runtime))

    async def check(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(flush_messages=1))
        assert (log.stable_end, log.end_offset) == (0, 1)
        await stable(log, 1)
        assert log.durable_end == 1

    simulate(write, disk)
    disk.restart(power_loss=False)
    simulate(check, disk)
