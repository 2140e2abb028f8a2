"""Crash at every operation on the disk while transactions are written: none is forgotten, open or aborted.

After each crash the log must know of its transactions exactly what the batches tell that are left in it. A marker that
was synced must be there, with what it decided.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from log.helpers import History, contents, simulate, stamped, stored
from log.transaction_helpers import check_transactions, marker, transactional
from penstock.log import UNCHECKED, AppendOrigin, Log, LogConfig, LogDirectory
from penstock.sim.disk import SimDisk, SimulatedCrash
from penstock.sim.runtime import SimRuntime
from support.sampling import some

NAME = "topic-0"
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=5)
PARTS = 7


class Writers:
    """Appends transactional batches and markers, and tells the history of them."""

    def __init__(self, log: Log, history: History) -> None:
        self.log = log
        self.history = history

    def write(self, producer_id: int, size: int = 40) -> None:
        known = self.log.producers.get(producer_id)
        sequence = 0 if known is None or known.last_sequence < 0 else known.last_sequence + 1
        records = transactional(producer_id, sequence=sequence, label=str(self.history.end), size=size)
        self._append(records, AppendOrigin.CLIENT)

    def end(self, producer_id: int, committed: bool) -> None:
        self._append(marker(producer_id, committed), AppendOrigin.COORDINATOR)

    def _append(self, records: memoryview, origin: AppendOrigin) -> None:
        log, history = self.log, self.history
        history.appending = stamped(records, log.end_offset, 0)
        log.writer.append_leader(records, 0, log.runtime.wall_ms(), origin=origin, verification=UNCHECKED)
        history.batches += stored(history.appending)
        history.appending = None


async def scenario(runtime: SimRuntime, history: History) -> None:
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    writers = Writers(log, history)
    writers.write(9)
    for number in range(4):
        writers.write(number % 3)
        writers.write(number % 3)
        writers.end(number % 3, number == 1)
    await history.flush(log)
    await directory.checkpoint()
    for number in range(5):
        writers.write(number % 3, size=90)
        writers.end(number % 3, number == 2)
    writers.write(1)
    await history.truncate(log, history.batches[-4].first)
    writers.write(2)
    writers.end(2, False)
    await directory.close()
    history.durable = history.end

    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    writers = Writers(log, history)
    writers.write(1)
    writers.end(1, False)
    await history.flush(log)
    await directory.checkpoint()
    writers.write(1)
    writers.end(1, False)
    await history.truncate(log, history.batches[-1].first)
    writers.end(1, True)
    writers.write(4)
    log.writer.roll()
    writers.end(4, False)
    writers.end(9, False)
    await history.flush(log)
    await directory.close()
    history.durable = history.end


async def recover(runtime: SimRuntime, history: History, *, power_loss: bool) -> None:
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    least = history.durable if power_loss else history.end
    if history.truncating_to is not None:
        least = min(least, history.truncating_to)
    possible = [*history.batches, *(stored(history.appending) if history.appending else [])]
    found = await contents(log)
    assert found == possible[: len(found)]
    assert log.end_offset >= min(least, possible[-1].next if possible else 0)
    await check_transactions(log, found, log.end_offset)
    history.batches, history.appending, history.truncating_to = found, None, None
    # It goes on like any other log: what was left of the files must not get in the way.
    writers = Writers(log, history)
    writers.write(5)
    writers.end(5, False)
    for producer_id in (9, 0, 1, 2, 4):
        writers.end(producer_id, False)
    await check_transactions(log, await contents(log), log.end_offset)
    await directory.close()
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    await check_transactions(log, await contents(log), log.end_offset)


def count_operations() -> int:
    disk = SimDisk(0)
    simulate(lambda runtime: scenario(runtime, History()), disk)
    return disk.operations


OPERATIONS = count_operations()


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("part", some(range(PARTS), usual=[0]))
def test_a_crash_at_any_operation_forgets_no_transaction(part: int, power_loss: bool) -> None:
    for operation in range(1 + part, OPERATIONS + 1, PARTS):
        disk = SimDisk(operation)
        history = History()
        disk.crash_after(operation)
        with suppress(SimulatedCrash):
            simulate(lambda runtime, history=history: scenario(runtime, history), disk)  # type: ignore[misc]
        disk.restart(power_loss=power_loss)
        try:
            simulate(
                lambda runtime, history=history: recover(runtime, history, power_loss=power_loss),  # type: ignore[misc]
                disk,
            )
        except Exception as error:
            raise AssertionError(f"after operation {operation}") from error
