"""Transactions of a log: the last stable offset, the index of aborted transactions, and what damage does to them."""

from __future__ import annotations

from random import Random
from struct import pack

import pytest

from log.helpers import contents, open_log, simulate
from log.transaction_helpers import check_transactions, finish, model_of, transactional, write
from penstock.log import AbortedTransaction, IndexCache, Log, LogConfig, LogDirectory, Verification
from penstock.log.aborted_entries import decode_aborted, encode_aborted
from penstock.log.index_entries import IndexDamaged
from penstock.log.tools import dump_aborted
from penstock.log.transactions import SWEEP_MIN, Transactions
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.wire.errors import ErrorCode, KafkaError
from support.sampling import some

NAME = "topic-0"
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=5)


# ---- the last stable offset


def test_the_last_stable_offset_passes_a_transaction_when_its_marker_is_below_the_high_watermark() -> None:
    transactions = Transactions()
    transactions.begin(1, 10)
    transactions.begin(2, 20)
    assert transactions.last_stable_offset(30, 0) == 10
    transactions.end(1, 30, True)
    assert transactions.last_stable_offset(30, 0) == 10
    assert transactions.last_stable_offset(31, 0) == 20
    transactions.end(2, 40, True)
    assert transactions.last_stable_offset(41, 0) == 41


def test_a_transaction_above_the_high_watermark_does_not_hold_readers_back() -> None:
    transactions = Transactions()
    transactions.begin(1, 10)
    assert transactions.last_stable_offset(5, 0) == 5
    assert transactions.last_stable_offset(10, 0) == 10


def test_deleted_records_of_an_open_transaction_are_not_waited_for() -> None:
    transactions = Transactions()
    transactions.begin(1, 10)
    assert transactions.last_stable_offset(30, 15) == 15


def test_one_long_transaction_does_not_keep_all_later_ones_in_memory() -> None:
    transactions = Transactions()
    transactions.begin(1, 0)
    for number in range(1, 20_000):
        transactions.begin(2, 2 * number)
        transactions.end(2, 2 * number + 1, number % 2 == 0)
        assert transactions.last_stable_offset(2 * number, 0) == 0
    assert len(transactions._queue) <= SWEEP_MIN + 2
    assert len(transactions) == 1


def test_the_last_stable_offset_is_that_of_the_list_of_all_transactions() -> None:
    for seed in range(200):
        rng = Random(seed)
        transactions = Transactions()
        known: dict[int, list[int]] = {}
        ended: list[list[int]] = []
        end = high_watermark = stable = 0
        for _ in range(120):
            producer_id = rng.randrange(6)
            if producer_id in known:
                known[producer_id][1] = end
                ended.append(known.pop(producer_id))
                transactions.end(producer_id, end, rng.random() < 0.5)
            else:
                known[producer_id] = [end, -1]
                transactions.begin(producer_id, end)
            end += rng.randrange(1, 4)
            high_watermark = rng.randint(high_watermark, end)
            unstable = [first for first, _ in known.values()] + [f for f, last in ended if last >= high_watermark]
            expected = min([high_watermark, *unstable])
            found = transactions.last_stable_offset(high_watermark, 0)
            assert found == expected, seed
            assert found >= stable, "it never goes back"
            stable = found


# ---- the log against a list


@pytest.mark.parametrize("seed", some(range(300), usual=range(30)))
def test_the_log_knows_of_its_transactions_what_the_list_of_its_batches_tells(seed: int) -> None:
    simulate(lambda runtime: any_operations(runtime, Random(seed)), SimDisk(seed), seed)


async def any_operations(runtime: SimRuntime, rng: Random) -> None:
    async def opened() -> tuple[LogDirectory, Log]:
        directory = LogDirectory(runtime, cache=IndexCache(500))
        await directory.load()
        return directory, await directory.open(NAME, CONFIG)

    directory, log = await opened()
    high_watermark = stable = 0
    for number in range(60):
        action = rng.random()
        if action < 0.5:
            write(log, rng.randrange(5), count=rng.randrange(1, 4), label=str(number), size=rng.choice((5, 60)))
        elif action < 0.75:
            finish(log, rng.randrange(5), rng.random() < 0.4)
        elif action < 0.80:
            log.writer.roll()
        elif action < 0.84:
            await log.flush()
            await directory.checkpoint()
        elif action < 0.88:
            await log.trimmer.truncate_to(rng.randint(high_watermark, log.end_offset))
        elif action < 0.91:
            await log.trimmer.truncate_to(rng.randint(log.start_offset, log.end_offset))
            high_watermark = min(high_watermark, log.end_offset)
        elif action < 0.95:
            await directory.close()
            directory, log = await opened()
            high_watermark = log.end_offset
        batches = await contents(log)
        high_watermark = rng.choice([high_watermark, *(one.next for one in batches if one.next > high_watermark)])
        await check_transactions(log, batches, high_watermark)
        assert log.last_stable_offset(high_watermark) >= stable or action >= 0.88
        stable = log.last_stable_offset(high_watermark)
        model = model_of(batches)
        from_offset = rng.randint(0, log.end_offset)
        upto = rng.randint(0, stable)
        expected = model.overlapping(from_offset, upto) if from_offset < upto else None
        if expected is not None:
            assert await log.aborted.find(from_offset, upto) == expected
            found = log.aborted.try_find(from_offset, upto)
            assert found is None or found == expected


