"""Committed offsets on a whole broker: kept, refused, expired, compacted."""

from __future__ import annotations

from typing import Any

from broker.group_session import (
    QUICK,
    ConsumerMember,
    commit,
    commit_request,
    committed,
    find,
    listed,
    ready,
    settled,
    stable_group,
)
from broker.session import Session, simulated
from penstock.coordinators.partitioning import partition_of
from penstock.wire.errors import ErrorCode
from penstock.wire.records import iter_batches, read_header

OFFSETS_TOPIC = "__consumer_offsets"


@simulated(QUICK)
async def test_offsets_are_kept_with_their_metadata_over_restarts(s: Session) -> None:
    await s.create("t", 2)
    await find(s)
    offsets = {("t", 0): (5, "five"), ("t", 1): (6, "")}
    assert set((await commit(s.client, "g", offsets)).values()) == {ErrorCode.NONE}
    await s.restarted()
    await ready(s)
    assert await committed(s.client, "g") == offsets
    s.node.host.stop()
    await s.until(lambda: s.node.process.is_dead)
    await s.started()
    await ready(s)
    assert await committed(s.client, "g") == offsets
    assert await committed(s.client, "g", [("t", 1)]) == {("t", 1): (6, "")}


@simulated(QUICK)
async def test_a_commit_is_refused_part_by_part(s: Session) -> None:
    await s.create("t", 1)
    await find(s)
    told = await commit(s.client, "g", {("t", 0): (1, "ok"), ("t", 1): (1, ""), ("nowhere", 0): (1, "")})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told == {("t", 0): ErrorCode.NONE, ("t", 1): unknown, ("nowhere", 0): unknown}
    large = await commit(s.client, "g", {("t", 0): (2, "x" * 5000)})
    assert large == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert await committed(s.client, "g") == {("t", 0): (1, "ok")}
    stranger = await commit(s.client, "g", {("t", 0): (3, "")}, "stranger", 7)
    assert stranger == {("t", 0): ErrorCode.UNKNOWN_MEMBER_ID}


@simulated(QUICK)
async def test_offsets_of_a_deleted_topic_go_with_it(s: Session) -> None:
    await s.create("t")
    await s.create("u")
    await find(s)
    await commit(s.client, "g", {("t", 0): (1, ""), ("u", 0): (2, "")})
    await s.delete("t")
    assert await committed(s.client, "g") == {("u", 0): (2, "")}
    await s.restarted()
    await ready(s)
    assert await committed(s.client, "g") == {("u", 0): (2, "")}


@simulated({**QUICK, "offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"})
async def test_offsets_that_nobody_needs_any_more_go(s: Session) -> None:
    await s.create("t")
    await find(s)
    (member,) = await stable_group(s, 1, "used")
    await member.commit({("t", 0): (1, "")})
    await commit(s.client, "idle", {("t", 0): (2, "")})
    for _ in range(70):
        assert await member.heartbeat() == ErrorCode.NONE
        await s.runtime.sleep(1000)
    assert await committed(s.client, "idle") == {}
    assert await committed(s.client, "used") == {("t", 0): (1, "")}
    assert list(await listed(s)) == ["used"]
    await s.restarted()
    await ready(s, "idle")
    assert await committed(s.client, "idle") == {}


@simulated(QUICK)
async def test_commits_that_arrive_together_are_written_together(s: Session) -> None:
    await s.create("t")
    await find(s)
    clients = [await s.connect() for _ in range(20)]
    partition = partition_of("g", 2)
    s.node.host.pause()
    answers = [client.send(commit_request("g", {("t", 0): (number, "")}), 9) for number, client in enumerate(clients)]
    await s.runtime.sleep(100)
    s.node.host.resume()
    for answer in answers:
        assert (await answer).topics[0].partitions[0].error_code == 0
    data = await s.fetch(OFFSETS_TOPIC, partition=partition)
    sizes = [header.records_count for header, _ in iter_batches(data.records or b"")]
    assert sum(sizes) == 20
    assert len(sizes) <= 3


@simulated({**QUICK, "offsets.topic.compression.codec": "4", "offsets.commit.timeout.ms": "1000"})
async def test_batches_are_compressed_as_configured(s: Session) -> None:
    await s.create("t")
    await find(s)
    await commit(s.client, "g", {("t", 0): (1, "x" * 1000)})
    data = await s.fetch(OFFSETS_TOPIC, partition=partition_of("g", 2))
    assert read_header(data.records or b"").codec == 4
    await s.restarted()
    await ready(s)
    assert await committed(s.client, "g") == {("t", 0): (1, "x" * 1000)}


@simulated({**QUICK, "offsets.topic.num.partitions": "1", "log.cleaner.backoff.ms": "1000"})
async def test_groups_are_whole_after_their_log_was_compacted(s: Session) -> None:
    await s.create("t", 2)
    await find(s)
    changed = await s.alter(OFFSETS_TOPIC, internal_segment_bytes="3000", min_cleanable_dirty_ratio="0.01")
    assert changed.error_code == 0, changed
    members = await stable_group(s, 2)
    consumer = await ConsumerMember.connect(s, "c", ["t"])
    await settled([consumer], 2)
    for number in range(200):
        await commit(s.client, f"g{number % 7}", {("t", 0): (number, f"n{number}")})
    heartbeats = 0
    while not s.node.events.named("compacted"):
        assert heartbeats < 600, s.node.events.all
        await s.runtime.sleep(1000)
        heartbeats += 1
        assert [await member.heartbeat() for member in members] == [ErrorCode.NONE] * 2
        assert (await consumer.heartbeat()).error_code == ErrorCode.NONE
    (partition,) = s.node.served.manager.table.by_name[OFFSETS_TOPIC.encode()]
    assert partition.log is not None
    assert partition.log.size_bytes < 200 * 60
    await s.restarted()
    await ready(s)
    for number in range(193, 200):
        assert await committed(s.client, f"g{number % 7}") == {("t", 0): (number, f"n{number}")}
    everybody: list[Any] = [*members, consumer]
    for one in everybody:
        one.client = await s.connect()
    assert [await member.heartbeat() for member in members] == [ErrorCode.NONE] * 2
    assert (await consumer.heartbeat()).error_code == ErrorCode.NONE
    assert len(consumer.partitions) == 2
