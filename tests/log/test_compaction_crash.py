"""Crash at every operation of a compaction, and again at every operation of the recovery: no newest value is lost.

The scenario appends, compacts (many segments at once, then merging), goes on, compacts again after the horizon of
the tombstones, and stops cleanly. It runs once to the end to count its operations, then once for each
(`make test-long`; every other run takes some of them).
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from log.compaction_helpers import Pair, batches_of, compact, keyed, living, newest, records
from log.helpers import check_indexes, simulate
from penstock.log import Log, LogConfig, LogDirectory
from penstock.log.tools import Problem, verify
from penstock.sim.disk import SimDisk, SimulatedCrash
from penstock.sim.runtime import SimRuntime
from support.sampling import some

NAME = "topic-0"
CONFIG = LogConfig(
    cleanup_policy="compact",
    segment_bytes=600,
    index_interval_bytes=150,
    delete_retention_ms=50,
    file_delete_delay_ms=5,
)
POWER_LOSS_OUTCOMES = 2
RECOVERY_PARTS = 9
"""Of all the first crashes; a number that shares no divisor with the eight after which kinds of crashes repeat."""


@dataclass
class Table:
    """All appended records, in order: a reader of the log must build the same table, up to some record at its end."""

    pairs: list[Pair] = field(default_factory=list)
    durable: int = 0
    """So many of them survive a power loss."""
    sequence: int = 0

    def append(self, log: Log, *pairs: Pair, idempotent: bool = False) -> None:
        wall_ms = log.runtime.wall_ms()
        producer = {"producer_id": 9, "epoch": 0, "sequence": self.sequence} if idempotent else {}
        records = keyed(pairs, timestamp=wall_ms, **producer)  # type: ignore[arg-type]
        # It counts from the moment it may have arrived.
        self.pairs += pairs
        if idempotent:
            self.sequence += len(pairs)
        log.writer.append_leader(records, 0, wall_ms)

    async def flush(self, log: Log) -> None:
        await log.flush()
        self.durable = len(self.pairs)

    def at(self, count: int) -> dict[bytes, bytes | None]:
        return dict(self.pairs[:count])

    async def check(self, log: Log, *, power_loss: bool, dead: bool = False) -> None:
        assert log.damage == ()
        # The append under way may be lost in any crash.
        least = self.durable if power_loss else max(self.durable, len(self.pairs) - 3)
        assert least <= log.end_offset <= len(self.pairs)
        found = await records(log)
        assert living(newest(found)) == living(self.at(log.end_offset))
        for record in found:
            assert self.pairs[record.offset] == (record.key, record.value), "a record moved"
        await check_indexes(log, await batches_of(log))
        if dead:
            return
        entry = log.producers.get(9)
        if entry is not None:
            assert entry.last_sequence < self.sequence
        self.pairs = self.pairs[: log.end_offset]
        self.sequence = 0 if entry is None else entry.last_sequence + 1
        self.durable = min(self.durable, len(self.pairs))


async def scenario(runtime: SimRuntime, table: Table) -> None:
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    for number in range(14):
        table.append(log, (b"%d" % (number % 4), b"%d" % number * 8), idempotent=number % 3 == 0)
        table.append(log, (b"t%d" % (number % 2), None if number > 11 else b"x"), (b"u%d" % (number % 3), b"1"))
    log.writer.roll()
    await table.flush(log)
    await directory.close()

    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    await compact(log)
    await directory.checkpoint()
    for number in range(6):
        table.append(log, (b"%d" % number, b"again"), (b"u%d" % number, None), idempotent=number % 2 == 0)
    log.writer.roll()
    await table.flush(log)
    await runtime.sleep(60)
    before = len(log.segments)
    await compact(log)
    assert len(log.segments) < before
    await directory.checkpoint()
    table.append(log, (b"last", b"1"), (b"t0", b"back"))
    await directory.close()
    table.durable = len(table.pairs)


async def recover(runtime: SimRuntime, table: Table, *, power_loss: bool, go_on: bool) -> None:
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    await table.check(log, power_loss=power_loss)
    left = [name for name in runtime.disk.list(NAME) if name.endswith((".cleaned", ".swap"))]
    assert left == []
    if go_on:
        await work_on(directory, log, table)


async def work_on(directory: LogDirectory, log: Log, table: Table) -> None:
    """Use the recovered log: it must behave like any other."""
    runtime = directory.runtime
    for number in range(4):
        table.append(log, (b"%d" % number, b"after"), (b"v%d" % number, b"1"))
    log.writer.roll()
    await table.flush(log)
    await compact(log)
    await directory.close()
    assert [found for found in verify(runtime.disk, NAME) if isinstance(found, Problem)] == []
    again = LogDirectory(runtime)
    await again.load()
    assert again.is_clean
    log = await again.open(NAME, CONFIG)
    await table.check(log, power_loss=False, dead=True)


def crashed(operation: int, seed: int) -> tuple[SimDisk, Table]:
    disk = SimDisk(seed)
    table = Table()
    disk.crash_after(operation)
    with suppress(SimulatedCrash):
        simulate(lambda runtime: scenario(runtime, table), disk)
    return disk, table


def count_operations() -> int:
    disk = SimDisk(0)
    simulate(lambda runtime: scenario(runtime, Table()), disk)
    return disk.operations


OPERATIONS = count_operations()


def test_the_scenario_covers_all_operations() -> None:
    assert 120 < OPERATIONS < 500


@pytest.mark.parametrize("part", some(range(4), usual=(0, 2)))
def test_a_kill_loses_nothing_wherever_it_strikes(part: int) -> None:
    for operation in range(1 + part, OPERATIONS + 1, 4):
        disk, table = crashed(operation, seed=operation)
        disk.restart(power_loss=False)
        simulate(lambda runtime, t=table: recover(runtime, t, power_loss=False, go_on=True), disk)


@pytest.mark.parametrize("part", some(range(4), usual=(1,)))
def test_a_power_loss_loses_nothing_that_was_durable_wherever_it_strikes(part: int) -> None:
    for operation in range(1 + part, OPERATIONS + 1, 4):
        for outcome in range(POWER_LOSS_OUTCOMES):
            disk, table = crashed(operation, seed=1000 * outcome + operation)
            disk.restart(power_loss=True)
            simulate(lambda runtime, t=table: recover(runtime, t, power_loss=True, go_on=True), disk)


@pytest.mark.parametrize("part", some(range(RECOVERY_PARTS), usual=(0,)))
def test_a_crash_during_recovery_is_recovered(part: int) -> None:
    for operation in range(1 + part, OPERATIONS + 1, RECOVERY_PARTS):
        disk, table = crashed(operation, seed=7000 + operation)
        power_loss = operation % 8 < 4
        disk.restart(power_loss=power_loss)
        before = pickle.dumps((disk, table))

        def crash_again(at: int | None, before: bytes = before, power_loss: bool = power_loss) -> tuple[SimDisk, Table]:
            disk, table = pickle.loads(before)
            if at is not None:
                disk.crash_after(at)
            with suppress(SimulatedCrash):
                simulate(lambda runtime: recover(runtime, table, power_loss=power_loss, go_on=False), disk)
            return disk, pickle.loads(before)[1]

        whole, _ = crash_again(None)
        for again in range(1, whole.operations - disk.operations + 1):
            once_more, table = crash_again(again)
            also_power_loss = power_loss or again % 2 == 0
            once_more.restart(power_loss=also_power_loss)
            simulate(
                lambda runtime, t=table, p=also_power_loss, g=again % 6 == 0: recover(
                    runtime, t, power_loss=p, go_on=g
                ),
                once_more,
            )
