"""Settings do what they say, at once and at run time: retention, rolling, syncing, timestamps, sizes, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from broker.session import BROKER, EARLIEST, Session, batch, fetch_request, records_of, run_session, simulated
from penstock.log import Log
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.records import TimestampType, iter_batches, read_header

SLOW_RECOVERY = {"num.recovery.threads.per.data.dir": "1"}
MANY = 150
OFTEN = {"log.retention.check.interval.ms": "1000"}
AGE_MS = 1_200_000
SMALL = {"internal.segment.bytes": "1000", "file.delete.delay.ms": "1000"}


def log_of(s: Session, topic: str = "t", partition: int = 0) -> Log:
    log = s.node.served.manager.table.find(topic.encode(), partition).log
    assert log is not None
    return log


def files(s: Session, directory: str = "t-0") -> list[str]:
    return sorted(s.node.process.mount.list(directory))


async def fill(s: Session, count: int = 20, topic: str = "t", *, size: int = 200) -> None:
    for _ in range(count):
        records = batch(bytes(size), timestamp=s.runtime.wall_ms())
        assert (await s.produce(topic, records=records)).error_code == 0


async def later(s: Session, delay_ms: float) -> None:
    """So long that an idle connection is closed meanwhile."""
    await s.runtime.sleep(delay_ms)
    await s.reconnect()


# ---- retention


@simulated(OFTEN)
async def test_records_older_than_retention_ms_go_and_newer_stay(s: Session) -> None:
    await s.create("t", **SMALL, retention_ms=str(AGE_MS))
    await fill(s)
    await later(s, AGE_MS / 2)
    await fill(s)
    end = log_of(s).end_offset
    assert log_of(s).start_offset == 0
    await later(s, AGE_MS / 2 + 60_000)
    start = await s.offset("t", EARLIEST)
    assert 15 <= start <= 20
    assert [record.offset for record in await s.records("t")] == list(range(start, end))
    assert (await s.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await later(s, AGE_MS)
    assert await s.offset("t", EARLIEST) == end, "the last segment goes too when all of it is old"
    assert (await s.produce("t", b"next")).base_offset == end


@simulated(OFTEN)
async def test_retention_bytes_keeps_the_newest(s: Session) -> None:
    await s.create("t", **SMALL, retention_bytes="3000")
    await fill(s, 60)
    await s.until(lambda: log_of(s).size_bytes <= 4_000, limit_ms=60_000)
    assert log_of(s).size_bytes > 2_000
    assert log_of(s).end_offset == 60
    await s.runtime.sleep(5_000)
    assert sum(s.node.process.mount.size(f"t-0/{name}") for name in files(s) if name.endswith(".log")) < 4_500
    assert not [name for name in files(s) if name.endswith(".deleted")]


@simulated(OFTEN)
async def test_retention_that_is_changed_takes_effect_at_the_next_check(s: Session) -> None:
    await s.create("t", **SMALL)
    await fill(s)
    await s.runtime.sleep(60_000)
    assert log_of(s).start_offset == 0
    assert (await s.alter("t", retention_ms="10000")).error_code == 0
    await s.until(lambda: log_of(s).start_offset == 20, limit_ms=5_000)
    assert (await s.alter("t", retention_ms=None)).error_code == 0
    await fill(s)
    await s.runtime.sleep(60_000)
    assert await s.offset("t", EARLIEST) == 20


@simulated({**OFTEN, "log.segment.delete.delay.ms": "1000"})
async def test_the_brokers_retention_is_the_default_of_its_topics(s: Session) -> None:
    await s.create("t", **{"internal.segment.bytes": "1000"})
    await s.create("own", **{"internal.segment.bytes": "1000"}, retention_ms="-1")
    for topic in ("t", "own"):
        await fill(s, topic=topic)
    assert (await s.alter("", BROKER, log_retention_ms="10000")).error_code == 0
    await s.until(lambda: log_of(s).start_offset == 20, limit_ms=60_000)
    assert log_of(s, "own").start_offset == 0


@simulated(OFTEN)
async def test_removed_segments_stay_on_disk_for_the_delay_and_then_go(s: Session) -> None:
    await s.create("t", **{"internal.segment.bytes": "1000", "file.delete.delay.ms": "60000"}, retention_bytes="0")
    await fill(s)
    await s.until(lambda: log_of(s).start_offset > 10, limit_ms=60_000)
    assert [name for name in files(s) if name.endswith(".deleted")]
    await s.runtime.sleep(70_000)
    assert not [name for name in files(s) if name.endswith(".deleted")]


@simulated(OFTEN)
async def test_retention_survives_a_restart(s: Session) -> None:
    await s.create("t", **SMALL, retention_bytes="2000")
    await fill(s, 60)
    await s.until(lambda: log_of(s).size_bytes <= 3_000, limit_ms=60_000)
    await s.runtime.sleep(1_000)
    start, end = log_of(s).start_offset, log_of(s).end_offset
    await s.restarted()
    assert (log_of(s).start_offset, log_of(s).end_offset) == (start, end)
    assert [record.offset for record in await s.records("t")] == list(range(start, end))


# ---- segments


@simulated()
async def test_segments_roll_by_size(s: Session) -> None:
    await s.create("t", **{"internal.segment.bytes": "1000"})
    await fill(s, 20)
    logs = [name for name in files(s) if name.endswith(".log")]
    assert len(logs) == 7
    assert all(s.node.process.mount.size(f"t-0/{name}") <= 1_000 for name in logs)
    assert (await s.alter("t", **{"internal.segment.bytes": "100000"})).error_code == 0
    await fill(s, 20)
    assert len([name for name in files(s) if name.endswith(".log")]) == 7
    assert len(await s.records("t")) == 40


@simulated()
async def test_segments_roll_by_age(s: Session) -> None:
    await s.create("t", segment_ms=str(AGE_MS))
    await fill(s, 3)
    await later(s, AGE_MS / 2)
    await fill(s, 3)
    assert len(log_of(s).segments) == 1
    await later(s, AGE_MS)
    await fill(s, 3)
    assert len(log_of(s).segments) == 2


# ---- syncing


@simulated()
async def test_flush_messages_1_syncs_before_every_answer(s: Session) -> None:
    await s.create("t", flush_messages="1")
    disk = s.node.host.disk
    for number in range(5):
        await s.produce("t", b"%d" % number)
        assert log_of(s).durable_end == number + 1
        assert len(disk.durable_content("t-0/00000000000000000000.log")) == log_of(s).size_bytes


@simulated()
async def test_flush_ms_syncs_what_is_older(s: Session) -> None:
    await s.create("t", flush_ms="1000")
    await s.produce("t", b"x")
    assert log_of(s).durable_end == 0
    await s.runtime.sleep(500)
    assert log_of(s).durable_end == 0
    await s.runtime.sleep(600)
    assert log_of(s).durable_end == 1


@simulated()
async def test_nothing_is_synced_where_nobody_asks_and_turning_it_on_does(s: Session) -> None:
    await s.create("t")
    await fill(s, 5)
    await s.runtime.sleep(10_000)
    assert log_of(s).durable_end == 0
    assert (await s.alter("t", flush_messages="1")).error_code == 0
    await s.produce("t", b"x")
    assert log_of(s).durable_end == 6
    assert (await s.alter("t", flush_messages=None)).error_code == 0
    await s.produce("t", b"x")
    assert log_of(s).durable_end == 6


@simulated({"log.flush.interval.messages": "1"})
async def test_the_brokers_flush_settings_are_the_defaults(s: Session) -> None:
    await s.create("t")
    await s.produce("t", b"x")
    assert log_of(s).durable_end == 1


# ---- timestamps


@simulated()
async def test_log_append_time_stamps_what_comes(s: Session) -> None:
    await s.create("t", message_timestamp_type="LogAppendTime")
    before_ms = s.runtime.wall_ms()
    answer = await s.produce("t", records=batch(b"a", b"b", timestamp=5))
    assert before_ms <= answer.log_append_time_ms <= s.runtime.wall_ms()
    data = await s.fetch("t")
    header = read_header(data.records or b"")
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == answer.log_append_time_ms
    assert [record.value for record in records_of(data)] == [b"a", b"b"], "its checksum is right"
    assert await s.offset("t", before_ms) == 0
    assert (await s.alter("t", message_timestamp_type="CreateTime")).error_code == 0
    answer = await s.produce("t", records=batch(b"c", timestamp=1_700_000_000_000))
    assert answer.log_append_time_ms == -1
    headers = [header for header, _ in iter_batches((await s.fetch("t", 2)).records or b"")]
    assert [(one.timestamp_type, one.max_timestamp) for one in headers] == [(0, 1_700_000_000_000)]


@simulated()
async def test_timestamps_outside_of_what_is_allowed_are_refused(s: Session) -> None:
    await s.create("t", message_timestamp_before_max_ms="10000", message_timestamp_after_max_ms="10000")
    now_ms = s.runtime.wall_ms()
    for offset_ms, error in ((0, 0), (-9_000, 0), (9_000, 0), (-11_000, 32), (11_000, 32)):
        answer = await s.produce("t", records=batch(b"x", timestamp=now_ms + offset_ms))
        assert answer.error_code == error, offset_ms


# ---- producers


@simulated({"producer.id.expiration.ms": "60000", "producer.id.expiration.check.interval.ms": "5000"})
async def test_producers_that_are_silent_for_long_are_forgotten(s: Session) -> None:
    await s.create("t")
    quiet, busy = await s.producer_id(), await s.producer_id()
    first = batch(b"quiet", producer_id=quiet, epoch=0, sequence=0)
    assert (await s.produce("t", records=first)).base_offset == 0
    for number in range(8):
        records = batch(b"busy", producer_id=busy, epoch=0, sequence=number)
        assert (await s.produce("t", records=records)).base_offset == number + 1
        await s.runtime.sleep(10_000)
    assert (await s.produce("t", records=records)).base_offset == 8, "who writes is remembered"
    assert (await s.produce("t", records=first)).base_offset == 9, "who does not is a stranger"


# ---- sizes


@simulated({"message.max.bytes": "5000"})
async def test_batches_over_the_limit_are_refused_and_the_limit_can_be_moved(s: Session) -> None:
    await s.create("t")
    await s.create("own", max_message_bytes="500")
    assert (await s.produce("t", bytes(4_000))).error_code == 0
    assert (await s.produce("t", bytes(6_000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await s.produce("own", bytes(4_000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await s.alter("1", BROKER, message_max_bytes="10000")).error_code == 0
    assert (await s.produce("t", bytes(6_000))).error_code == 0
    assert (await s.produce("own", bytes(4_000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await s.alter("own", max_message_bytes=None)).error_code == 0
    assert (await s.produce("own", bytes(6_000))).error_code == 0


async def recovering(s: Session, partitions: int) -> None:
    """Kill it with so many logs that it serves long before it has read them all."""
    await s.create("t", partitions=partitions)
    for partition in range(partitions):
        await s.produce("t", bytes(2_000), partition=partition)
    s.node.host.kill()
    s.node.begin()
    await s.until(lambda: s.node.ready, step_ms=0.2)
    await s.reconnect()


@simulated(SLOW_RECOVERY)
async def test_settings_made_while_logs_are_recovered_are_in_force_when_they_are(s: Session) -> None:
    await recovering(s, MANY)
    assert (await s.alter("t", max_message_bytes="100")).error_code == 0
    assert s.node.served.manager.recovering > 0, "the test is about the time before"
    await s.until(lambda: not s.node.served.manager.recovering)
    for partition in range(MANY):
        assert (await s.produce("t", bytes(200), partition=partition)).error_code == ErrorCode.MESSAGE_TOO_LARGE


# ---- deletion


@simulated()
async def test_the_files_of_a_deleted_topic_go_after_the_delay(s: Session) -> None:
    await s.create("t", partitions=3, **{"file.delete.delay.ms": "60000"})
    for partition in range(3):
        await s.produce("t", bytes(10_000), partition=partition)
    await s.delete("t")
    mount = s.node.process.mount
    assert not [name for name in mount.list("") if name.startswith("t-") and not name.endswith("-delete")]
    assert len([name for name in mount.list("") if name.endswith("-delete")]) == 3
    await s.runtime.sleep(70_000)
    assert not [name for name in mount.list("") if name.startswith("t-")]


@simulated()
async def test_files_that_a_crash_left_of_a_deleted_topic_go_with_the_next_start(s: Session) -> None:
    await s.create("t", **{"file.delete.delay.ms": "60000"})
    await s.produce("t", bytes(10_000))
    await s.delete("t")
    await s.restarted()
    await s.runtime.sleep(1_000)
    assert not [name for name in s.node.process.mount.list("") if name.startswith("t-")]


@simulated(SLOW_RECOVERY)
async def test_a_topic_deleted_and_made_again_while_its_log_is_recovered_is_empty(s: Session) -> None:
    await recovering(s, MANY)
    assert s.node.served.manager.recovering > 0, "the test is about the time before"
    await s.delete("t")
    await s.create("t", partitions=MANY)
    for partition in range(0, MANY, 10):
        assert await s.values("t", partition) == []
        assert (await s.produce("t", b"new", partition=partition)).base_offset == 0
    await s.restarted()
    for partition in range(0, MANY, 10):
        assert await s.values("t", partition) == [b"new"]


OLD = b"of the first topic"


async def delete_and_create(s: Session) -> bytes | None:
    """Both at once, so that one batch of the metadata may commit them together; the id of the new one."""
    other = await s.connect()
    deleted = s.client.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
    created: Any = None
    for _ in range(50):
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        (created,) = (await other.call(CreateTopicsRequest(topics=[wanted]), 7)).topics
        if created.error_code == 0:
            break
        await s.runtime.sleep(0.1)
    await deleted
    return created.topic_id


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
def test_a_topic_made_again_is_empty_wherever_the_crash_came_between(synced: bool) -> None:
    for operation in range(1, 200):
        with World(f"again-{operation}") as world:
            node = SimBroker(world)
            node.start()
            died = _die_between(world, node, operation, synced)
            if not died:
                assert operation > 5
                return
            node.restart(power_loss=True)
            world.execute(lambda runtime, node=node: _found_as_it_should_be(runtime, node, synced))
    raise AssertionError("it never got through")


def _die_between(world: World, node: SimBroker, operation: int, synced: bool) -> bool:
    first: list[bytes] = []

    async def main(runtime: SimRuntime) -> None:
        s = await Session.open(runtime, node)
        first.append(await s.create("t", flush_messages="1" if synced else "1000"))
        for _ in range(3):
            assert (await s.produce("t", OLD)).error_code == 0
        node.host.disk.crash_after(operation)
        try:
            await delete_and_create(s)
        except ConnectionError:
            assert node.process.is_dead

    world.execute(main)
    died = node.process.is_dead
    node.host.disk.cancel_crash()
    node.first_id = first[0]  # type: ignore[attr-defined]
    return died


async def _found_as_it_should_be(runtime: SimRuntime, node: SimBroker, synced: bool) -> None:
    s = await Session.open(runtime, node)
    await s.until(lambda: not node.served.manager.recovering)
    topic = await s.describe("t")
    if topic.error_code:
        assert (await s.try_create("t")).error_code == 0
        topic = await s.describe("t")
    await s.runtime.sleep(500)
    values = await s.values("t")
    if topic.topic_id == node.first_id:  # type: ignore[attr-defined]
        assert values == [OLD] * 3 if synced else set(values) <= {OLD}
    else:
        assert values == [], "a new topic has nothing of the old one"
    answer = await s.call(fetch_request(topic.topic_id, max_wait_ms=0), 16)
    assert answer.responses[0].partitions[0].error_code == 0


def test_a_log_that_cannot_be_opened_does_not_stand_in_the_way_of_a_new_topic() -> None:
    async def scenario(s: Session) -> None:
        await s.create("t", **{"internal.segment.bytes": "500"})
        await s.create("other")
        for _ in range(10):
            await s.produce("t", bytes(200))
        s.node.host.kill()
        mount = s.node.process.mount
        mount.is_dead = False
        middle = sorted(name for name in mount.list("t-0") if name.endswith(".log"))[1]
        mount.open(f"t-0/{middle}").truncate(30)
        mount.is_dead = True
        s.node.begin()
        await s.until(lambda: s.node.ready and not s.node.served.manager.recovering)
        await s.reconnect()
        assert (await s.produce("other", b"x")).error_code == 0
        await s.delete("t")
        await s.create("t")
        assert await s.values("t") == []
        assert (await s.produce("t", b"x")).base_offset == 0

    run_session(scenario)
