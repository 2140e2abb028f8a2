"""Compaction keeps the newest value of each key and its offset: which records it removes and keeps, and when."""

from __future__ import annotations

import pytest

from log.compaction_helpers import (
    CONFIG,
    append,
    batches_of,
    closed,
    compact,
    keyed,
    newest,
    on_a_log,
    records,
    records_of,
)
from log.helpers import open_log, simulate
from penstock.log import Log, LogConfig, LogDirectory
from penstock.log.checkpoints import read_offsets
from penstock.log.compaction import SegmentFacts, cleanable, plan
from penstock.log.compaction_job import MAP_ENTRY_BYTES
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import Record, TimestampType, build_batch

# ---- what stays


def test_the_newest_value_of_each_key_stays_at_its_offset() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        append(log, (b"c", b"1"))
        append(log, (b"b", b"2"), (b"d", b"1"))
        before = await records(log)
        await closed(log)
        assert await compact(log) is not None
        assert await records(log) == [before[2], before[3], before[4], before[5]]
        assert log.end_offset == 6
        assert log.clean_end == 6

    on_a_log(check)


def test_batches_keep_what_readers_and_followers_rely_on() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
        append(log, (b"b", b"2"))
        (before, other) = await batches_of(log)
        await closed(log)
        await compact(log)
        after = await batches_of(log)
        assert after[1] == other
        header = after[0].header
        assert header.records_count == 2
        assert header._replace(records_count=3, crc=0, batch_length=0) == before.header._replace(crc=0, batch_length=0)

    on_a_log(check)


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_stay_compressed(codec: Codec) -> None:
    async def check(log: Log) -> None:
        append(log, *((b"%d" % number, b"x" * 50) for number in range(10)), codec=codec)
        append(log, (b"3", b"new"), codec=codec)
        await closed(log)
        await compact(log)
        first, last = await batches_of(log)
        assert first.header.codec == last.header.codec == codec
        assert newest(records_of([first, last])) == {
            **{b"%d" % number: b"x" * 50 for number in range(10)}, b"3": b"new",
        }  # fmt: skip

    on_a_log(check, CONFIG_LARGE)


CONFIG_LARGE = LogConfig(cleanup_policy="compact", segment_bytes=1 << 20, file_delete_delay_ms=5)


def test_a_batch_that_loses_nothing_is_not_touched() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"))
        append(log, (b"b", b"1"), (b"c", b"1"), codec=Codec.ZSTD)
        before = await batches_of(log)
        await closed(log)
        done = await compact(log)
        assert done is not None
        assert await batches_of(log) == before
        # Nothing was found, so nothing was replaced either.
        assert not [name for name in log.runtime.disk.list(log.directory) if "deleted" in name or "cleaned" in name]

    on_a_log(check)


def test_keys_of_any_length_are_distinguished() -> None:
    lengths = (0, 1, 28, 29, 30, 31, 40, 63, 64, 70, 9000)
    long = [b"k" * length + b"%d" % number for length in lengths for number in (1, 2)]

    async def check(log: Log) -> None:
        for value in (b"old", b"new"):
            for key in [b"", *long]:
                append(log, (key, value))
        await closed(log)
        await compact(log)
        assert newest(await records(log)) == dict.fromkeys([b"", *long], b"new")
        assert len(await records(log)) == len(long) + 1

    on_a_log(check, CONFIG_LARGE)


def test_records_of_many_and_far_apart_offsets_and_times_keep_them() -> None:
    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        steps = (0, 1, 63, 64, 8_000, 9_000, 1_000_000, 3_000_000)
        for value in (b"1", b"2"):
            made = [
                Record(timestamp=wall_ms - steps[n % 8], key=b"%d" % (n % 300), value=value, headers=(("n", b"1"),))
                for n in range(20_000)
            ]
            log.writer.append_leader(memoryview(bytearray(build_batch(made))), 0, wall_ms)
        before = {record.offset: record for record in await records(log)}
        await closed(log)
        await compact(log, map_bytes=16 << 20)
        after = await records(log)
        assert [record.offset for record in after] == list(range(39_700, 40_000))
        assert all(before[record.offset] == record for record in after)

    on_a_log(check, CONFIG_LARGE)


