"""What Fetch returns, when it waits, and what it refuses, beyond what every version does."""

from __future__ import annotations

from typing import Any

import pytest

from broker.session import Session, batch, fetch_request, records_of, simulated, versions
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

OTHER_ID = bytes(15) + b"\7"
LONG_WAIT_MS = 5_000


def wanted(*parts: FetchPartition, topic: str = "t", **options: Any) -> FetchRequest:
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=list(parts))], **options)


# ---- what comes back


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
@simulated()
async def test_every_partition_is_answered_on_its_own(s: Session, version: int) -> None:
    topic_id = await s.create("t", partitions=2)
    await s.produce("t", b"x", partition=1)

    def topic(name: str, known_id: bytes, *parts: FetchPartition) -> FetchTopic:
        named = {"topic_id": known_id} if version >= 13 else {"topic": name}
        return FetchTopic(**named, partitions=list(parts))

    request = FetchRequest(
        topics=[
            topic(
                "t",
                topic_id,
                FetchPartition(partition=0, partition_max_bytes=1000),
                FetchPartition(partition=1, partition_max_bytes=1000),
                FetchPartition(partition=1 << 20, partition_max_bytes=1000),
            ),
            topic("nowhere", OTHER_ID, FetchPartition(partition=0, partition_max_bytes=1000)),
        ]
    )
    known, unknown = (await s.call(request, version)).responses
    assert [(part.partition_index, part.error_code, part.high_watermark) for part in known.partitions] == [
        (0, ErrorCode.NONE, 0),
        (1, ErrorCode.NONE, 1),
        (1 << 20, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert [record.value for record in records_of(known.partitions[1])] == [b"x"]
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.partitions[0].error_code == expected


@simulated()
async def test_a_fetch_from_the_middle_of_a_batch_returns_the_whole_batch(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"0", b"1", b"2")
    await s.produce("t", b"3")
    for offset in (0, 1, 2):
        assert [record.offset for record in records_of(await s.fetch("t", offset))] == [0, 1, 2, 3]
    assert [record.offset for record in records_of(await s.fetch("t", 3))] == [3]
    assert (await s.fetch("t", 4)).records == b""


@pytest.mark.parametrize("offset", [-1, 5, 1 << 60, -(1 << 60)])
@simulated()
async def test_an_offset_that_the_log_does_not_have_is_out_of_range(s: Session, offset: int) -> None:
    await s.create("t")
    await s.produce("t", b"0", b"1")
    data = await s.fetch("t", offset)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not data.records


@simulated()
async def test_offsets_below_the_log_start_are_out_of_range(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"0", b"1", b"2")
    entry = DeleteRecordsPartition(partition_index=0, offset=2)
    await s.call(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[entry])]))
    assert (await s.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = await s.fetch("t", 2)
    assert (data.error_code, data.log_start_offset) == (0, 2)


# ---- limits


@pytest.mark.parametrize("limit", [1, 0, -1, -(1 << 31)])
@simulated()
async def test_one_batch_goes_out_however_small_the_limits(s: Session, limit: int) -> None:
    await s.create("t", partitions=2)
    for partition in (0, 1):
        for value in (b"first", b"second"):
            await s.produce("t", value, partition=partition)
    both: list[dict[str, Any]] = [{"max_bytes": limit}, {"partition_max_bytes": limit}]
    for limits in both:
        data = await s.fetch("t", **limits)
        assert [record.value for record in records_of(data)] == [b"first"], limits
    parts = [FetchPartition(partition=number, partition_max_bytes=limit) for number in (0, 1)]
    answer = await s.call(wanted(*parts), 12)
    sizes = [len(part.records) for part in answer.responses[0].partitions]
    assert sizes == [len(batch(b"first")), 0], "only the first is worth going over the limit"


@simulated()
async def test_limits_cut_at_the_end_of_a_batch(s: Session) -> None:
    await s.create("t", partitions=2)
    size = len(batch(bytes(1000)))
    for _ in range(10):
        await s.produce("t", bytes(1000), partition=0)
        await s.produce("t", bytes(1000), partition=1)
    assert len((await s.fetch("t", partition_max_bytes=3 * size + 5)).records or b"") == 3 * size
    assert len((await s.fetch("t", max_bytes=4 * size)).records or b"") == 4 * size
    parts = [FetchPartition(partition=number, partition_max_bytes=7 * size) for number in (0, 1)]
    answer = await s.call(wanted(*parts, max_bytes=9 * size), 12)
    sizes = [len(part.records) for part in answer.responses[0].partitions]
    assert all(0 < one <= 7 * size and one % size == 0 for one in sizes), sizes
    assert sum(sizes) <= 9 * size


@simulated({"fetch.max.bytes": "5000"})
async def test_the_broker_has_a_limit_of_its_own(s: Session) -> None:
    await s.create("t")
    for _ in range(10):
        await s.produce("t", bytes(1000))
    assert len(records_of(await s.fetch("t"))) == 4


# ---- waiting


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
@simulated()
async def test_an_empty_log_is_waited_for_until_the_time_is_over(s: Session, version: int) -> None:
    topic_id = await s.create("t")
    name: str | bytes = topic_id if version >= 13 else "t"
    began_ms = s.runtime.now_ms()
    answer = await s.call(fetch_request(name, max_wait_ms=LONG_WAIT_MS, min_bytes=1), version)
    assert LONG_WAIT_MS <= s.runtime.now_ms() - began_ms < LONG_WAIT_MS + 100
    assert answer.responses[0].partitions[0].error_code == 0


@simulated()
async def test_a_waiting_fetch_is_answered_as_soon_as_enough_is_there(s: Session) -> None:
    await s.create("t")
    reader = await s.connect()
    size = len(batch(b"x"))
    waiting = reader.send(fetch_request("t", max_wait_ms=LONG_WAIT_MS, min_bytes=2 * size), 12)
    await s.runtime.sleep(100)
    await s.produce("t", b"x")
    await s.runtime.sleep(100)
    assert not waiting.has_come, "half of what it wants is not enough"
    began_ms = s.runtime.now_ms()
    await s.produce("t", b"y")
    (part,) = (await waiting).responses[0].partitions
    assert s.runtime.now_ms() - began_ms < 50
    assert [record.value for record in records_of(part)] == [b"x", b"y"]


@simulated()
async def test_what_is_there_is_returned_when_the_time_is_over(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"x")
    began_ms = s.runtime.now_ms()
    data = await s.fetch("t", max_wait_ms=700, min_bytes=1 << 20)
    assert 700 <= s.runtime.now_ms() - began_ms < 800
    assert [record.value for record in records_of(data)] == [b"x"]


@simulated()
async def test_an_error_is_not_waited_with(s: Session) -> None:
    await s.create("t")
    began_ms = s.runtime.now_ms()
    for request in (
        fetch_request("nowhere", max_wait_ms=LONG_WAIT_MS, min_bytes=1),
        fetch_request("t", 17, max_wait_ms=LONG_WAIT_MS, min_bytes=1),
        fetch_request("t", leader_epoch=4, max_wait_ms=LONG_WAIT_MS, min_bytes=1),
    ):
        assert (await s.call(request, 12)).responses[0].partitions[0].error_code != 0
    assert s.runtime.now_ms() - began_ms < 100


@simulated()
async def test_a_waiting_fetch_learns_that_its_topic_is_gone(s: Session) -> None:
    topic_id = await s.create("t")
    by_name, by_id = await s.connect(), await s.connect()
    first = by_name.send(fetch_request("t", max_wait_ms=LONG_WAIT_MS, min_bytes=1), 12)
    second = by_id.send(fetch_request(topic_id, max_wait_ms=LONG_WAIT_MS, min_bytes=1), 16)
    await s.runtime.sleep(10)
    began_ms = s.runtime.now_ms()
    await s.delete("t")
    assert (await first).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await second).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert s.runtime.now_ms() - began_ms < 200


