"""SyncGroup: the leader's assignment reaches everybody of its generation, and nobody else."""

from __future__ import annotations

import pytest

from coordinators.groups.harness import Groups, Joined
from penstock.coordinators.groups.classic_group import ClassicState
from penstock.wire.errors import ErrorCode


def completing(groups: Groups, count: int = 2, **options: object) -> list[Joined]:
    """A group that awaits its assignment; the first leads."""
    entered = [groups.enter(**options)[1] for _ in range(count)]
    while any(join.waits for join in entered):
        groups.advance_to_next_timer()
    return entered


def test_followers_wait_for_the_leader_and_get_what_it_assigned() -> None:
    groups = Groups()
    leader, follower = (join.member_id for join in completing(groups))
    waiting = groups.sync(follower, 1)
    assert waiting.waits
    led = groups.sync(leader, 1, {leader: b"mine", follower: b"yours"})
    assert led.response.assignment == b"mine"
    assert waiting.response.assignment == b"yours"
    assert (waiting.response.protocol_type, waiting.response.protocol_name) == ("consumer", "range")
    assert groups.group.state is ClassicState.STABLE


def test_who_syncs_after_the_leader_gets_its_assignment_at_once() -> None:
    groups = Groups()
    leader, follower = (join.member_id for join in completing(groups))
    groups.sync(leader, 1, {follower: b"yours"})
    assert groups.sync(follower, 1).response.assignment == b"yours"
    assert groups.sync(follower, 1).response.assignment == b"yours", "and again if the answer was lost"


def test_members_the_leader_forgot_get_nothing_and_strangers_are_ignored() -> None:
    groups = Groups()
    leader, follower = (join.member_id for join in completing(groups))
    assert groups.sync(leader, 1, {"stranger": b"?"}).response.assignment == b""
    assert groups.sync(follower, 1).response.assignment == b""
    assert list(groups.group.members) == [leader, follower]


def test_the_assignment_is_in_the_log_before_anybody_has_it() -> None:
    groups = Groups()
    leader, follower = (join.member_id for join in completing(groups))
    groups.sync(leader, 1, {leader: b"mine", follower: b"yours"})
    loaded = groups.reloaded()
    assert loaded.sync(follower, 1).response.assignment == b"yours"
    assert loaded.group.leader_id == leader


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(change: dict[str, object], error: ErrorCode) -> None:
    groups = Groups()
    leader = completing(groups)[0].member_id
    request: dict[str, object] = {"member_id": leader, "generation": 1, "assignments": {}, **change}
    assert groups.sync(**request).error == error  # type: ignore[arg-type]
    assert groups.group.state is ClassicState.COMPLETING_REBALANCE


def test_versions_before_5_name_no_protocol() -> None:
    groups = Groups()
    leader = completing(groups, 1)[0].member_id
    assert groups.sync(leader, 1, {}, protocol_type=None, protocol_name=None).error == ErrorCode.NONE


def test_a_sync_during_the_next_rebalance_is_told_to_rejoin() -> None:
    groups = Groups()
    leader, follower = groups.stable(2)
    groups.join(leader)
    assert groups.sync(follower, 1).error == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_without_members_knows_no_member() -> None:
    groups = Groups()
    member = groups.stable(1)[0]
    groups.leave(member)
    assert groups.sync(member, 1).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_does_not_sync_within_the_rebalance_timeout_is_out() -> None:
    groups = Groups()
    leader, follower = (join.member_id for join in completing(groups, rebalance_ms=20_000, session_ms=60_000))
    groups.sync(leader, 1, {leader: b"mine"})
    groups.advance(19_999)
    assert follower in groups.group.members
    groups.advance(1)
    assert list(groups.group.members) == [leader]
    assert groups.group.state is ClassicState.PREPARING_REBALANCE


def test_a_leader_that_never_syncs_is_out_and_the_others_start_over() -> None:
    groups = Groups()
    leader, follower = (join.member_id for join in completing(groups, rebalance_ms=20_000, session_ms=60_000))
    waiting = groups.sync(follower, 1)
    groups.advance(20_000)
    assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS
    again = groups.join(follower)
    assert again.response.leader == follower
    assert leader not in groups.group.members


def test_nobody_is_expired_once_all_have_synced() -> None:
    groups = Groups()
    members = groups.stable(2, rebalance_ms=20_000, session_ms=60_000)
    groups.advance(20_000)
    assert list(groups.group.members) == members
    assert groups.group.state is ClassicState.STABLE


def test_a_session_starts_over_with_the_assignment() -> None:
    groups = Groups()
    leader, follower = (join.member_id for join in completing(groups, rebalance_ms=60_000, session_ms=10_000))
    waiting = groups.sync(follower, 1)
    groups.advance(9_000)
    groups.heartbeat(leader, 1)
    groups.advance(9_000)
    assert waiting.waits, "who waits need not send heartbeats"
    groups.sync(leader, 1, {})
    groups.advance(9_999)
    assert follower in groups.group.members
    groups.advance(1)
    assert follower not in groups.group.members


def test_a_second_sync_of_the_same_member_answers_the_first() -> None:
    groups = Groups()
    leader, follower = (join.member_id for join in completing(groups))
    first = groups.sync(follower, 1)
    second = groups.sync(follower, 1)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    groups.sync(leader, 1, {follower: b"yours"})
    assert second.response.assignment == b"yours"


def test_a_generation_too_large_for_a_record_is_refused_and_started_over() -> None:
    groups = Groups(batch_bytes_max=5_000)
    leader, follower = (join.member_id for join in completing(groups))
    waiting = groups.sync(follower, 1)
    written = len(groups.records)
    led = groups.sync(leader, 1, {follower: bytes(5_000)})
    assert led.error == waiting.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(groups.records) == written
    assert groups.group.state is ClassicState.PREPARING_REBALANCE
    joins = [groups.join(leader), groups.join(follower)]
    groups.settle(joins)
    assert str(groups.group.state) == str(ClassicState.STABLE)