def test_a_follower_knows_the_same_as_its_leader() -> None:
    async def main(runtime: SimRuntime) -> None:
        leader = await Log.open(runtime, "a-0", CONFIG, clean=False, recovery_point=0, start_offset=0)
        for number in range(20):
            write(leader, number % 3)
            if number % 4 == 3:
                finish(leader, number % 3, number % 8 == 3)
        follower = await Log.open(runtime, "b-0", CONFIG, clean=False, recovery_point=0, start_offset=0)
        batches = await contents(leader)
        for one in batches:
            follower.writer.append_follower(memoryview(bytearray(one.data)))
        await check_transactions(follower, batches, leader.end_offset)

    simulate(main)


# ---- the file


def test_the_index_has_kafkas_format() -> None:
    aborted = AbortedTransaction(7, 10, 20, 15)
    data = encode_aborted([aborted])
    assert data == pack(">hqqqq", 0, 7, 10, 20, 15)
    assert list(decode_aborted(data, 0, 100)) == [7, 10, 20, 15]


@pytest.mark.parametrize(
    "data",
    [
        pack(">hqqqq", 1, 7, 10, 20, 15),
        pack(">hqqqq", 0, 7, 10, 120, 15),
        pack(">hqqqq", 0, 7, 30, 20, 40),
        pack(">hqqqq", 0, -7, 10, 20, 15),
        pack(">hqqqq", 0, 7, 10, 20, 15) * 2,
        pack(">hqqqq", 0, 7, 10, 20, 15)[:-1],
    ],
    ids=["version", "beyond the segment", "ends before it begins", "no producer", "not ascending", "torn"],
)
def test_a_damaged_index_is_noticed(data: bytes) -> None:
    with pytest.raises(IndexDamaged):
        decode_aborted(data, 0, 100)


async def aborted_log(runtime: SimRuntime) -> tuple[LogDirectory, Log]:
    """Three segments with aborted transactions, and one that is open, cleanly closed and opened again."""
    directory = LogDirectory(runtime)
    await directory.load()
    log = await directory.open(NAME, CONFIG)
    write(log, 99)
    while len(log.segments) < 3:
        write(log, 1, size=50)
        write(log, 2)
        finish(log, 1, False)
        finish(log, 2, True)
    await directory.close()
    directory = LogDirectory(runtime)
    await directory.load()
    return directory, await directory.open(NAME, CONFIG)


def test_a_clean_start_knows_open_and_aborted_transactions() -> None:
    async def main(runtime: SimRuntime) -> None:
        _, log = await aborted_log(runtime)
        assert log.last_stable_offset(log.end_offset) == 0
        finish(log, 99, True)
        await check_transactions(log, await contents(log), log.end_offset)

    simulate(main)


