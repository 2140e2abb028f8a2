"""Crash at every operation on the disk, and again at every operation of the recovery: nothing durable may be missing.

The scenario does everything that changes files: appends, rolls, syncs, retention, DeleteRecords, checkpoints,
truncations, a clean stop and a second start. It runs once to the end to count its operations, then once for each
(`make test-long`; every other run takes some of them).
"""

from __future__ import annotations

import pickle
from contextlib import suppress

import pytest

from log.helpers import History, batch, contents, simulate
from penstock.log import Log, LogConfig, LogDirectory
from penstock.log.tools import Problem, verify
from penstock.sim.disk import SimDisk, SimulatedCrash
from penstock.sim.runtime import SimRuntime
from support.sampling import some

NAME = "topic-0"
CONFIG = LogConfig(
    segment_bytes=1_200, index_interval_bytes=150, retention_bytes=800, file_delete_delay_ms=5, retention_ms=-1
)
RECOVERY_PARTS = 9
"""Of all the first crashes; a number that shares no divisor with the eight after which kinds of crashes repeat."""
POWER_LOSS_OUTCOMES = 2


async def scenario(runtime: SimRuntime, history: History) -> None:
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    sequences = {1: 0, 2: 0}

    def append(count: int, epoch: int, producer_id: int = -1) -> None:
        wall_ms = runtime.wall_ms()
        if producer_id < 0:
            records = batch(count, size=60, timestamp=wall_ms, label=f"{history.end}-{epoch}")
        else:
            sequence = sequences[producer_id]
            records = batch(
                count, size=60, timestamp=wall_ms, producer_id=producer_id, epoch=0, sequence=sequence,
                label=f"{history.end}-{epoch}",
            )  # fmt: skip
            sequences[producer_id] += count
        history.append(log, records, epoch, wall_ms)

    for number in range(6):
        append(1 + number % 3, 0, 1 if number % 2 else -1)
    await history.flush(log)
    for number in range(6):
        append(2, 1, 2 if number % 3 else -1)
    await directory.checkpoint()
    await history.truncate(log, history.batches[-3].first)
    sequences[2] = 0
    for one in history.batches:
        if one.header.producer_id == 2:
            sequences[2] = one.header.last_sequence + 1
    for _ in range(5):
        append(3, 2, 2)
    await history.flush(log)
    history.start = log.segments[-1].base_offset
    assert await log.trimmer.retain(runtime.wall_ms(), log.end_offset) >= 2
    for _ in range(3):
        append(2, 3)
    history.start = log.end_offset - 2
    log.trimmer.advance_start_offset(history.start)
    await directory.checkpoint()
    await directory.close()
    history.durable = history.end

    directory = LogDirectory(runtime)
    await directory.load()
    assert directory.is_clean
    log = await directory.open(NAME, CONFIG)
    while len(log.segments) < 4:
        append(2, 4)
    await history.flush(log)
    await directory.checkpoint()
    # Cut into a closed segment, and write as much as was there, by the same leader: if the segment behind it came
    # back, its old records would follow the new ones as if they belonged there.
    boundary = log.active.base_offset
    await history.truncate(log, boundary - 6)
    while history.end < boundary:
        append(2, 4)
    await history.flush(log)
    append(1, 5, 1)
    log.writer.roll()
    append(1, 5, 1)
    await history.truncate(log, history.batches[-2].first)
    append(4, 6)
    await directory.close()
    history.durable = history.end


async def recover(runtime: SimRuntime, history: History, *, power_loss: bool, go_on: bool) -> None:
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    await history.check(log, power_loss=power_loss)
    if go_on:
        await work_on(directory, log, history)


async def work_on(directory: LogDirectory, log: Log, history: History) -> None:
    """Use the recovered log: it must behave like any other."""
    runtime = directory.runtime
    for number in range(5):
        history.append(log, batch(2, size=70, timestamp=runtime.wall_ms(), label=f"n{number}"), 9, runtime.wall_ms())
    await directory.close()
    problems = [found for found in verify(runtime.disk, NAME) if isinstance(found, Problem)]
    assert problems == []
    again = LogDirectory(runtime)
    await again.load()
    assert again.is_clean
    log = await again.open(NAME, CONFIG)
    assert log.end_offset == history.end
    assert await contents(log) == [one for one in history.batches if one.next > log.start_offset]