@simulated()
async def test_many_readers_wake_for_one_write(s: Session) -> None:
    """More than are woken in one turn of the loop."""
    await s.create("t")
    readers = [await s.connect() for _ in range(600)]
    waiting = [reader.send(fetch_request("t", max_wait_ms=60_000, min_bytes=1), 12) for reader in readers]
    await s.runtime.sleep(200)
    began_ms = s.runtime.now_ms()
    await s.produce("t", b"x")
    for answer in waiting:
        assert len(records_of((await answer).responses[0].partitions[0])) == 1
    assert s.runtime.now_ms() - began_ms < 1_000


@simulated()
async def test_a_reader_that_goes_away_while_it_waits_leaves_nothing_behind(s: Session) -> None:
    await s.create("t")
    readers = [await s.connect() for _ in range(20)]
    for number, reader in enumerate(readers):
        reader.post(fetch_request("t", max_wait_ms=60_000, min_bytes=1), 12)
        await s.runtime.sleep(5)
        reader.frames.abort() if number % 2 else reader.close()
    await s.runtime.sleep(200)
    partition = s.node.served.manager.table.find(b"t", 0)
    assert partition is not None
    assert len(partition.fetch_waiters) == 0
    assert s.node.served.service.connection_count == 1


# ---- leader epochs


