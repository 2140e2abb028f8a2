"""Where things are in a log: ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from typing import Any

import pytest

from broker.session import EARLIEST, LATEST, Session, batch, is_recovered, simulated, versions
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -3, -4, -5, -6
FIRST_VERSION_OF = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
T = 1_750_001_000_000


async def list_offsets(s: Session, timestamp: int, version: int = 10, **entry: Any) -> Any:
    wanted = ListOffsetsPartition(timestamp=timestamp, **entry)
    topics = [ListOffsetsTopic(name="t", partitions=[wanted])]
    return (await s.call(ListOffsetsRequest(replica_id=-1, topics=topics), version)).topics[0].partitions[0]


async def delete_records(s: Session, offset: int, topic: str = "t", partition: int = 0) -> Any:
    entry = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[entry])], timeout_ms=1000)
    return (await s.call(request)).topics[0].partitions[0]


async def epoch_end(s: Session, epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
    entry = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[entry])])
    found = (await s.call(request)).topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


async def crash_and_restart(s: Session) -> None:
    await s.restarted()


# ---- ListOffsets


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
@simulated()
async def test_special_timestamps_are_served_from_the_version_that_has_them(s: Session, version: int) -> None:
    await s.create("t")
    for timestamp, first_version in FIRST_VERSION_OF.items():
        found = await list_offsets(s, timestamp, version)
        expected = ErrorCode.NONE if version >= first_version else ErrorCode.UNSUPPORTED_VERSION
        assert found.error_code == expected, timestamp
    assert (await list_offsets(s, -7, version)).error_code == ErrorCode.UNSUPPORTED_VERSION


@simulated()
async def test_an_empty_log_has_ends_but_no_times(s: Session) -> None:
    await s.create("t")
    for timestamp, offset in {LATEST: 0, EARLIEST: 0, EARLIEST_LOCAL: 0, MAX_TIMESTAMP: -1, T: -1, 0: -1}.items():
        found = await list_offsets(s, timestamp)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1), timestamp


@simulated()
async def test_a_moment_is_found_inside_batches_and_across_segments(s: Session) -> None:
    await s.create("t", **{"internal.segment.bytes": "500"})
    for number in range(40):
        records = batch(b"a", b"b", b"c", timestamp=T + 100 * number)
        assert (await s.produce("t", records=records)).error_code == 0
    log = s.node.served.manager.table.find(b"t", 0).log
    assert len(log.segments) > 5
    for number in (0, 1, 17, 38, 39):
        for step in range(3):
            found = await list_offsets(s, T + 100 * number + step)
            assert (found.offset, found.timestamp) == (3 * number + step, T + 100 * number + step)
        later = await list_offsets(s, T + 100 * number + 3)
        assert later.offset == (3 * number + 3 if number < 39 else -1)
    assert (await list_offsets(s, 0)).offset == 0


@simulated()
async def test_the_largest_timestamp_may_be_anywhere(s: Session) -> None:
    await s.create("t", **{"internal.segment.bytes": "500"})
    for number in range(20):
        await s.produce("t", records=batch(b"a", b"b", timestamp=T + (10_000 if number == 7 else number)))
    found = await list_offsets(s, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (15, T + 10_001)


@simulated()
async def test_offsets_follow_deleted_records(s: Session) -> None:
    await s.create("t")
    await s.produce("t", records=batch(*(b"%d" % n for n in range(10)), timestamp=T))
    assert (await delete_records(s, 4)).low_watermark == 4
    assert (await list_offsets(s, EARLIEST)).offset == 4
    assert (await list_offsets(s, EARLIEST_LOCAL)).offset == 4
    assert (await list_offsets(s, T)).offset == 4
    assert (await list_offsets(s, LATEST)).offset == 10


@simulated()
async def test_list_offsets_knows_its_epochs_and_its_partitions(s: Session) -> None:
    await s.create("t")
    await crash_and_restart(s)
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, T):
        assert (await list_offsets(s, timestamp, current_leader_epoch=1)).error_code == 0
        fenced = await list_offsets(s, timestamp, current_leader_epoch=0)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        unknown = await list_offsets(s, timestamp, current_leader_epoch=2)
        assert unknown.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        missing = await list_offsets(s, timestamp, partition_index=9)
        assert (missing.error_code, missing.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# ---- OffsetForLeaderEpoch


@simulated()
async def test_the_end_of_every_epoch_is_known(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"0", b"1")
    await crash_and_restart(s)
    await s.produce("t", b"2")
    await crash_and_restart(s)
    assert await epoch_end(s, 0) == (0, 0, 2)
    assert await epoch_end(s, 1) == (0, 1, 3)
    assert await epoch_end(s, 2, current=2) == (0, 2, 3)
    assert await epoch_end(s, 3) == (0, -1, -1)
    assert await epoch_end(s, 0, current=1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert await epoch_end(s, 0, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert await epoch_end(s, 0, partition=5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


# ---- DeleteRecords


@simulated()
async def test_deleted_records_stay_deleted_after_a_crash(s: Session) -> None:
    await s.create("t")
    await s.produce("t", *(b"%d" % n for n in range(10)))
    assert (await delete_records(s, 6)).low_watermark == 6
    await s.restarted(power_loss=True)
    assert await s.offset("t", EARLIEST) == 6


@simulated()
async def test_deleting_records_never_goes_back_nor_beyond_the_end(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"0", b"1", b"2")
    assert (await delete_records(s, 2)).low_watermark == 2
    assert (await delete_records(s, 1)).low_watermark == 2
    for offset in (4, -2, 1 << 62):
        refused = await delete_records(s, offset)
        assert (refused.error_code, refused.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert (await delete_records(s, -1)).low_watermark == 3
    assert (await s.produce("t", b"3")).base_offset == 3
    assert await s.values("t") == [b"3"]
    assert (await delete_records(s, 0, partition=7)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await delete_records(s, 0, topic="nowhere")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated({"log.retention.check.interval.ms": "1000"})
async def test_segments_below_the_new_start_are_removed(s: Session) -> None:
    await s.create("t", **{"internal.segment.bytes": "300", "file.delete.delay.ms": "0"})
    for number in range(30):
        await s.produce("t", b"%d" % number)
    log = s.node.served.manager.table.find(b"t", 0).log
    before = log.size_bytes
    await delete_records(s, 25)
    await s.until(lambda: log.size_bytes < before / 2, limit_ms=60_000)
    assert await s.values("t") == [b"%d" % number for number in range(25, 30)]


@pytest.mark.parametrize(
    ("version", "error"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
@simulated()
async def test_the_end_is_not_told_before_it_is_known_again_after_a_crash(
    s: Session, version: int, error: ErrorCode
) -> None:
    """KIP-207: what was acknowledged must not seem to be gone while the log is synced once more."""
    await s.create("t", flush_messages="1")
    await s.produce("t", b"0", b"1")
    s.node.host.kill()
    s.node.host.disk.slowness = 200.0
    s.node.begin()
    await s.until(lambda: s.node.ready and not s.node.served.manager.recovering, step_ms=1)
    await s.reconnect()
    early = [await list_offsets(s, timestamp, version) for timestamp in (LATEST, T + 10)]
    assert [found.error_code for found in early] == [error, error]
    assert (await list_offsets(s, EARLIEST, version)).offset == 0
    s.node.host.disk.slowness = 1.0
    await s.until(lambda: is_recovered(s.node))
    assert (await list_offsets(s, LATEST, version)).offset == 2
