"""Compacted topics over the protocol: the cleaner works while clients use them, and settings apply at once."""

from __future__ import annotations

import pytest

from broker.session import BROKER, EARLIEST, Session, records_of, simulated
from broker.test_metrics import scrape
from penstock.log import Log
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.records import Record, build_batch, iter_batches, iter_records

OFTEN = {"log.cleaner.backoff.ms": "1000", "log.retention.check.interval.ms": "1000"}
SMALL = {"internal.segment.bytes": "1000", "file.delete.delay.ms": "100", "cleanup.policy": "compact"}

Pair = tuple[bytes | None, bytes | None]


def log_of(s: Session, topic: str = "t") -> Log:
    partition = s.node.served.manager.table.find(topic.encode(), 0)
    assert partition is not None
    assert partition.log is not None
    return partition.log


async def put(s: Session, *pairs: Pair, topic: str = "t", error: int = 0) -> None:
    made = [Record(timestamp=s.runtime.wall_ms(), key=key, value=value) for key, value in pairs]
    answer = await s.produce(topic, records=build_batch(made))
    assert answer.error_code == error, answer


async def fill(s: Session, rounds: int = 20, topic: str = "t") -> dict[bytes, bytes]:
    for number in range(rounds):
        await put(s, *((b"%d" % key, b"%d-%d" % (key, number)) for key in range(5)), topic=topic)
    return {b"%d" % key: b"%d-%d" % (key, rounds - 1) for key in range(5)}


async def read(s: Session, topic: str = "t") -> list[Record]:
    """Read as a consumer does: continue after each batch, empty or not."""
    found: list[Record] = []
    offset = await s.offset(topic, EARLIEST)
    while True:
        data = await s.fetch(topic, offset)
        assert data.error_code == 0
        batches = list(iter_batches(data.records or b""))
        if not batches:
            assert offset == data.high_watermark
            return found
        for header, view in batches:
            found += [record for record in iter_records(view) if record.offset >= offset]
            offset = header.next_offset


async def table(s: Session, topic: str = "t") -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in await read(s, topic)}


async def compacted(s: Session, count: int = 1) -> None:
    goal = len(s.node.events.named("compacted")) + count
    await s.until(lambda: len(s.node.events.named("compacted")) >= goal, limit_ms=60_000)


@simulated(OFTEN)
async def test_old_values_go_and_the_newest_stay(s: Session) -> None:
    await s.create("t", **SMALL)
    expected = await fill(s)
    before = {record.offset: record for record in await read(s)}
    await compacted(s)
    found = await read(s)
    assert await table(s) == expected
    assert len(found) < 50
    assert all(before[record.offset] == record for record in found)
    assert log_of(s).end_offset == 100
    assert await s.offset("t", EARLIEST) == 0
    await s.restarted()
    assert await table(s) == expected
    assert await read(s) == found
    await s.restarted(power_loss=True)
    left = await read(s)
    assert left == found[: len(left)]
    assert left[-1].offset >= log_of(s).clean_end - 1, "what was compacted was durable"


@simulated(OFTEN)
async def test_a_clean_stop_and_start_find_a_compacted_log(s: Session) -> None:
    await s.create("t", **SMALL)
    expected = await fill(s)
    await compacted(s)
    s.node.host.stop()
    await s.until(lambda: s.node.process.is_dead)
    await s.started()
    assert await table(s) == expected
    assert log_of(s).clean_end > 40, "where the log is clean is remembered"


@simulated(OFTEN)
async def test_records_without_a_key_are_refused(s: Session) -> None:
    await s.create("t", **SMALL)
    await put(s, (b"k", b"v"), (None, b"v"), error=ErrorCode.INVALID_RECORD)
    assert log_of(s).end_offset == 0


@simulated(OFTEN)
async def test_a_deleted_key_is_told_for_delete_retention_ms_and_then_gone(s: Session) -> None:
    await s.create("t", **SMALL, delete_retention_ms="20000", min_cleanable_dirty_ratio="0.01")
    await fill(s)
    await put(s, (b"3", None))
    await fill_others(s)
    await compacted(s)
    assert (await table(s)).get(b"3", b"?") is None
    assert b"3" in await table(s)
    await s.runtime.sleep(30_000)
    await fill_others(s)
    await compacted(s)
    assert b"3" not in await table(s)


async def fill_others(s: Session, topic: str = "t") -> None:
    for number in range(20):
        await put(s, (b"other", b"%d" % number * 20), topic=topic)