def test_topics_compacted_from_another_policy_lose_records_without_a_key() -> None:
    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        made = [Record(timestamp=wall_ms, value=b"v"), Record(timestamp=wall_ms, key=b"k", value=b"v")]
        log.writer.append_leader(memoryview(bytearray(build_batch(made))), 0, wall_ms)
        log.config = CONFIG
        await closed(log)
        await compact(log)
        assert [record.offset for record in await records(log)] == [1]

    on_a_log(check, LogConfig(segment_bytes=1_000))


def test_a_compacted_topic_refuses_records_without_a_key() -> None:
    async def check(log: Log) -> None:
        wall_ms = log.runtime.wall_ms()
        made = [Record(timestamp=wall_ms, key=b"k", value=b"v"), Record(timestamp=wall_ms, value=b"v")]
        for codec in Codec:
            with pytest.raises(KafkaError) as refused:
                log.writer.append_leader(memoryview(bytearray(build_batch(made, codec=codec))), 0, wall_ms)
            assert refused.value.code == ErrorCode.INVALID_RECORD
        assert log.end_offset == 0

    on_a_log(check)


# ---- tombstones


def test_a_tombstone_stays_until_its_horizon_has_passed() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"), (b"b", b"1"))
        append(log, (b"a", None), (b"c", b"1"))
        sent = (await records(log))[2]
        await closed(log)
        await compact(log)
        began_ms = log.runtime.wall_ms()
        assert [record.key for record in await records(log)] == [b"b", b"a", b"c"]
        kept = (await batches_of(log))[-1]
        horizon_ms = kept.header.delete_horizon_ms
        assert horizon_ms is not None
        assert began_ms - 1_000 < horizon_ms - CONFIG.delete_retention_ms <= began_ms
        # The timestamps are as they were, although they count from another base now.
        assert records_of([kept])[0] == sent
        assert kept.header.max_timestamp == sent.timestamp + 1

        await again(log)
        assert [record.key for record in await records(log)] == [b"b", b"a", b"c", b"x"]
        assert (await batches_of(log))[-2] == kept, "the horizon is set once"
        await log.runtime.sleep(CONFIG.delete_retention_ms)
        await again(log)
        assert [record.key for record in await records(log)] == [b"b", b"c", b"x"]
        assert records_of(await batches_of(log))[1].timestamp == sent.timestamp + 1

    async def again(log: Log) -> None:
        append(log, (b"x", b"1"))
        await closed(log)
        await compact(log)

    on_a_log(check)


def test_a_tombstone_that_is_superseded_goes_at_once() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", None))
        append(log, (b"a", b"1"))
        await closed(log)
        await compact(log)
        assert [(record.offset, record.value) for record in await records(log)] == [(1, b"1")]

    on_a_log(check)


def test_log_append_time_survives_the_horizon() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", None), (b"b", b"1"))
        before = await records(log)
        await closed(log)
        await compact(log)
        assert await records(log) == before
        (header,) = [one.header for one in await batches_of(log)]
        assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
        assert header.delete_horizon_ms is not None

    on_a_log(check, LogConfig(cleanup_policy="compact", timestamp_type="LogAppendTime"))


# ---- what may be compacted


def test_the_active_segment_is_not_compacted() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"))
        append(log, (b"a", b"2"))
        await log.flush()
        assert await compact(log) is None
        await closed(log)
        append(log, (b"a", b"3"))
        await log.flush()
        await compact(log)
        # The key occurs again in what is not compacted: both stay.
        assert [record.value for record in await records(log)] == [b"2", b"3"]

    on_a_log(check)


def test_uncommitted_records_are_not_compacted() -> None:
    async def check(log: Log) -> None:
        for _ in range(3):
            append(log, (b"a", b"1"))
            await closed(log)
        assert (await cleanable(log, 2, 0)).first_uncleanable_offset == 2
        await compact(log, upto=2)
        assert [record.offset for record in await records(log)] == [1, 2]

    on_a_log(check)


def test_records_that_are_not_durable_are_not_compacted() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"))
        log.writer.roll()
        assert (await cleanable(log, log.end_offset, 0)).cleanable_bytes == 0
        await log.flush()
        assert (await cleanable(log, log.end_offset, 0)).cleanable_bytes > 0

    on_a_log(check)


def test_an_open_transaction_holds_compaction_back() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"))
        await closed(log)
        append(log, (b"a", b"2"), producer_id=5, epoch=0, sequence=0, transactional=True)
        await closed(log)
        append(log, (b"a", b"3"))
        await closed(log)
        assert (await cleanable(log, log.end_offset, 0)).first_uncleanable_offset == 1

    on_a_log(check)


