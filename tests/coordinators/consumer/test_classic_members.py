"""Classic clients in a consumer group: what each of their requests means there, and what is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from coordinators.consumer.classic_client import INFO, ClassicConsumer, embedded_subscription
from coordinators.consumer.harness import CONFIG, GROUP, Cluster, Consumer, all_partitions
from coordinators.consumer.test_conversions import owned, run
from penstock.coordinators.groups import RequestInfo
from penstock.coordinators.groups.config import replace
from penstock.coordinators.groups.consumer.embedded import read_assignment
from penstock.coordinators.groups.consumer.member import MemberState
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def join(cluster: Cluster, info: RequestInfo = INFO, **fields: object) -> JoinGroupResponse:
    request = JoinGroupRequest(
        **{
            "group_id": GROUP,
            "session_timeout_ms": 45_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": "c",
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol("range", embedded_subscription(["orders"], []))],
            **fields,
        }  # type: ignore[arg-type]
    )
    call = cluster.driver.call(lambda turn, ticket: cluster.shard.join_group(turn, ticket, info, request))
    return cast(JoinGroupResponse, call.response)


def sync(cluster: Cluster, member_id: str = "c", generation: int = 2, **fields: object) -> SyncGroupResponse:
    request = SyncGroupRequest(**{"group_id": GROUP, "member_id": member_id, "generation_id": generation, **fields})  # type: ignore[arg-type]
    call = cluster.driver.call(lambda turn, ticket: cluster.shard.sync_group(turn, ticket, INFO, request))
    return cast(SyncGroupResponse, call.response)


def beat(cluster: Cluster, member_id: str = "c", generation: int = 2, instance_id: str | None = None) -> int:
    request = HeartbeatRequest(GROUP, generation, member_id, instance_id)
    call = cluster.driver.call(lambda turn, ticket: cluster.shard.heartbeat(turn, ticket, INFO, request))
    return cast(HeartbeatResponse, call.response).error_code


def leave(cluster: Cluster, *members: MemberIdentity) -> list[int]:
    request = LeaveGroupRequest(GROUP, list(members))
    call = cluster.driver.call(lambda turn, ticket: cluster.shard.leave_group(turn, ticket, INFO, request))
    return [member.error_code for member in cast(LeaveGroupResponse, call.response).members]


def mixed(cluster: Cluster) -> Consumer:
    """One member of the new protocol; the classic one joined as "c"."""
    new = Consumer(cluster, "new")
    new.join()
    new.settle()
    assert join(cluster).error_code == 0
    return new


def test_a_classic_client_joins_in_two_rounds_and_nobody_waits() -> None:
    cluster = Cluster(orders=4)
    new = Consumer(cluster, "new")
    new.join()
    first = join(cluster, member_id="")
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id
    assert len(cluster.group.members) == 1
    joined = join(cluster, member_id=first.member_id)
    assert (joined.error_code, joined.generation_id, joined.member_id) == (0, 2, first.member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert joined.leader != joined.member_id, "there is nothing to lead"
    assert joined.members == []


def test_in_old_versions_it_joins_in_one() -> None:
    cluster = Cluster(orders=4)
    Consumer(cluster, "new").join()
    assert join(cluster, RequestInfo(3, "old", "/127.0.0.1"), member_id="").error_code == 0
    assert len(cluster.group.members) == 2


def test_sync_brings_what_the_member_owns_by_name() -> None:
    cluster = Cluster(orders=4)
    new = mixed(cluster)
    response = sync(cluster)
    assert response.error_code == 0
    assert read_assignment(bytes(response.assignment)).assigned_partitions == []
    new.beat()
    new.settle()
    new.beat()
    assert beat(cluster) == ErrorCode.REBALANCE_IN_PROGRESS, "what it waits for is free"
    joined = join(cluster)
    response = sync(cluster, generation=joined.generation_id, protocol_type="consumer", protocol_name="range")
    (topic,) = read_assignment(bytes(response.assignment)).assigned_partitions
    assert topic.topic == "orders"
    assert len(topic.partitions) == 2
    assert beat(cluster) == ErrorCode.NONE


def test_a_classic_member_gives_partitions_up_by_joining_without_them() -> None:
    cluster = Cluster(orders=4)
    new = Consumer(cluster, "new")
    new.join()
    classic = ClassicConsumer(cluster, "c", cooperative=True)
    run(cluster, [new, classic])
    third = Consumer(cluster, "third")
    third.join()
    classic.step()
    assert classic.state == "join", "there is a new epoch"
    held = dict(classic.owned)
    join_only = join(
        cluster,
        member_id=classic.member_id,
        protocols=[JoinGroupRequestProtocol("cooperative-sticky", embedded_subscription(["orders"], list(held)))],
    )
    assert join_only.error_code == 0
    member = cluster.group.members[classic.member_id]
    if member.current.state is MemberState.UNREVOKED_PARTITIONS:
        assert beat(cluster, classic.member_id, member.current.epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    run(cluster, [new, classic, third])
    assert owned([new, classic, third]) == all_partitions(cluster, "orders")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [JoinGroupRequestProtocol("range", b"?")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_is_refused_leaves_the_group_as_it_is(fields: dict[str, Any], error: ErrorCode) -> None:
    cluster = Cluster(orders=4)
    Consumer(cluster, "new").join()
    before = cluster.shard.durable_state()
    assert join(cluster, **fields).error_code == error
    assert cluster.shard.durable_state() == before


def test_classic_members_must_have_a_protocol_in_common() -> None:
    cluster = Cluster(orders=4)
    mixed(cluster)
    other = [JoinGroupRequestProtocol("sticky", embedded_subscription(["orders"], []))]
    assert join(cluster, member_id="d", protocols=other).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_no_classic_member_either() -> None:
    cluster = Cluster(replace(CONFIG, group_consumer_max_size=1), orders=4)
    Consumer(cluster, "new").join()
    assert join(cluster).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "new", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    cluster = Cluster(orders=4)
    mixed(cluster)
    assert sync(cluster, **fields).error_code == error  # type: ignore[arg-type]


def test_a_sync_after_the_group_has_moved_on_sends_the_member_back_to_join() -> None:
    cluster = Cluster(orders=4)
    mixed(cluster)
    Consumer(cluster, "third").join()
    assert sync(cluster).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert beat(cluster) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("member_id", "generation", "instance_id", "error"),
    [
        ("c", 2, None, ErrorCode.NONE),
        ("c", 1, None, ErrorCode.ILLEGAL_GENERATION),
        ("new", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", 2, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c", 2, "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeats_are_checked(member_id: str, generation: int, instance_id: str | None, error: ErrorCode) -> None:
    cluster = Cluster(orders=4)
    mixed(cluster)
    assert beat(cluster, member_id, generation, instance_id) == error


def test_a_classic_member_is_fenced_when_it_does_not_sync() -> None:
    cluster = Cluster(orders=4)
    new = mixed(cluster)
    for _ in range(11):
        cluster.advance(5_000)
        new.beat()
        beat(cluster)
    assert "c" in cluster.group.members
    cluster.advance(5_000)
    assert "c" not in cluster.shard.groups[GROUP].members


def test_a_classic_member_is_fenced_when_it_does_not_join_though_it_is_told_to() -> None:
    cluster = Cluster(orders=4)
    new = mixed(cluster)
    sync(cluster)
    third = Consumer(cluster, "third")
    third.join()
    for _ in range(12):
        assert beat(cluster) == ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        third.beat()
        cluster.advance(5_000)
    assert "c" not in cluster.group.members


def test_a_classic_member_has_its_own_session_timeout() -> None:
    cluster = Cluster(orders=4)
    Consumer(cluster, "new").join()
    join(cluster, session_timeout_ms=10_000)
    sync(cluster)
    cluster.advance(9_999)
    assert beat(cluster) == ErrorCode.NONE
    cluster.restart()
    cluster.advance(10_000)
    assert list(cluster.group.members) == ["new"]


def test_members_of_both_protocols_can_be_removed_with_leave_group() -> None:
    cluster = Cluster(orders=4)
    mixed(cluster)
    static = Consumer(cluster, "static", instance_id="i")
    static.join()
    errors = leave(
        cluster,
        MemberIdentity("stranger"),
        MemberIdentity("", "nobody"),
        MemberIdentity("wrong", "i"),
        MemberIdentity("", "i"),
        MemberIdentity("c"),
        MemberIdentity("c"),
    )
    assert errors == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(cluster.group.members) == ["new"]
    cluster.assert_replay_gives_the_same()


def test_a_crowd_that_leaves_at_once_is_let_go_in_portions() -> None:
    cluster = Cluster(orders=1)
    Consumer(cluster, "new").join()
    for number in range(600):
        assert join(cluster, member_id=f"c{number}").error_code == 0
    cluster.driver.take_records()
    errors = leave(cluster, *(MemberIdentity(f"c{number}") for number in range(600)))
    assert errors == [0] * 600
    assert len(cluster.driver.take_records()) <= 500 * 3 + 1
    cluster.advance(0)
    assert list(cluster.group.members) == ["new"]


def test_a_static_classic_member_that_comes_back_fences_its_former_self() -> None:
    cluster = Cluster(orders=4)
    Consumer(cluster, "new").join()
    first = join(cluster, member_id="", group_instance_id="i")
    second = join(cluster, member_id="", group_instance_id="i")
    assert (first.error_code, second.error_code) == (0, 0)
    assert first.member_id != second.member_id
    assert sorted(cluster.group.members) == sorted(["new", second.member_id])
    assert beat(cluster, first.member_id, first.generation_id, "i") == ErrorCode.FENCED_INSTANCE_ID
    assert join(cluster, member_id=first.member_id, group_instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