@simulated(OFTEN)
async def test_the_dirty_ratio_of_the_topic_decides_and_a_change_counts_at_once(s: Session) -> None:
    await s.create("t", **SMALL, min_cleanable_dirty_ratio="1.0")
    await fill(s)
    await s.runtime.sleep(30_000)
    assert s.node.events.named("compacted") == []
    assert (await s.alter("t", min_cleanable_dirty_ratio="0.5")).error_code == 0
    await compacted(s)


@simulated(OFTEN)
async def test_a_topic_becomes_compacted_when_its_policy_does(s: Session) -> None:
    await s.create("t", **{**SMALL, "cleanup.policy": "delete"})
    expected = await fill(s)
    await s.runtime.sleep(30_000)
    assert len(await read(s)) == 100
    assert (await s.alter("t", cleanup_policy="compact")).error_code == 0
    await compacted(s)
    assert await table(s) == expected
    found = await read(s)
    assert (await s.alter("t", cleanup_policy="delete")).error_code == 0
    await fill(s)
    await s.runtime.sleep(30_000)
    assert (await read(s))[: len(found)] == found


@simulated({**OFTEN, "log.cleaner.min.cleanable.ratio": "1.0"})
async def test_the_brokers_settings_are_the_defaults_of_its_topics(s: Session) -> None:
    await s.create("t", **SMALL)
    await fill(s)
    await s.runtime.sleep(30_000)
    assert s.node.events.named("compacted") == []
    assert (await s.alter("", BROKER, log_cleaner_min_cleanable_ratio="0.2")).error_code == 0
    await compacted(s)


@simulated(OFTEN)
async def test_min_compaction_lag_keeps_records_and_max_forces(s: Session) -> None:
    await s.create("t", **SMALL, min_compaction_lag_ms="60000")
    await s.create("forced", **SMALL, max_compaction_lag_ms="60000", min_cleanable_dirty_ratio="1.0")
    for topic in ("t", "forced"):
        await fill(s, topic=topic)
    await s.runtime.sleep(50_000)
    assert s.node.events.named("compacted") == []
    await s.until(lambda: len(s.node.events.named("compacted")) >= 2, limit_ms=30_000)
    assert sorted(s.node.events.said("compacted", "partition"))[:2] == ["forced-0", "t-0"]


@simulated(OFTEN)
async def test_compact_and_delete_together(s: Session) -> None:
    await s.create("t", **{**SMALL, "cleanup.policy": "compact,delete"}, retention_ms="600000")
    expected = await fill(s)
    await compacted(s)
    assert await table(s) == expected
    await s.runtime.sleep(700_000)
    await s.reconnect()
    assert await read(s) == []
    assert await s.offset("t", EARLIEST) == 100


@simulated(OFTEN)
async def test_delete_records_takes_segments_of_a_compacted_topic(s: Session) -> None:
    await s.create("t", **{**SMALL, "cleanup.policy": "compact,delete"})
    await fill(s)
    topics = [DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=50)])]
    answer = await s.call(DeleteRecordsRequest(topics=topics, timeout_ms=1_000))
    assert answer.topics[0].partitions[0].error_code == 0
    await s.until(lambda: log_of(s).segments[0].base_offset > 0, limit_ms=60_000)
    assert (await read(s))[0].offset >= 50


@simulated({**OFTEN, "log.cleaner.io.max.bytes.per.second": "1000"})
async def test_compaction_can_be_slowed_down(s: Session) -> None:
    await s.create("t", **SMALL)
    await fill(s, 40)
    began_ms = s.runtime.now_ms()
    await compacted(s)
    read_bytes = (await scrape(s))["penstock_compaction_read_bytes_total"]
    assert s.runtime.now_ms() - began_ms > read_bytes * 0.7
    assert (await s.alter("", BROKER, log_cleaner_io_max_bytes_per_second="1e9")).error_code == 0
    await fill(s, 40)
    began_ms = s.runtime.now_ms()
    await compacted(s)
    assert s.runtime.now_ms() - began_ms < 3_000


@simulated(OFTEN)
async def test_a_log_that_cannot_be_compacted_is_set_aside_and_others_go_on(s: Session) -> None:
    await s.create("bad", **SMALL)
    await s.create("t", **SMALL)
    await fill(s, topic="bad")
    log_of(s, "bad").segments[0].file.pwrite(b"\xff", 70)
    expected = await fill(s)
    await compacted(s)
    assert await table(s) == expected
    (told,) = s.node.events.named("log not compacted")
    assert told.fields["partition"] == "bad-0"
    assert told.fields["set_aside_until"] == "the next start"
    await s.runtime.sleep(30_000)
    assert len(s.node.events.named("log not compacted")) == 1
    values = await scrape(s)
    assert values["kafka_log_logcleanermanager_uncleanable_partitions_count"] == 1
    assert values["kafka_log_logcleanermanager_uncleanable_bytes"] == log_of(s, "bad").size_bytes
    await put(s, (b"k", b"v"), topic="bad")