def facts(*segments: tuple[int, int, int, int]) -> list[SegmentFacts]:
    return [SegmentFacts(*segment) for segment in segments]


def test_the_dirty_ratio_is_that_of_bytes_that_may_be_compacted() -> None:
    segments = facts((0, 300, 0, 0), (10, 100, 0, 0), (20, 100, 0, 0), (30, 500, 0, 0))
    extent = plan(segments, CONFIG, active_base_offset=40, first_dirty_offset=10, stable_offset=30, wall_ms=0)
    assert (extent.clean_bytes, extent.cleanable_bytes, extent.first_uncleanable_offset) == (300, 200, 30)
    assert extent.dirty_ratio == 0.4
    assert not extent.is_due(LogConfig(min_cleanable_dirty_ratio=0.4))
    assert extent.is_due(LogConfig(min_cleanable_dirty_ratio=0.39))


def test_a_record_younger_than_the_lag_and_all_after_it_are_not_compacted() -> None:
    config = LogConfig(cleanup_policy="compact", min_compaction_lag_ms=100)
    segments = facts((0, 10, 0, 500), (10, 10, 0, 901), (20, 10, 0, 500))
    extent = plan(segments, config, active_base_offset=30, first_dirty_offset=0, stable_offset=30, wall_ms=1_000)
    assert extent.first_uncleanable_offset == 10
    extent = plan(segments, config, active_base_offset=30, first_dirty_offset=0, stable_offset=30, wall_ms=1_001)
    assert extent.first_uncleanable_offset == 30


def test_an_old_record_forces_compaction() -> None:
    config = LogConfig(cleanup_policy="compact", max_compaction_lag_ms=100, min_cleanable_dirty_ratio=1.0)
    segments = facts((0, 1_000, 100, 0), (10, 10, 900, 0))
    at = {"active_base_offset": 20, "first_dirty_offset": 10, "stable_offset": 20}
    assert not plan(segments, config, wall_ms=1_000, **at).is_due(config)
    late = plan(segments, config, wall_ms=1_003, **at)
    assert late.is_due(config)
    assert late.delay_ms == 3
    nothing = plan(segments, config, wall_ms=1_003, **{**at, "stable_offset": 5})
    assert not nothing.is_due(config), "there is nothing it could do"