def crashed(operation: int, seed: int) -> tuple[SimDisk, History]:
    disk = SimDisk(seed)
    history = History()
    disk.crash_after(operation)
    with suppress(SimulatedCrash):
        simulate(lambda runtime: scenario(runtime, history), disk)
    return disk, history


def count_operations() -> int:
    disk = SimDisk(0)
    simulate(lambda runtime: scenario(runtime, History()), disk)
    return disk.operations


OPERATIONS = count_operations()


def test_the_scenario_covers_all_operations() -> None:
    disk = SimDisk(0)
    history = History()
    simulate(lambda runtime: scenario(runtime, history), disk)
    assert 80 < OPERATIONS < 400
    assert history.start > 0
    assert len({one.header.partition_leader_epoch for one in history.batches}) >= 5


@pytest.mark.parametrize("part", range(4))
def test_a_kill_loses_nothing_wherever_it_strikes(part: int) -> None:
    for operation in range(1 + part, OPERATIONS + 1, 4):
        disk, history = crashed(operation, seed=operation)
        disk.restart(power_loss=False)
        simulate(lambda runtime, h=history: recover(runtime, h, power_loss=False, go_on=True), disk)


@pytest.mark.parametrize("part", some(range(4), usual=(0, 3)))
def test_a_power_loss_loses_nothing_that_was_durable_wherever_it_strikes(part: int) -> None:
    for operation in range(1 + part, OPERATIONS + 1, 4):
        for outcome in range(POWER_LOSS_OUTCOMES):
            disk, history = crashed(operation, seed=1000 * outcome + operation)
            disk.restart(power_loss=True)
            simulate(lambda runtime, h=history: recover(runtime, h, power_loss=True, go_on=True), disk)


async def recover_and_write(runtime: SimRuntime, history: History) -> None:
    """Write batches of the same sizes, by the same leader, over the lost ones. Then the power fails again."""
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    await history.check(log, power_loss=True)
    epoch = max(0, log.latest_epoch)
    for number in range(6):
        wall_ms = runtime.wall_ms()
        history.append(log, batch(2, size=60, timestamp=wall_ms, label=f"w{number}"), epoch, wall_ms)
        if number == 2 and log.end_offset % 3:
            await history.flush(log)
    await runtime.sleep(runtime.rng.random() * 5)


@pytest.mark.parametrize("part", some(range(4), usual=(1, 2)))
def test_lost_records_do_not_reappear_after_a_second_power_loss(part: int) -> None:
    for operation in range(1 + part, OPERATIONS + 1, 4):
        disk, history = crashed(operation, seed=5000 + operation)
        for life in range(2):
            disk.restart(power_loss=True)
            simulate(lambda runtime, h=history: recover_and_write(runtime, h), disk, seed=life)
        disk.restart(power_loss=True)
        simulate(lambda runtime, h=history: recover(runtime, h, power_loss=True, go_on=False), disk)


@pytest.mark.parametrize("part", some(range(RECOVERY_PARTS), usual=(0,)))
def test_a_crash_during_recovery_is_recovered(part: int) -> None:
    for operation in range(1 + part, OPERATIONS + 1, RECOVERY_PARTS):
        disk, history = crashed(operation, seed=7000 + operation)
        power_loss = operation % 8 < 4
        disk.restart(power_loss=power_loss)
        before = pickle.dumps((disk, history))

        def crash_again(
            at: int | None, before: bytes = before, power_loss: bool = power_loss
        ) -> tuple[SimDisk, History]:
            disk, history = pickle.loads(before)
            if at is not None:
                disk.crash_after(at)
            with suppress(SimulatedCrash):
                simulate(lambda runtime: recover(runtime, history, power_loss=power_loss, go_on=False), disk)
            return disk, pickle.loads(before)[1]

        whole, _ = crash_again(None)
        for again in range(1, whole.operations - disk.operations + 1):
            once_more, history = crash_again(again)
            also_power_loss = power_loss or again % 2 == 0
            once_more.restart(power_loss=also_power_loss)
            simulate(
                lambda runtime, h=history, p=also_power_loss, g=again % 6 == 0: recover(
                    runtime, h, power_loss=p, go_on=g
                ),
                once_more,
            )