@simulated(OFTEN)
async def test_a_disk_that_failed_once_is_tried_again(s: Session) -> None:
    await s.create("t", **SMALL)
    expected = await fill(s)
    s.node.process.mount.disk.fail_reads(log_of(s).segments[1].path(".log"))
    await s.until(lambda: bool(s.node.events.named("log not compacted")), limit_ms=60_000)
    assert s.node.events.said("log not compacted", "set_aside_until") == ["10 minutes from now"]
    await s.until(lambda: bool(s.node.events.named("compacted")), limit_ms=700_000)
    await s.reconnect()
    assert await table(s) == expected


@simulated(OFTEN)
async def test_the_cleaner_is_measured_under_kafkas_names(s: Session) -> None:
    await s.create("t", **SMALL, min_cleanable_dirty_ratio="1.0")
    await fill(s)
    await s.runtime.sleep(5_000)
    assert (await scrape(s))["kafka_log_logcleanermanager_max_dirty_percent"] == 100
    assert (await s.alter("t", min_cleanable_dirty_ratio="0.5")).error_code == 0
    await compacted(s)
    await s.runtime.sleep(2_000)
    values = await scrape(s)
    assert values["kafka_log_logcleanermanager_max_dirty_percent"] < 100
    assert 0 < values["kafka_log_logcleaner_cleaner_recopy_percent"] < 50
    assert values["kafka_log_logcleaner_max_clean_time_secs"] > 0
    assert values["kafka_log_logcleaner_max_buffer_utilization_percent"] > 0
    assert values["penstock_compactions_total"] == 1


@simulated(OFTEN)
@pytest.mark.parametrize("after_ms", [0, 20, 50, 80, 110, 140, 200])
async def test_a_topic_is_deleted_while_it_is_compacted(s: Session, after_ms: int) -> None:
    await s.create("t", **SMALL)
    await fill(s)
    await s.until(lambda: log_of(s).is_compacting, limit_ms=5_000, step_ms=1)
    await s.runtime.sleep(after_ms)
    await s.delete("t")
    await s.create("t", **SMALL)
    expected = await fill(s)
    await compacted(s)
    assert await table(s) == expected
    assert s.node.events.named("log not compacted") == []


@simulated(OFTEN)
@pytest.mark.parametrize("after_ms", [0, 30, 60, 90, 120])
async def test_a_broker_that_stops_while_it_compacts_stops_cleanly(s: Session, after_ms: int) -> None:
    await s.create("t", **SMALL)
    expected = await fill(s)
    await s.until(lambda: log_of(s).is_compacting, limit_ms=5_000, step_ms=1)
    await s.runtime.sleep(after_ms)
    s.node.host.stop()
    await s.until(lambda: s.node.process.is_dead)
    assert not [name for name in s.node.host.disk.namespace.directory("t-0").entries if "cleaned" in name]
    await s.started()
    assert s.node.events.named("recovering") == [], "the stop was a clean one"
    assert await table(s) == expected


@simulated({**OFTEN, "log.cleaner.backoff.ms": "200"})
async def test_clients_read_and_write_while_segments_are_replaced(s: Session) -> None:
    await s.create("t", **SMALL)
    for number in range(120):
        await put(s, (b"%d" % (number % 7), b"%d" % number * 10))
        if number % 10 == 9:
            found = await table(s)
            for key in range(7):
                latest = max(n for n in range(number + 1) if n % 7 == key)
                assert found[b"%d" % key] == b"%d" % latest * 10
        await s.runtime.sleep(40)
    assert len(s.node.events.named("compacted")) >= 3


@simulated(OFTEN)
async def test_an_answer_has_records_as_long_as_there_are_any(s: Session) -> None:
    """A client takes a response with only emptied batches for a truncated one, and requests more bytes."""
    await s.create("t", **SMALL)
    for number in range(60):
        await put(s, (b"same", b"%d" % number * 20))
    await compacted(s)
    await put(s, (b"last", b"1"))
    log = log_of(s)
    empty_ends = [segment.end_offset - 1 for segment in log.segments[:-2]]
    assert len(empty_ends) >= 4
    for offset in range(log.end_offset):
        found = records_of(await s.fetch("t", offset))
        assert found, f"nothing at {offset}"
        assert found[-1].offset >= offset
    # With nothing behind it, the reader still has to get past it.
    assert await s.offset("t", EARLIEST) == 0
    assert (await read(s))[-1].key == b"last"