def test_timestamps_for_the_lags_are_read_after_a_restart() -> None:
    config = LogConfig(
        cleanup_policy="compact", segment_bytes=1_000, min_compaction_lag_ms=1_000, max_compaction_lag_ms=5_000
    )

    async def main(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", config)
        append(log, (b"a", b"1"))
        await closed(log)
        await directory.close()
        again = LogDirectory(runtime)
        await again.load()
        log = await again.open("topic-0", config)
        wall_ms = runtime.wall_ms()
        assert (await cleanable(log, 1, wall_ms)).cleanable_bytes == 0
        assert (await cleanable(log, 1, wall_ms + 1_001)).cleanable_bytes > 0
        assert (await cleanable(log, 1, wall_ms + 1_001)).delay_ms == 0
        assert (await cleanable(log, 1, wall_ms + 6_000)).delay_ms > 0

    simulate(main)


def test_a_segment_is_closed_at_the_age_at_which_it_must_be_compacted() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"))
        await log.runtime.sleep(5_001)
        append(log, (b"a", b"2"))
        assert len(log.segments) == 2

    on_a_log(check, LogConfig(cleanup_policy="compact", max_compaction_lag_ms=5_000))
    with pytest.raises(AssertionError):
        on_a_log(check, LogConfig(cleanup_policy="delete", max_compaction_lag_ms=5_000))


# ---- rounds, merging, checkpoints


def test_more_keys_than_the_map_takes_need_several_rounds() -> None:
    async def check(log: Log) -> None:
        for value in (b"1", b"2"):
            for number in range(40):
                append(log, (b"%d" % number, value))
        await closed(log)
        rounds = 0
        while await compact(log, map_bytes=10 * MAP_ENTRY_BYTES):
            rounds += 1
        assert rounds == 8
        assert newest(await records(log)) == {b"%d" % number: b"2" for number in range(40)}
        assert len(await records(log)) == 40

    on_a_log(check)


def test_a_batch_with_more_keys_than_the_map_takes_is_compacted_all_the_same() -> None:
    async def check(log: Log) -> None:
        for _ in range(3):
            append(log, *((b"%d" % number, b"v") for number in range(30)))
        await closed(log)
        while await compact(log, map_bytes=MAP_ENTRY_BYTES):
            pass
        assert [record.offset for record in await records(log)] == list(range(60, 90))

    on_a_log(check)


def test_small_segments_are_merged_up_to_the_size_of_one() -> None:
    async def check(log: Log) -> None:
        for number in range(60):
            append(log, (b"a", b"%d" % number * 20))
        await closed(log)
        await compact(log)
        before = len(log.segments)
        append(log, (b"b", b"1"))
        await closed(log)
        await compact(log)
        assert len(log.segments) < before / 2
        assert all(segment.size_bytes <= CONFIG.segment_bytes for segment in log.segments)
        ends = [segment.end_offset for segment in log.segments[:-1]]
        assert ends == [segment.base_offset for segment in log.segments[1:]]
        assert [record.offset for record in await records(log)] == [59, 60]

    on_a_log(check)


def test_the_compacted_offset_is_saved_in_kafkas_checkpoint() -> None:
    async def main(runtime: SimRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", CONFIG)
        append(log, (b"a", b"1"), (b"a", b"2"))
        await closed(log)
        await compact(log)
        await directory.checkpoint()
        assert read_offsets(runtime.disk, "cleaner-offset-checkpoint") == {"topic-0": 2}
        await directory.close()
        again = LogDirectory(runtime)
        await again.load()
        log = await again.open("topic-0", CONFIG)
        assert log.clean_end == 2
        await log.trimmer.truncate_to(1)
        assert log.clean_end == log.end_offset < 2
        assert read_offsets(runtime.disk, "cleaner-offset-checkpoint").get("topic-0", 0) < 2
        await again.delete("topic-0")
        assert read_offsets(runtime.disk, "cleaner-offset-checkpoint") == {}

    simulate(main)


def test_an_unreadable_cleaner_checkpoint_only_costs_work() -> None:
    async def main(runtime: SimRuntime) -> None:
        runtime.disk.open("cleaner-offset-checkpoint", create=True).pwrite(b"rubbish", 0)
        directory = LogDirectory(runtime)
        await directory.load()
        assert (await directory.open("topic-0", CONFIG)).clean_end == 0

    simulate(main)


# ---- idempotent producers


def test_the_last_sequence_of_a_live_producer_is_kept() -> None:
    """All its records may be superseded: the header stays, so that a recovery knows its last sequence."""

    async def fill(runtime: SimRuntime) -> None:
        log = await open_log(runtime, CONFIG)
        append(log, (b"a", b"1"), (b"b", b"1"), producer_id=7, epoch=3, sequence=0)
        append(log, (b"a", b"2"), (b"b", b"2"), producer_id=7, epoch=3, sequence=2)
        append(log, (b"a", b"3"), (b"b", b"3"))
        append(log, (b"c", b"1"))
        await closed(log)
        await compact(log)
        empty = (await batches_of(log))[0].header
        assert (empty.records_count, empty.base_offset, empty.last_offset) == (0, 2, 3)
        assert (empty.producer_id, empty.producer_epoch, empty.last_sequence) == (7, 3, 3)
        assert newest(await records(log)) == {b"a": b"3", b"b": b"3", b"c": b"1"}

    async def look(runtime: SimRuntime) -> None:
        for name in runtime.disk.list("topic-0"):
            if name.endswith(".snapshot"):
                runtime.disk.unlink(f"topic-0/{name}")
        log = await open_log(runtime, CONFIG)
        entry = log.producers.get(7)
        assert entry is not None
        assert (entry.epoch, entry.last_sequence, entry.last_offset) == (3, 3, 3)
        again = keyed([(b"a", b"2"), (b"b", b"2")], timestamp=runtime.wall_ms(), producer_id=7, epoch=3, sequence=2)
        assert log.writer.append_leader(again, 0, runtime.wall_ms()).duplicate

    disk = SimDisk(1)
    simulate(fill, disk)
    disk.restart(power_loss=False)
    simulate(look, disk)


def test_batches_of_an_expired_producer_are_removed_completely() -> None:
    async def check(log: Log) -> None:
        append(log, (b"a", b"1"), producer_id=7, epoch=0, sequence=0)
        append(log, (b"a", b"2"))
        await closed(log)
        log.snapshots.expire(log.runtime.wall_ms() + CONFIG.producer_id_expiration_ms)
        await compact(log)
        assert [one.first for one in await batches_of(log)] == [1]

    on_a_log(check)