@pytest.mark.parametrize("damage", ["rot", "removed"])
def test_a_damaged_snapshot_does_not_forget_open_transactions(damage: str) -> None:
    disk = SimDisk(3)

    async def prepare(runtime: SimRuntime) -> str:
        directory, log = await aborted_log(runtime)
        await directory.close()
        return log.snapshots.path

    async def check(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        assert directory.is_clean
        log = await directory.open(NAME, CONFIG)
        assert log.last_stable_offset(log.end_offset) == 0, "before anything is appended or read"
        await check_transactions(log, await contents(log), log.end_offset)

    path = simulate(prepare, disk)
    if damage == "rot":
        disk.rot(path)
        simulate(check, disk)
    else:

        async def remove(runtime: SimRuntime) -> None:
            runtime.disk.unlink(path)
            await check(runtime)

        simulate(remove, disk)


@pytest.mark.parametrize("damage", ["rot", "removed", "longer"])
def test_a_damaged_index_is_rebuilt_from_the_log(damage: str) -> None:
    disk = SimDisk(4)

    async def prepare(runtime: SimRuntime) -> list[str]:
        directory, log = await aborted_log(runtime)
        await directory.close()
        return [segment.aborted.path for segment in log.segments if segment.aborted_count]

    async def check(runtime: SimRuntime) -> None:
        for path in paths:
            if damage == "removed":
                runtime.disk.unlink(path)
            elif damage == "longer":
                stale = encode_aborted([AbortedTransaction(5, 1, 2, 3)])
                runtime.disk.open(path).pwrite(stale, runtime.disk.size(path))
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open(NAME, CONFIG)
        finish(log, 99, True)
        await check_transactions(log, await contents(log), log.end_offset)
        await directory.close()
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open(NAME, CONFIG)
        await check_transactions(log, await contents(log), log.end_offset)

    paths = simulate(prepare, disk)
    assert paths
    if damage == "rot":
        for path in paths:
            disk.rot(path, 1)
    simulate(check, disk)


def test_the_index_is_removed_with_its_segment() -> None:
    async def main(runtime: SimRuntime) -> None:
        directory, log = await aborted_log(runtime)
        finish(log, 99, False)
        first = log.segments[0].aborted.path
        assert runtime.disk.exists(first)
        log.trimmer.advance_start_offset(log.segments[1].base_offset)
        assert await log.trimmer.retain(runtime.wall_ms(), log.end_offset) == 1
        assert not runtime.disk.exists(first)
        found = await log.aborted.find(log.start_offset, log.end_offset)
        assert found == model_of(await contents(log)).overlapping(0, log.end_offset)[-len(found) :] or found
        assert all(one.last_offset >= log.start_offset for one in found)
        await directory.close()

    simulate(main)


def test_a_log_without_aborted_transactions_has_no_index_and_reads_none() -> None:
    async def main(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open(NAME, CONFIG)
        while len(log.segments) < 3:
            write(log, 1)
            finish(log, 1, True)
        await directory.close()
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open(NAME, CONFIG)
        assert log.aborted.try_find(0, log.end_offset) == []
        assert not [name for name in runtime.disk.list(NAME) if name.endswith(".txnindex")]
        await directory.close()

    simulate(main)


# ---- what is accepted


def on_a_log(check) -> None:  # type: ignore[no-untyped-def]
    async def main(runtime: SimRuntime) -> None:
        await check(await open_log(runtime, CONFIG))

    simulate(main)


def verified(log: Log, producer_id: int, epoch: int = 0, sequence: int = 0, *, is_new: bool = False) -> Verification:
    verification = log.producers.begin_verification(
        producer_id, epoch, sequence, log.runtime.wall_ms(), is_new_state_expected=is_new
    )
    assert verification is not None
    return verification


def refused(log: Log, records: memoryview, verification: Verification | None) -> ErrorCode:
    end = log.end_offset
    with pytest.raises(KafkaError) as error:
        log.writer.append_leader(records, 0, log.runtime.wall_ms(), verification=verification)
    assert log.end_offset == end
    return error.value.code


def test_the_first_batch_of_a_transaction_must_have_been_verified() -> None:
    async def check(log: Log) -> None:
        assert refused(log, transactional(7), None) == ErrorCode.INVALID_TXN_STATE
        verification = verified(log, 7)
        log.writer.append_leader(transactional(7), 0, log.runtime.wall_ms(), verification=verification)
        log.writer.append_leader(transactional(7, sequence=1), 0, log.runtime.wall_ms(), verification=None)
        finish(log, 7, True)
        assert refused(log, transactional(7, sequence=2), verification) == ErrorCode.INVALID_TXN_STATE

    on_a_log(check)


def test_a_verification_of_an_earlier_transaction_does_not_count() -> None:
    """The coordinator's answer for an aborted transaction arrives after the next one has asked (ABA)."""

    async def check(log: Log) -> None:
        stale = verified(log, 7)
        finish(log, 7, False)
        fresh = verified(log, 7)
        assert refused(log, transactional(7), stale) == ErrorCode.INVALID_TXN_STATE
        log.writer.append_leader(transactional(7), 0, log.runtime.wall_ms(), verification=fresh)

    on_a_log(check)


def test_a_transaction_of_version_2_begins_with_sequence_0() -> None:
    async def check(log: Log) -> None:
        verification = verified(log, 7, sequence=5, is_new=True)
        code = refused(log, transactional(7, sequence=5), verification)
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        verification = verified(log, 8, sequence=5)
        log.writer.append_leader(transactional(8, sequence=5), 0, log.runtime.wall_ms(), verification=verification)

    on_a_log(check)


def test_pending_verifications_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.producers.VERIFICATIONS_MAX", 3)

    async def check(log: Log) -> None:
        asked = [verified(log, producer_id) for producer_id in range(5)]
        assert refused(log, transactional(0), asked[0]) == ErrorCode.INVALID_TXN_STATE
        log.writer.append_leader(transactional(4), 0, log.runtime.wall_ms(), verification=asked[4])

    on_a_log(check)


def test_the_index_can_be_dumped() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        write(log, 1)
        write(log, 2)
        finish(log, 2, False)
        finish(log, 1, False)
        found = list(dump_aborted(runtime.disk, NAME, 0))
        assert [(one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset) for one in found] == [
            (2, 1, 2, 0),
            (1, 0, 3, 4),
        ]
        assert found[0].file == f"{NAME}/00000000000000000000.txnindex"

    simulate(main)
