"""Heartbeats, sessions, leaving: who counts as alive, and what the others hear."""

from __future__ import annotations

import pytest

from coordinators.groups.harness import Groups
from penstock.coordinators.groups.classic_group import ClassicState
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity


def test_a_heartbeat_keeps_the_session() -> None:
    groups = Groups()
    member = groups.stable(1, session_ms=10_000)[0]
    for _ in range(5):
        groups.advance(9_999)
        assert groups.heartbeat(member, 1) == ErrorCode.NONE
    groups.advance(10_000)
    assert groups.group.state is ClassicState.EMPTY


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"group": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_heartbeat_that_does_not_fit_is_refused(change: dict[str, object], error: ErrorCode) -> None:
    groups = Groups()
    member = groups.stable(1)[0]
    request: dict[str, object] = {"member_id": member, "generation": 1, **change}
    assert groups.heartbeat(**request) == error  # type: ignore[arg-type]


def test_a_heartbeat_while_the_assignment_is_awaited_is_fine() -> None:
    groups = Groups()
    member, _ = groups.enter()
    groups.advance(3_000)
    assert groups.heartbeat(member, 1) == ErrorCode.NONE


def test_the_death_of_a_member_starts_a_rebalance_without_it() -> None:
    groups = Groups()
    leader, dead = groups.stable(2, session_ms=10_000)
    groups.advance(9_000)
    groups.heartbeat(leader, 1)
    groups.advance(1_000)
    assert dead not in groups.group.members
    assert groups.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.join(leader).response.generation_id == 2


def test_the_death_of_the_last_member_leaves_an_empty_group_in_the_log() -> None:
    groups = Groups()
    member = groups.stable(1, session_ms=10_000)[0]
    groups.advance(10_000)
    assert groups.group.state is ClassicState.EMPTY
    assert groups.group.generation == 2, "nobody of the old generation is valid any more"
    loaded = groups.reloaded()
    assert (loaded.group.state, loaded.group.generation) == (ClassicState.EMPTY, 2)
    assert loaded.join(member).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_death_ends_the_wait_of_a_rebalance() -> None:
    groups = Groups()
    leader, dead = groups.stable(2, session_ms=10_000, rebalance_ms=60_000)
    rejoined = groups.join(leader)
    assert rejoined.waits
    groups.advance(10_000)
    assert rejoined.response.generation_id == 2
    assert dead not in groups.group.members


def test_a_member_that_waits_for_an_answer_does_not_expire() -> None:
    groups = Groups()
    leader, follower = groups.stable(2, session_ms=10_000, rebalance_ms=60_000)
    waiting = groups.join(follower, protocols=(("range", b"new"),), session_ms=10_000)
    for _ in range(5):
        groups.advance(9_000)
        assert groups.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.waits
    groups.join(leader)
    assert waiting.response.generation_id == 2


def test_a_commit_is_a_sign_of_life() -> None:
    groups = Groups()
    groups.create_topic("t")
    member = groups.stable(1, session_ms=10_000)[0]
    for _ in range(3):
        groups.advance(9_000)
        assert groups.commit(member_id=member, generation=1) == ErrorCode.NONE
    assert groups.group.state is ClassicState.STABLE


def test_leaving_starts_a_rebalance_at_once() -> None:
    groups = Groups()
    leader, gone = groups.stable(2)
    assert groups.leave(gone) == [ErrorCode.NONE]
    assert groups.group.state is ClassicState.PREPARING_REBALANCE
    assert groups.leave(gone) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert groups.join(leader).response.generation_id == 2


def test_members_that_leave_together_make_one_rebalance() -> None:
    groups = Groups()
    members = groups.stable(4)
    errors = groups.leave(members[1], "stranger", members[2])
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    joins = [groups.join(members[0]), groups.join(members[3])]
    assert [join.response.generation_id for join in joins] == [2, 2]


def test_the_leader_that_leaves_is_followed_by_the_next() -> None:
    groups = Groups()
    leader, *others = groups.stable(3)
    groups.leave(leader)
    joins = [groups.join(member) for member in others]
    assert {join.response.leader for join in joins} == {others[0]}


def test_the_last_one_to_leave_makes_the_group_empty() -> None:
    groups = Groups()
    member = groups.stable(1)[0]
    groups.leave(member)
    assert groups.group.state is ClassicState.EMPTY
    assert groups.heartbeat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.timers.keys() == {("expiry",)}


def test_who_leaves_while_waiting_is_answered() -> None:
    groups = Groups()
    member, joined = groups.enter()
    groups.leave(member)
    assert joined.error == ErrorCode.UNKNOWN_MEMBER_ID
    one, first = groups.enter()
    two, _ = groups.enter()
    groups.advance(60_000)
    waiting = groups.sync(two, groups.group.generation)
    groups.leave(two)
    assert waiting.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert one == first.member_id


@pytest.mark.parametrize("version", range(3))
def test_versions_before_3_leave_one_at_a_time(version: int) -> None:
    groups = Groups()
    member = groups.stable(1)[0]
    request = LeaveGroupRequest("g", member_id=member)
    assert groups.leave_request(request, version).error_code == ErrorCode.NONE
    assert groups.leave_request(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    other = LeaveGroupRequest("other", member_id=member)
    assert groups.leave_request(other, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_a_group_that_is_not_there_is_refused_per_member() -> None:
    groups = Groups()
    response = groups.leave_request(LeaveGroupRequest("other", [MemberIdentity("m", "i")]))
    assert response.error_code == ErrorCode.NONE
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in response.members] == [
        ("m", "i", ErrorCode.UNKNOWN_MEMBER_ID)
    ]
    assert groups.leave_request(LeaveGroupRequest("")).error_code == ErrorCode.INVALID_GROUP_ID
    assert groups.list() == []


def test_members_of_a_loaded_group_have_a_session_to_come_back() -> None:
    groups = Groups()
    members = groups.stable(2, session_ms=10_000)
    loaded = groups.reloaded()
    loaded.advance(9_999)
    assert loaded.heartbeat(members[0], 1) == ErrorCode.NONE
    loaded.advance(1)
    assert list(loaded.group.members) == [members[0]]