@simulated()
async def test_a_client_with_another_leader_epoch_is_told(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"x")
    await s.restarted()
    epoch = (await s.describe("t")).partitions[0].leader_epoch
    assert epoch == 1
    fenced = await s.fetch("t", leader_epoch=epoch - 1)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fenced.current_leader is not None
    assert (fenced.current_leader.leader_id, fenced.current_leader.leader_epoch) == (1, epoch)
    assert (await s.fetch("t", leader_epoch=epoch + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await s.fetch("t", leader_epoch=epoch)).error_code == 0


@simulated()
async def test_a_log_that_differs_from_what_was_read_is_told_as_diverging(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"0", b"1")
    await s.restarted()
    await s.produce("t", b"2", b"3")
    assert (await s.fetch("t", 2, last_fetched_epoch=0)).diverging_epoch is None
    beyond = await s.fetch("t", 3, last_fetched_epoch=0)
    assert beyond.diverging_epoch is not None
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (0, 2)
    assert not beyond.records
    assert (await s.fetch("t", 4, last_fetched_epoch=1)).diverging_epoch is None
    assert (await s.fetch("t", 4, last_fetched_epoch=9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@simulated()
async def test_a_log_that_starts_later_is_out_of_range_and_not_diverging(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"0", b"1", b"2", b"3")
    entry = DeleteRecordsPartition(partition_index=0, offset=3)
    await s.call(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[entry])]))
    assert (await s.fetch("t", 1, last_fetched_epoch=0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await s.fetch("t", 1, last_fetched_epoch=9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await s.fetch("t", 3, last_fetched_epoch=0)).error_code == 0


# ---- what cannot be read


@pytest.mark.parametrize("cold", [0.0, 1.0])
@simulated()
async def test_a_read_error_is_told_and_harms_nobody_else(s: Session, cold: float) -> None:
    await s.create("t")
    await s.create("other")
    for topic in ("t", "other"):
        for _ in range(5):
            await s.produce(topic, bytes(3000))
    disk = s.node.host.disk
    disk.cold_read_probability = cold
    disk.fail_reads("t-0/00000000000000000000.log", 1000)
    data = await s.fetch("t", 1, partition_max_bytes=3500)
    assert (data.error_code, data.records) in ((ErrorCode.KAFKA_STORAGE_ERROR, b""), (ErrorCode.NONE, b""))
    assert (await s.produce("t", b"x")).error_code == 0
    assert len(await s.records("other")) == 5


@pytest.mark.parametrize("place", [0, 7, 8, 10, 11])
@simulated()
async def test_a_damaged_segment_is_not_read_for_ever(s: Session, place: int) -> None:
    """Offset or length of a batch in the middle: the reader gets an error, or bytes whose checksum tells it."""
    await s.create("t")
    size = len(batch(bytes(300)))
    for _ in range(5):
        await s.produce("t", bytes(300))
    s.node.host.disk.rot("t-0/00000000000000000000.log", size + place)
    for offset in range(5):
        began_ms = s.runtime.now_ms()
        data = await s.fetch("t", offset, partition_max_bytes=size)
        assert s.runtime.now_ms() - began_ms < 1_000
        assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR or data.records
    assert (await s.produce("t", b"x")).base_offset == 5


@simulated()
async def test_a_read_error_while_an_answer_is_sent_closes_that_connection_alone(s: Session) -> None:
    await s.create("t")
    for _ in range(5):
        await s.produce("t", bytes(3000))
    s.node.host.disk.fail_reads("t-0/00000000000000000000.log", 1000)
    reader = await s.connect()
    reader.post(fetch_request("t"), 12)
    await reader.frames.closed()
    assert (await s.produce("t", b"x")).error_code == 0
    s.node.host.disk.fail_reads("t-0/00000000000000000000.log", 0)
    assert len(await s.records("t")) == 6
    assert s.node.served.metrics.unexpected_errors == 1
    s.node.events.all.clear()
    s.node.served.metrics.unexpected_errors = 0
