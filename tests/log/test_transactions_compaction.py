"""Compaction of a log with transactions: what readers of committed records see stays the same, also after a crash."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from log.compaction_helpers import batches_of, closed, compact, keyed
from log.helpers import Stored, simulate, slice_bytes, stored
from log.transaction_helpers import finish
from penstock.log import UNCHECKED, Log, LogConfig, LogDirectory
from penstock.log.producers import marker_of
from penstock.sim.disk import SimDisk, SimulatedCrash
from penstock.sim.runtime import SimRuntime
from penstock.wire.records import iter_records
from support.sampling import some

NAME = "topic-0"
CONFIG = LogConfig(
    cleanup_policy="compact",
    segment_bytes=900,
    index_interval_bytes=150,
    delete_retention_ms=50,
    file_delete_delay_ms=5,
)
PARTS = 8

Table = dict[bytes, bytes | None]


def put(log: Log, producer_id: int, key: bytes, value: bytes) -> None:
    """One record, in the producer's transaction, or outside of all with producer -1."""
    wall_ms = log.runtime.wall_ms()
    options: dict[str, object] = {}
    if producer_id >= 0:
        known = log.producers.get(producer_id)
        sequence = 0 if known is None else known.last_sequence + 1
        options = {"producer_id": producer_id, "epoch": 0, "sequence": sequence, "transactional": True}
    records = keyed([(key, value)], timestamp=wall_ms, **options)  # type: ignore[arg-type]
    log.writer.append_leader(records, 0, wall_ms, verification=UNCHECKED)


async def as_committed(log: Log, max_bytes: int) -> Table:
    """The table that a consumer with isolation.level=read_committed builds, with the aborted transactions of each
    answer."""
    table: Table = {}
    stable = log.last_stable_offset(log.end_offset)
    offset = log.start_offset
    while offset < stable:
        batches = stored(await slice_bytes(log, offset, max_bytes, stable))
        if not batches:
            break
        listed = await log.aborted.find(batches[0].first, batches[-1].next)
        waiting = sorted(listed, key=lambda one: one.first_offset)
        aborted: set[int] = set()
        for one in batches:
            header = one.header
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if header.is_control:
                marker = marker_of(one.data)
                if marker is not None and not marker.committed:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                table.update((record.key or b"", record.value) for record in iter_records(one.data))
        offset = batches[-1].next
    return table


class Ledger:
    """What was appended, and the table that committed readers must build from it."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, Table]] = [(0, {})]
        """The table after each end of a transaction or plain write, by the log's end."""
        self.open: dict[int, Table] = {}
        self.durable = 0

    def put(self, log: Log, producer_id: int, key: bytes, value: bytes) -> None:
        if producer_id < 0:
            self.committed.append((log.end_offset + 1, {**self.committed[-1][1], key: value}))
        else:
            self.open.setdefault(producer_id, {})[key] = value
        put(log, producer_id, key, value)

    def end(self, log: Log, producer_id: int, committed: bool) -> None:
        written = self.open.pop(producer_id, {})
        if committed:
            self.committed.append((log.end_offset + 1, {**self.committed[-1][1], **written}))
        finish(log, producer_id, committed)


def write_some(log: Log, ledger: Ledger, rng: Random, count: int) -> None:
    """Transactions one after the other, so that their order is that of their records."""
    for _ in range(count):
        producer_id = rng.choice((-1, 1, 2, 3))
        for _ in range(rng.randrange(1, 4)):
            ledger.put(log, producer_id, b"%d" % rng.randrange(6), b"%d" % rng.randrange(10**6))
        if producer_id >= 0:
            ledger.end(log, producer_id, rng.random() < 0.5)


@pytest.mark.parametrize("seed", some(range(100), usual=range(8)))
def test_readers_of_committed_records_see_the_same_after_compaction(seed: int) -> None:
    """An aborted value supersedes no committed one, and no marker of an aborted transaction is waited for in vain."""

    async def main(runtime: SimRuntime) -> None:
        rng = Random(seed)
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open(NAME, CONFIG)
        ledger = Ledger()
        for _ in range(6):
            write_some(log, ledger, rng, 12)
            await closed(log)
            for _ in range(rng.randrange(3)):
                await compact(log)
                await runtime.sleep(rng.choice((0, 60)))
                expected = ledger.committed[-1][1]
                assert await as_committed(log, 250) == expected
                assert await as_committed(log, 1 << 20) == expected
            if rng.random() < 0.5:
                await directory.close()
                directory = LogDirectory(runtime)
                await directory.load()
                log = await directory.open(NAME, CONFIG)
                assert await as_committed(log, 250) == ledger.committed[-1][1]

    simulate(main, SimDisk(seed), seed)


async def scenario(runtime: SimRuntime, ledger: Ledger) -> None:
    rng = Random(7)
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    for _ in range(3):
        write_some(log, ledger, rng, 9)
        await closed(log)
        await directory.checkpoint()
        ledger.durable = log.end_offset
        await compact(log)
        await runtime.sleep(60)
    ledger.put(log, 5, b"0", b"open")
    await directory.close()
    ledger.durable = log.end_offset


async def recover(runtime: SimRuntime, ledger: Ledger, *, power_loss: bool) -> None:
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    if power_loss:
        assert log.end_offset >= ledger.durable
    known = [table for end, table in ledger.committed if end <= log.last_stable_offset(log.end_offset)]
    assert await as_committed(log, 300) == known[-1]
    batches: list[Stored] = await batches_of(log)
    for segment in log.segments:
        held = [one.header.base_offset for one in batches if one.header.is_control]
        numbers = await log.aborted.load(segment)
        assert all(offset in held for offset in numbers[2::4]), "an entry without its marker"
    # Transactions of the same producers: entries that should be gone would hide them.
    for producer_id in (1, 2, 3, 5):
        finish(log, producer_id, False)
        put(log, producer_id, b"after", b"%d" % producer_id)
        finish(log, producer_id, True)
    assert await as_committed(log, 300) == {**known[-1], b"after": b"5"}


def count_operations() -> int:
    disk = SimDisk(0)
    simulate(lambda runtime: scenario(runtime, Ledger()), disk)
    return disk.operations


OPERATIONS = count_operations()


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("part", some(range(PARTS), usual=[0]))
def test_a_crash_at_any_operation_of_a_compaction_changes_nothing_for_them(part: int, power_loss: bool) -> None:
    for operation in range(1 + part, OPERATIONS + 1, PARTS):
        disk = SimDisk(operation)
        ledger = Ledger()
        disk.crash_after(operation)
        with suppress(SimulatedCrash):
            simulate(lambda runtime, ledger=ledger: scenario(runtime, ledger), disk)  # type: ignore[misc]
        disk.restart(power_loss=power_loss)
        try:
            simulate(
                lambda runtime, ledger=ledger: recover(runtime, ledger, power_loss=power_loss),  # type: ignore[misc]
                disk,
            )
        except Exception as error:
            raise AssertionError(f"after operation {operation}") from error
