"""Groups over restarts and stalls of their broker, and what becomes of them when something goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from broker.group_session import (
    QUICK,
    SESSION_TIMEOUT_MS,
    ClassicMember,
    ConsumerMember,
    commit,
    committed,
    describe,
    find,
    ready,
    settled,
    stable_group,
    until_told,
)
from broker.session import Session, is_recovered, run_session, simulated
from penstock.broker.coordination.journal import LogSource
from penstock.coordinators.groups import GroupShard
from penstock.coordinators.host import ShardHost
from penstock.coordinators.partitioning import partition_of
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.list_groups import ListGroupsRequest

# ---- restarts and stalls


@pytest.mark.parametrize("power_loss", [False, True])
@simulated({**QUICK, "log.flush.interval.messages": "1"})
async def test_a_stable_group_goes_on_after_a_restart_without_a_rebalance(s: Session, power_loss: bool) -> None:
    await s.create("t", 2)
    await find(s)
    members = await stable_group(s, 2)
    consumers = [await ConsumerMember.connect(s, "c", ["t"]) for _ in range(2)]
    await settled(consumers, 2)
    before = [(consumer.epoch, consumer.partitions) for consumer in consumers]
    await s.restarted(power_loss=power_loss)
    await ready(s)
    await ready(s, "c")
    everybody: list[Any] = [*members, *consumers]
    for one in everybody:
        one.client = await s.connect()
    assert [await member.heartbeat() for member in members] == [ErrorCode.NONE] * 2
    answers = [await consumer.heartbeat() for consumer in consumers]
    assert {answer.error_code for answer in answers} == {0}
    assert [(consumer.epoch, consumer.partitions) for consumer in consumers] == before
    # And who does not come back is missed.
    await s.runtime.sleep(SESSION_TIMEOUT_MS - 1_000)
    assert await members[0].heartbeat() == ErrorCode.NONE
    await s.runtime.sleep(2_000)
    assert await members[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


@simulated(QUICK)
async def test_a_broker_that_stood_still_expires_nobody_who_comes_back(s: Session) -> None:
    await s.create("t", 2)
    await find(s)
    members = await stable_group(s, 3)
    consumers = [await ConsumerMember.connect(s, "c", ["t"]) for _ in range(2)]
    await settled(consumers, 2)
    assert [await member.heartbeat() for member in members] == [ErrorCode.NONE] * 3
    await s.runtime.sleep(SESSION_TIMEOUT_MS - 100)
    assert [await member.heartbeat() for member in members[:2]] == [ErrorCode.NONE] * 2
    s.node.host.pause()
    await s.runtime.sleep(120_000)
    s.node.host.resume()
    # One of them had a tenth of a second left, and now has its whole session timeout again.
    await s.runtime.sleep(SESSION_TIMEOUT_MS - 500)
    assert [await member.heartbeat() for member in members] == [ErrorCode.NONE] * 3
    for consumer in consumers:
        assert (await consumer.heartbeat()).error_code == ErrorCode.NONE
    assert len((await describe(s)).members) == 3
    # Who does not come back is missed as ever.
    gone = members.pop()
    took_ms = await until_told(s, members[0])
    assert took_ms <= SESSION_TIMEOUT_MS + 1_000
    assert await gone.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@simulated(QUICK)
async def test_while_a_coordinator_loads_it_says_so(s: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    await s.create("t")
    await find(s)
    (member,) = await stable_group(s, 1)
    await member.commit({("t", 0): (1, "")})
    gate: list[Any] = []
    read = LogSource.read

    async def held(source: Any, offset: int, end_offset: int) -> bytes:
        gate.append(s.node.process.runtime.future())
        await gate[-1]
        return await read(source, offset, end_offset)

    monkeypatch.setattr(LogSource, "read", held)
    s.node.host.kill()
    s.node.begin()
    await s.until(lambda: is_recovered(s.node))
    await s.reconnect()
    await find(s)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    member.client = await s.connect()
    assert (await member.join()).error_code == loading
    assert await member.heartbeat() == ErrorCode.NONE, "as in Kafka: it may well be a member"
    assert (await member.sync()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert await member.commit({("t", 0): (2, "")}) == {("t", 0): loading}
    assert (await s.call(ListGroupsRequest())).error_code == loading
    assert (await describe(s)).error_code == loading
    for future in gate:
        future.set_result(None)
    await ready(s)
    assert await member.heartbeat() == ErrorCode.NONE
    assert await committed(s.client, "g") == {("t", 0): (1, "")}


@simulated({**QUICK, "offsets.topic.num.partitions": "20"})
async def test_coordinators_load_one_after_another(s: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gives the loop back after its slice; together they must not take twenty slices in one turn."""
    await s.create("t")
    await find(s)
    groups = [f"g{number}" for number in range(60)]
    for group in groups:
        await commit(s.client, group, {("t", 0): (1, "")})
    under_way: list[int] = [0, 0]
    load = ShardHost.load

    async def watched(host: Any, source: Any) -> None:
        under_way[0] += 1
        under_way[1] = max(under_way)
        await load(host, source)
        under_way[0] -= 1

    monkeypatch.setattr(ShardHost, "load", watched)
    await s.restarted()
    for group in groups:
        await ready(s, group)
        assert await committed(s.client, group) == {("t", 0): (1, "")}
    assert under_way == [0, 1]


