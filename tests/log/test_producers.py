"""Idempotence: what is a duplicate, what is out of order, and how long the log remembers."""

from __future__ import annotations

from struct import pack

import pytest
from crc32c import crc32c

from log.helpers import batch, open_log, simulate, stamped
from penstock.log import UNCHECKED, AppendOrigin, Log, LogConfig
from penstock.log.producers import ProducerEntry, ProducerState, SnapshotDamaged, decode_snapshot
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import ControlRecordType, Record, build_batch, control_key

LAST_SEQUENCE = 2**31 - 1


def send(log: Log, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7, wall_ms: int = 0) -> int:
    """Append, and return the first offset, negative for a duplicate."""
    wall_ms = wall_ms or log.runtime.wall_ms()
    records = batch(count, timestamp=wall_ms, producer_id=producer_id, epoch=epoch, sequence=sequence)
    appended = log.writer.append_leader(records, 0, wall_ms)
    assert appended.last_offset - appended.first_offset == count - 1
    return -appended.first_offset if appended.duplicate else appended.first_offset


def refused(log: Log, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    end = log.end_offset
    with pytest.raises(KafkaError) as error:
        send(log, sequence, count, epoch=epoch)
    assert log.end_offset == end
    return error.value.code


def on_a_log(check, config: LogConfig | None = None) -> None:  # type: ignore[no-untyped-def]
    async def main(runtime: SimRuntime) -> None:
        await check(await open_log(runtime, config))

    simulate(main)


def test_any_of_the_last_five_batches_is_recognised_as_a_duplicate() -> None:
    async def check(log: Log) -> None:
        log.writer.append_leader(batch(1), 0, log.runtime.wall_ms())
        offsets = [send(log, 3 * number, 3) for number in range(7)]
        assert offsets == [1, 4, 7, 10, 13, 16, 19]
        assert [send(log, 3 * number, 3) for number in range(2, 7)] == [-7, -10, -13, -16, -19]
        assert refused(log, 3, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.end_offset == 22

    on_a_log(check)


def test_a_batch_with_only_the_same_first_sequence_is_not_a_duplicate() -> None:
    async def check(log: Log) -> None:
        send(log, 0, 3)
        assert refused(log, 0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    on_a_log(check)


def test_a_gap_is_refused() -> None:
    async def check(log: Log) -> None:
        send(log, 0, 2)
        assert refused(log, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, 2) == 2

    on_a_log(check)


def test_sequences_wrap_around() -> None:
    async def check(log: Log) -> None:
        send(log, LAST_SEQUENCE - 1)
        assert send(log, LAST_SEQUENCE) == 1
        assert send(log, 0) == 2
        assert send(log, LAST_SEQUENCE) == -1

    on_a_log(check)


def test_a_batch_may_span_the_wrap() -> None:
    async def check(log: Log) -> None:
        send(log, LAST_SEQUENCE - 1, 4)
        assert send(log, LAST_SEQUENCE - 1, 4) == 0
        assert send(log, 2) == 4

    on_a_log(check)


def test_an_older_epoch_is_fenced() -> None:
    async def check(log: Log) -> None:
        send(log, 0, epoch=3)
        assert refused(log, 1, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH

    on_a_log(check)


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    async def check(log: Log) -> None:
        send(log, 0, 5)
        assert refused(log, 5, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, 0, epoch=1) == 5
        assert refused(log, 5, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH

    on_a_log(check)


def test_an_unknown_producer_may_start_with_any_sequence() -> None:
    """KIP-360: its state may have expired, or was deleted with the records."""

    async def check(log: Log) -> None:
        assert send(log, 41) == 0
        assert send(log, 42) == 1

    on_a_log(check)


def test_a_coordinator_writes_without_sequences() -> None:
    async def check(log: Log) -> None:
        for _ in range(2):
            log.writer.append_leader(batch(1, producer_id=7, epoch=1), 0, 0, origin=AppendOrigin.COORDINATOR)
        with pytest.raises(KafkaError) as error:
            log.writer.append_leader(batch(1, producer_id=7, epoch=0), 0, 0, origin=AppendOrigin.COORDINATOR)
        assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH

    on_a_log(check)


def test_several_batches_at_once_are_all_or_nothing() -> None:
    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        good = batch(2, timestamp=wall_ms, producer_id=7, epoch=0, sequence=0)
        gap = batch(2, timestamp=wall_ms, producer_id=7, epoch=0, sequence=5)
        with pytest.raises(KafkaError):
            log.writer.append_leader(memoryview(bytearray(bytes(good) + bytes(gap))), 0, wall_ms)
        assert log.end_offset == 0
        assert log.producers.get(7) is None
        follows = batch(2, timestamp=wall_ms, producer_id=7, epoch=0, sequence=2)
        appended = log.writer.append_leader(memoryview(bytearray(bytes(good) + bytes(follows))), 0, wall_ms)
        assert (appended.first_offset, appended.last_offset) == (0, 3)
        assert send(log, 4) == 4

    on_a_log(check)


def test_a_follower_learns_what_its_leader_knows() -> None:
    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        data = stamped(batch(3, producer_id=7, epoch=2, sequence=10), 0, 5)
        log.writer.append_follower(memoryview(bytearray(data)))
        assert refused(log, 20, epoch=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.assign_epoch(5)
        records = batch(3, producer_id=7, epoch=2, sequence=10)
        assert log.writer.append_leader(records, 5, runtime.wall_ms()) == (0, 2, -1, True)

    simulate(main)


def test_a_producer_is_forgotten_when_it_has_not_written_for_long() -> None:
    config = LogConfig(producer_id_expiration_ms=1_000)

    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        send(log, 0, producer_id=7, wall_ms=wall_ms)
        send(log, 0, producer_id=8, wall_ms=wall_ms + 600)
        assert log.snapshots.expire(wall_ms + 999) == 0
        assert log.snapshots.expire(wall_ms + 1_000) == 1
        assert log.producers.get(7) is None
        assert log.producers.get(8) is not None

    on_a_log(check, config)


def test_old_timestamps_do_not_make_a_producer_expire() -> None:
    """A producer that replays last year's data is not idle."""

    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        log.writer.append_leader(batch(1, timestamp=1, producer_id=7, epoch=0, sequence=0), 0, wall_ms)
        assert log.snapshots.expire(wall_ms + 1) == 0

    on_a_log(check)


def test_a_duplicate_is_answered_with_its_log_append_time() -> None:
    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        first = log.writer.append_leader(batch(1, producer_id=7, epoch=0, sequence=0), 0, wall_ms)
        assert first == (0, 0, wall_ms, False)
        again = log.writer.append_leader(batch(1, producer_id=7, epoch=0, sequence=0), 0, wall_ms + 50)
        assert again == (0, 0, wall_ms, True)

    on_a_log(check, LogConfig(timestamp_type="LogAppendTime"))


def test_the_first_offset_of_an_open_transaction_is_noted_until_its_marker() -> None:
    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        log.writer.append_leader(
            batch(2, producer_id=7, epoch=0, sequence=0, transactional=True), 0, wall_ms, verification=UNCHECKED
        )
        log.writer.append_leader(
            batch(2, producer_id=7, epoch=0, sequence=2, transactional=True), 0, wall_ms, verification=UNCHECKED
        )
        entry = log.producers.get(7)
        assert entry is not None
        assert entry.transaction_first_offset == 0
        assert refused(log, 4) == ErrorCode.INVALID_TXN_STATE
        marker = Record(key=control_key(ControlRecordType.COMMIT), value=pack(">hi", 0, 13))
        data = build_batch([marker], producer_id=7, producer_epoch=0, transactional=True, control=True)
        log.writer.append_leader(memoryview(bytearray(data)), 0, wall_ms, origin=AppendOrigin.COORDINATOR)
        entry = log.producers.get(7)
        assert entry is not None
        assert (entry.transaction_first_offset, entry.coordinator_epoch) == (-1, 13)
        assert send(log, 4) == 5

    on_a_log(check)


def test_state_survives_a_clean_stop_and_an_unclean_one() -> None:
    disk = SimDisk(0)

    async def write(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(segment_bytes=500))
        for number in range(20):
            send(log, number)

    async def check(runtime: SimRuntime) -> None:
        log = await open_log(runtime, LogConfig(segment_bytes=500))
        assert send(log, 19) == -19
        assert refused(log, 21) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    simulate(write, disk)
    disk.restart(power_loss=False)
    simulate(check, disk)


# ---- the snapshot file


def entry(epoch: int = 3) -> ProducerEntry:
    one = ProducerEntry(epoch)
    one.add(41, 109, 9, 777)
    return one


def test_the_snapshot_has_kafkas_format() -> None:
    state = ProducerState()
    state.adopt({7: (entry(), None, 0)})
    body = pack(">i", 1) + pack(">qhiqiqiq", 7, 3, 41, 109, 9, 777, -1, -1)
    assert state.encode() == pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_keeps_the_batches_of_each_producer() -> None:
    one = entry()
    one.add(42, 200, 0, 888)
    one.transaction_first_offset = 55
    one.coordinator_epoch = 4
    state = ProducerState()
    state.adopt({7: (one, None, 0), 8: (entry(0), None, 0)})
    again = decode_snapshot(state.encode())
    assert len(again) == 2
    read = again.get(7)
    assert read is not None
    assert list(read.batches()) == [(32, 41, 100, 109, 777), (42, 42, 200, 200, 888)]
    assert (read.epoch, read.next_sequence, read.last_append_ms) == (3, 43, 888)
    assert (read.transaction_first_offset, read.coordinator_epoch) == (55, 4)
    assert again.encode() == state.encode()


def test_a_damaged_snapshot_is_not_read() -> None:
    state = ProducerState()
    state.adopt({7: (entry(), None, 0)})
    whole = state.encode()
    for cut in range(len(whole)):
        with pytest.raises(SnapshotDamaged):
            decode_snapshot(whole[:cut])
        flipped = bytearray(whole)
        flipped[cut] ^= 1
        with pytest.raises(SnapshotDamaged):
            decode_snapshot(bytes(flipped))
    with pytest.raises(SnapshotDamaged):
        decode_snapshot(bytes(60))
