"""Appending: which batches are refused with which code, what is changed in a batch, and when a segment is rolled."""

from __future__ import annotations

from struct import pack_into

import pytest

from log.helpers import WALL_MS, batch, contents, open_log, simulate, slice_bytes, stamped, stored
from penstock.log import AppendOrigin, Log, LogConfig, TimeSearch
from penstock.sim.disk import SimDisk
from penstock.sim.host import ProcessEnded
from penstock.sim.runtime import SimRuntime
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import Record, TimestampType, build_batch, check_batch, seal


def on_a_log(check, config: LogConfig | None = None) -> None:  # type: ignore[no-untyped-def]
    async def main(runtime: SimRuntime) -> None:
        await check(await open_log(runtime, config))

    simulate(main)


def changed(position: int, form: str, value: int, *, sealed: bool = True, **options: object) -> memoryview:
    """A batch with one field of its header changed."""
    records = batch(3, **options)  # type: ignore[arg-type]
    pack_into(form, records, position, value)
    if sealed:
        seal(records)
    return records


BAD = {
    "nothing at all": (memoryview(bytearray()), ErrorCode.INVALID_RECORD),
    "a few bytes": (memoryview(bytearray(20)), ErrorCode.INVALID_RECORD),
    "cut off": (batch(3)[:-1], ErrorCode.CORRUPT_MESSAGE),
    "one byte too many": (memoryview(bytearray(bytes(batch(3)) + b"\0")), ErrorCode.CORRUPT_MESSAGE),
    "negative length": (changed(8, ">i", -5), ErrorCode.CORRUPT_MESSAGE),
    "length of nothing": (changed(8, ">i", 0), ErrorCode.CORRUPT_MESSAGE),
    "length beyond": (changed(8, ">i", 2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
    "format 1": (changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "format 3": (changed(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "flipped bit": (changed(70, ">b", 1, sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "unknown codec": (changed(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no records": (changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "negative count": (changed(57, ">i", -1), ErrorCode.INVALID_RECORD),
    "too small a delta": (changed(23, ">i", 1), ErrorCode.INVALID_RECORD),
    "negative delta": (changed(23, ">i", -1), ErrorCode.INVALID_RECORD),
    "a base offset": (changed(0, ">q", 5), ErrorCode.INVALID_RECORD),
    "control records": (batch(1, control=True), ErrorCode.INVALID_RECORD),
    "a delete horizon": (changed(21, ">h", 0x40), ErrorCode.INVALID_RECORD),
    "the broker's timestamp type": (changed(21, ">h", 8), ErrorCode.INVALID_TIMESTAMP),
    "a producer without sequence": (batch(1, producer_id=5, epoch=0), ErrorCode.INVALID_RECORD),
    "a producer without epoch": (batch(1, producer_id=5, sequence=0), ErrorCode.INVALID_RECORD),
    "from the future": (batch(1, timestamp=WALL_MS + 4_000_000), ErrorCode.INVALID_TIMESTAMP),
    "too large": (batch(1, size=3_000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_batch_is_refused_and_changes_nothing(name: str) -> None:
    records, code = BAD[name]

    async def check(log: Log) -> None:
        log.writer.append_leader(batch(2), 0, WALL_MS)
        size = log.size_bytes
        with pytest.raises(KafkaError) as error:
            log.writer.append_leader(memoryview(bytearray(records)), 1, WALL_MS)
        assert error.value.code == code
        assert error.value.message
        assert (log.end_offset, log.size_bytes, log.latest_epoch) == (2, size, 0)
        assert log.writer.append_leader(batch(1), 0, WALL_MS).first_offset == 2

    on_a_log(check, LogConfig(max_message_bytes=2_000))


def test_impossible_record_counts_are_refused() -> None:
    records = batch(1)
    pack_into(">i", records, 57, 1_000_000)
    pack_into(">i", records, 23, 999_999)
    seal(records)

    async def check(log: Log) -> None:
        with pytest.raises(KafkaError) as error:
            log.writer.append_leader(records, 0, WALL_MS)
        assert error.value.code == ErrorCode.INVALID_RECORD

    on_a_log(check)


def test_one_bad_batch_of_several_refuses_all() -> None:
    async def check(log: Log) -> None:
        both = bytearray(bytes(batch(2)) + bytes(batch(1, control=True)))
        with pytest.raises(KafkaError):
            log.writer.append_leader(memoryview(both), 0, WALL_MS)
        assert log.end_offset == 0

    on_a_log(check)


def test_a_leader_stamps_offset_and_epoch_and_nothing_else() -> None:
    async def check(log: Log) -> None:
        log.writer.append_leader(batch(4), 3, WALL_MS)
        records = batch(3, codec=Codec.LZ4, size=200)
        before = bytes(records)
        appended = log.writer.append_leader(records, 3, WALL_MS)
        assert appended == (4, 6, -1, False)
        assert bytes(records) == stamped(memoryview(before), 4, 3)
        assert check_batch(records).partition_leader_epoch == 3
        assert (await contents(log))[1].data == bytes(records)

    on_a_log(check)


def test_several_batches_are_written_with_one_write() -> None:
    disk = SimDisk(0)

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        log.writer.append_leader(batch(1), 0, WALL_MS)
        before = disk.operations
        three = memoryview(bytearray(b"".join(bytes(batch(count)) for count in (1, 2, 3))))
        assert log.writer.append_leader(three, 0, WALL_MS) == (1, 6, -1, False)
        assert disk.operations == before + 1
        assert [one.first for one in await contents(log)] == [0, 1, 2, 4]

    simulate(main, disk)


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_replaces_the_timestamps(codec: Codec) -> None:
    async def check(log: Log) -> None:
        appended = log.writer.append_leader(batch(3, timestamp=5, codec=codec, size=100), 0, WALL_MS)
        assert appended == (0, 2, WALL_MS, False)
        data = await slice_bytes(log, 0)
        header = check_batch(data)
        assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
        assert header.max_timestamp == WALL_MS
        found = await TimeSearch(log).offset_for_timestamp(WALL_MS, 3)
        assert found is not None
        assert found.offset == 0

    on_a_log(check, LogConfig(timestamp_type="LogAppendTime"))


def test_records_that_are_too_old_are_refused_one_by_one() -> None:
    config = LogConfig(timestamp_before_max_ms=1_000)
    records = [Record(timestamp=WALL_MS, value=b"new"), Record(timestamp=WALL_MS - 1_001, value=b"old")]

    async def check(log: Log) -> None:
        with pytest.raises(KafkaError) as error:
            log.writer.append_leader(memoryview(bytearray(build_batch(records))), 0, WALL_MS)
        assert error.value.code == ErrorCode.INVALID_TIMESTAMP
        log.writer.append_leader(memoryview(bytearray(build_batch(records[:1]))), 0, WALL_MS)
        log.writer.append_leader(memoryview(bytearray(build_batch([Record(value=b"no time")]))), 0, WALL_MS)

    on_a_log(check, config)


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    async def check(log: Log) -> None:
        log.writer.append_leader(batch(2), 0, WALL_MS)
        with pytest.raises(KafkaError) as error:
            log.writer.append_leader(memoryview(bytearray(build_batch([Record(value=b"v")]))), 0, WALL_MS)
        assert error.value.code == ErrorCode.INVALID_RECORD

    on_a_log(check, LogConfig(cleanup_policy="compact"))


def test_the_quorum_may_write_large_control_records() -> None:
    async def check(log: Log) -> None:
        records = batch(1, control=True, size=5_000)
        appended = log.writer.append_leader(records, 4, WALL_MS, origin=AppendOrigin.RAFT_LEADER)
        assert appended.first_offset == 0

    on_a_log(check, LogConfig(max_message_bytes=1_000))


def test_an_older_leader_epoch_is_fenced() -> None:
    async def check(log: Log) -> None:
        log.writer.append_leader(batch(1), 5, WALL_MS)
        with pytest.raises(KafkaError) as error:
            log.writer.append_leader(batch(1), 4, WALL_MS)
        assert error.value.code == ErrorCode.FENCED_LEADER_EPOCH

    on_a_log(check)


def test_an_epoch_begins_at_its_first_batch() -> None:
    async def check(log: Log) -> None:
        for epoch, count in ((0, 3), (0, 2), (2, 4), (5, 1)):
            log.writer.append_leader(batch(count), epoch, WALL_MS)
        assert log.epochs.entries == [(0, 0), (2, 5), (5, 9)]
        assert log.epoch_end_offset(1) == (0, 5)
        assert log.epoch_end_offset(5) == (5, 10)
        log.trimmer.advance_start_offset(7)
        assert log.epoch_end_offset(0) == (0, 7)

    on_a_log(check)


# ---- following


def test_a_follower_appends_complete_batches_unchanged_and_ignores_an_incomplete_last_one() -> None:
    async def check(log: Log) -> None:
        data = stamped(batch(3), 0, 2) + stamped(batch(2), 3, 4)
        appended = log.writer.append_follower(memoryview(bytearray(data + stamped(batch(9), 5, 4)[:50])))
        assert appended == (0, 4, -1, False)
        assert log.epochs.entries == [(2, 0), (4, 3)]
        assert b"".join(one.data for one in await contents(log)) == data
        assert log.writer.append_follower(memoryview(bytearray(b"short"))) == (5, 4, -1, False)

    on_a_log(check)


@pytest.mark.parametrize(("offset", "epoch"), [(1, 3), (2, 2)], ids=["overlap", "older epoch"])
def test_a_follower_refuses_batches_that_do_not_continue_its_log(offset: int, epoch: int) -> None:
    async def check(log: Log) -> None:
        log.writer.append_follower(memoryview(bytearray(stamped(batch(2), 0, 3))))
        with pytest.raises(KafkaError):
            log.writer.append_follower(memoryview(bytearray(stamped(batch(2), offset, epoch))))
        assert log.end_offset == 2

    on_a_log(check)


def test_a_follower_refuses_a_batch_too_far_ahead_for_any_segment() -> None:
    async def check(log: Log) -> None:
        for offset in (2**31, 2**40, 2**63 - 3):
            with pytest.raises(KafkaError, match="too far beyond 0"):
                log.writer.append_follower(memoryview(bytearray(stamped(batch(2), offset, 0))))
        assert log.end_offset == 0

    on_a_log(check)


def test_a_follower_accepts_gaps_in_a_compacted_log() -> None:
    async def check(log: Log) -> None:
        log.writer.append_follower(memoryview(bytearray(stamped(batch(2), 0, 0) + stamped(batch(2), 10, 0))))
        assert log.end_offset == 12
        assert stored(await slice_bytes(log, 5))[0].first == 10

    on_a_log(check, LogConfig(cleanup_policy="compact"))


# ---- rolling


def test_a_full_segment_is_rolled() -> None:
    async def check(log: Log) -> None:
        size = len(batch(1, size=100))
        for _ in range(10):
            log.writer.append_leader(batch(1, size=100), 0, WALL_MS)
        assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
        assert all(segment.size_bytes <= 3 * size for segment in log.segments)
        assert len(await contents(log)) == 10

    on_a_log(check, LogConfig(segment_bytes=3 * len(batch(1, size=100))))


def test_a_request_larger_than_a_segment_is_refused() -> None:
    async def check(log: Log) -> None:
        four = memoryview(bytearray(b"".join(bytes(batch(1, size=100)) for _ in range(4))))
        with pytest.raises(KafkaError) as error:
            log.writer.append_leader(four, 0, WALL_MS)
        assert error.value.code == ErrorCode.RECORD_LIST_TOO_LARGE

    on_a_log(check, LogConfig(segment_bytes=3 * len(batch(1, size=100))))


def test_a_segment_is_rolled_when_its_batches_get_too_old() -> None:
    async def check(log: Log) -> None:
        for timestamp in (1_000, 5_000, 11_000, 11_001, 12_000):
            log.writer.append_leader(batch(1, timestamp=timestamp), 0, WALL_MS)
        assert [segment.base_offset for segment in log.segments] == [0, 3]

    on_a_log(check, LogConfig(segment_ms=10_000))


def test_jitter_rolls_earlier_never_later() -> None:
    async def main(runtime: SimRuntime) -> None:
        rolled = []
        for number in range(20):
            config = LogConfig(segment_ms=1_000, segment_jitter_ms=500)
            log = await Log.open(runtime, f"t-{number}", config, clean=False, recovery_point=0, start_offset=0)
            log.writer.append_leader(batch(1, timestamp=0), 0, WALL_MS)
            timestamp = next(t for t in range(1, 2_000) if _rolls(log, t))
            rolled.append(timestamp)
        assert all(500 < timestamp <= 1_001 for timestamp in rolled)
        assert len(set(rolled)) > 5

    def _rolls(log: Log, timestamp: int) -> bool:
        log.writer.append_leader(batch(1, timestamp=timestamp), 0, WALL_MS)
        return len(log.segments) > 1

    simulate(main)


def test_a_full_index_rolls_the_segment() -> None:
    async def check(log: Log) -> None:
        for _ in range(12):
            log.writer.append_leader(batch(1, size=100), 0, WALL_MS)
        assert len(log.segments) > 1
        assert len(await contents(log)) == 12

    on_a_log(check, LogConfig(index_interval_bytes=10, segment_index_bytes=40))


def test_rolling_an_empty_segment_does_nothing() -> None:
    async def check(log: Log) -> None:
        log.writer.roll()
        log.writer.append_leader(batch(1), 0, WALL_MS)
        log.writer.roll()
        log.writer.roll()
        assert [segment.base_offset for segment in log.segments] == [0, 1]

    on_a_log(check)


def test_config_changes_take_effect_at_once() -> None:
    async def check(log: Log) -> None:
        log.writer.append_leader(batch(1, size=500), 0, WALL_MS)
        log.config = LogConfig(max_message_bytes=300)
        with pytest.raises(KafkaError):
            log.writer.append_leader(batch(1, size=500), 0, WALL_MS)
        log.config = LogConfig(segment_bytes=300)
        log.writer.append_leader(batch(1), 0, WALL_MS)
        assert len(log.segments) == 2

    on_a_log(check)


# ---- the disk fails


def test_a_full_disk_ends_the_process_and_no_append_is_reported() -> None:
    disk = SimDisk(0)
    reported = []

    async def main(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        log.writer.append_leader(batch(1), 0, WALL_MS)
        disk.fill(free_bytes=30)
        reported.append(log.writer.append_leader(batch(1), 0, WALL_MS))

    with pytest.raises(ProcessEnded, match="no space"):
        simulate(main, disk)
    assert reported == []
    disk.capacity_bytes = 1 << 40
    disk.restart(power_loss=False)

    async def again(runtime: SimRuntime) -> None:
        log = await open_log(runtime)
        assert log.end_offset == 1

    simulate(again, disk)