def test_a_stop_does_not_wait_for_members_that_wait() -> None:
    waiting: list[Any] = []

    async def scenario(s: Session) -> None:
        await find(s)
        await stable_group(s, 1)
        joining = await ClassicMember.connect(s)
        joining.id = (await joining.send_join()).member_id
        waiting.append(joining.send_join())
        await s.runtime.sleep(10)
        began_ms = s.runtime.now_ms()
        s.node.host.stop()
        assert (await waiting[0]).error_code == ErrorCode.NOT_COORDINATOR
        await s.until(lambda: s.node.process.is_dead)
        assert s.runtime.now_ms() - began_ms < 1000

    run_session(scenario, QUICK, stop=False)


# ---- what should not happen


@simulated(QUICK)
async def test_what_no_batch_could_hold_is_refused_and_harms_nobody(s: Session) -> None:
    await s.create("t")
    await find(s)
    member = await ClassicMember.connect(s)
    assert (await member.join()).error_code == ErrorCode.NONE
    answer = await member.sync({member.id: bytes(2 << 20)})
    assert answer.error_code != ErrorCode.NONE
    many = {("t", 0): (1, "x" * 4000)} | {(f"t{number}" * 10, 0): (1, "x" * 4000) for number in range(300)}
    told = await commit(s.client, "g2", many)
    assert ErrorCode.NONE not in (set(told.values()) - {told[("t", 0)]})
    (other,) = await stable_group(s, 1, "other")
    assert await other.heartbeat() == ErrorCode.NONE
    assert s.node.served.coordinators.groups.failures == 0


@simulated(QUICK)
async def test_an_error_in_a_decision_ends_its_connection_and_leaves_no_half_of_it(
    s: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    await s.create("t")
    await find(s)
    (member,) = await stable_group(s, 1)
    await member.commit({("t", 0): (1, "kept")})

    def broken(shard: GroupShard, turn: Any, ticket: Any, info: Any, request: Any) -> None:
        shard.offsets.groups.clear()
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(GroupShard, "leave_group", broken)
        client = await s.connect()
        with pytest.raises(ConnectionError):
            await client.call(LeaveGroupRequest(group_id="g", members=[]), 5)
    await ready(s)
    assert await committed(s.client, "g") == {("t", 0): (1, "kept")}
    assert await member.heartbeat() == ErrorCode.NONE
    assert s.node.served.coordinators.groups.failures == 1
    assert s.node.events.said("coordinator restarts", "error") == ["RuntimeError('a bug')"]
    s.node.events.all = [entry for entry in s.node.events.all if entry.event != "unexpected error"]
    s.node.served.metrics.unexpected_errors = 0


@simulated(QUICK)
async def test_a_log_that_cannot_be_read_costs_its_groups_and_nothing_else(s: Session) -> None:
    await s.create("t")
    await find(s)
    other = next(name for name in "abcdef" if partition_of(name, 2) != partition_of("g", 2))
    await commit(s.client, "g", {("t", 0): (1, "")})
    await commit(s.client, other, {("t", 0): (2, "")})

    def unreadable(*_: object) -> None:
        raise ValueError("damaged")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupShard, "replay", unreadable)
        s.node.host.kill()
        s.node.begin()
        await s.until(lambda: is_recovered(s.node))
        await s.until(lambda: len(s.node.events.named("coordinator not loaded")) == 2)
    await s.reconnect()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (await s.call(request)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await s.produce("t", b"x")).error_code == 0
    await s.restarted()
    await ready(s)
    assert await committed(s.client, "g") == {("t", 0): (1, "")}
