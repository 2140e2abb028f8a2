"""JoinGroup: who gets in, under which id, and when everybody hears of it."""

from __future__ import annotations

import pytest

from coordinators.groups.harness import Groups
from penstock.coordinators.groups.classic_group import ClassicState
from penstock.wire.errors import ErrorCode


def test_a_new_member_is_asked_to_come_back_with_its_id() -> None:
    groups = Groups()
    first = groups.join(client="billing")
    assert first.error == ErrorCode.MEMBER_ID_REQUIRED
    prefix, _, rest = first.member_id.partition("-")
    assert prefix == "billing"
    assert [len(part) for part in rest.split("-")] == [8, 4, 4, 4, 12]
    assert groups.join(first.member_id).waits


@pytest.mark.parametrize("version", range(4))
def test_versions_before_4_join_in_one_round(version: int) -> None:
    groups = Groups()
    joined = groups.join(version=version)
    assert joined.waits
    groups.advance(3_000)
    assert joined.response.member_id == joined.response.leader
    assert joined.response.generation_id == 1


def test_an_id_that_nobody_gave_is_unknown() -> None:
    groups = Groups()
    assert groups.join("client-made-up").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.list() == []
    groups.stable(1)
    assert groups.join("client-made-up").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_rebalance_waits_for_the_initial_delay() -> None:
    groups = Groups(group_initial_rebalance_delay_ms=3_000)
    _, joined = groups.enter()
    groups.advance(2_999)
    assert joined.waits
    groups.advance(1)
    assert joined.response.generation_id == 1


def test_the_initial_delay_is_extended_while_members_keep_coming_up_to_the_rebalance_timeout() -> None:
    groups = Groups(group_initial_rebalance_delay_ms=3_000)
    _, first = groups.enter(rebalance_ms=8_000)
    joins = [first]
    for _ in range(3):
        groups.advance(2_000)
        joins.append(groups.enter(rebalance_ms=8_000)[1])
    groups.advance(1_999)
    assert all(join.waits for join in joins)
    groups.advance(1)
    assert [join.response.generation_id for join in joins] == [1, 1, 1, 1]


def test_the_initial_delay_is_not_extended_without_new_members() -> None:
    groups = Groups(group_initial_rebalance_delay_ms=3_000)
    _, first = groups.enter()
    _, second = groups.enter()
    groups.advance(3_000)
    assert first.waits, "the second came during the delay"
    groups.advance(3_000)
    assert first.response.generation_id == second.response.generation_id == 1


def test_the_leader_gets_everybodys_metadata_and_the_others_nothing() -> None:
    groups = Groups()
    one, first = groups.enter(protocols=(("range", b"one"),))
    two, second = groups.enter(protocols=(("range", b"two"),))
    groups.advance(6_000)
    assert first.response.leader == second.response.leader == one
    assert [(m.member_id, m.metadata) for m in first.response.members] == [(one, b"one"), (two, b"two")]
    assert second.response.members == []
    assert first.response.protocol_name == second.response.protocol_name == "range"
    assert first.response.protocol_type == "consumer"


def test_the_protocol_most_members_prefer_is_chosen_among_those_that_all_have() -> None:
    groups = Groups()
    joins = [
        groups.enter(protocols=(("a", b""), ("b", b""), ("c", b"")))[1],
        groups.enter(protocols=(("x", b""), ("b", b""), ("c", b"")))[1],
        groups.enter(protocols=(("c", b""), ("b", b"")))[1],
    ]
    groups.advance(60_000)
    assert {join.response.protocol_name for join in joins} == {"b"}


def test_cooperative_protocols_pass_through_untouched() -> None:
    groups = Groups()
    metadata = bytes(range(256))
    member, joined = groups.enter(protocols=(("cooperative-sticky", metadata),))
    groups.advance(3_000)
    assert joined.response.members[0].metadata == metadata
    assignment = bytes(reversed(range(256)))
    synced = groups.sync(member, 1, {member: assignment}, protocol_name="cooperative-sticky")
    assert synced.response.assignment == assignment
    assert groups.describe().members[0].member_assignment == assignment


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    groups = Groups()
    assert groups.join(session_ms=session_ms).error == ErrorCode.INVALID_SESSION_TIMEOUT
    assert groups.list() == []


def test_a_group_needs_an_id() -> None:
    groups = Groups()
    assert groups.join(group="").error == ErrorCode.INVALID_GROUP_ID


def test_the_longest_client_id_makes_a_member_id_that_can_be_stored() -> None:
    groups = Groups()
    member_id = groups.join(client="ä" * 16_383).member_id
    assert len(member_id.encode()) <= 32_767
    joined = groups.join(member_id)
    groups.advance_to_next_timer()
    groups.settle([joined])
    assert groups.reloaded().group.leader_id == member_id


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", (("range", b""),)), ("consumer", ())])
def test_a_group_cannot_begin_without_protocols(protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
    groups = Groups()
    joined = groups.join(protocol_type=protocol_type, protocols=protocols)
    assert joined.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.records == []


def test_a_member_with_another_protocol_type_or_none_in_common_is_refused() -> None:
    groups = Groups()
    members = groups.stable(2)
    assert groups.join(protocol_type="connect").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.join(protocols=(("sticky", b""),)).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.join(members[0], protocols=(("sticky", b""),)).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.group.state is ClassicState.STABLE


def test_whoever_comes_while_only_ids_are_out_is_let_in() -> None:
    """All members are gone, but a rebalance still waits for somebody who was given an id."""
    groups = Groups(group_initial_rebalance_delay_ms=0)
    member = groups.stable(1)[0]
    pending = groups.join().member_id
    groups.leave(member)
    assert groups.group.state is ClassicState.PREPARING_REBALANCE
    assert not groups.group.members
    joined = groups.join(pending, protocols=(("sticky", b""),))
    assert joined.response.protocol_name == "sticky"


def test_more_protocols_or_metadata_than_a_record_holds_are_refused() -> None:
    groups = Groups(batch_bytes_max=10_000)
    many = tuple((f"p{number}", b"") for number in range(101))
    assert groups.join(protocols=many).error == ErrorCode.INVALID_REQUEST
    assert groups.join(protocols=(("range", bytes(10_001)),)).error == ErrorCode.INVALID_REQUEST


def test_a_full_group_takes_nobody_else() -> None:
    groups = Groups(group_max_size=2)
    members = groups.stable(2)
    assert groups.join().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.group.state is ClassicState.STABLE
    assert list(groups.group.members) == members


def test_a_full_group_refuses_while_it_gathers_too() -> None:
    groups = Groups(group_max_size=2)
    ids = [groups.join().member_id for _ in range(3)]
    joins = [groups.join(member_id) for member_id in ids]
    assert [join.waits for join in joins] == [True, True, False]
    assert joins[2].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    groups.advance(60_000)
    assert [join.response.generation_id for join in joins[:2]] == [1, 1]


def test_a_group_that_was_loaded_over_its_limit_rebalances_and_lets_in_as_many_as_fit() -> None:
    groups = Groups()
    members = groups.stable(3)
    groups.shard.config = Groups(group_max_size=2).shard.config
    loaded = groups.reloaded()
    assert loaded.group.state is ClassicState.PREPARING_REBALANCE
    joins = [loaded.join(member) for member in members]
    assert joins[2].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [join.response.generation_id for join in joins[:2]] == [2, 2]


def test_a_pending_member_that_never_comes_back_is_forgotten() -> None:
    groups = Groups()
    pending = groups.join(session_ms=10_000).member_id
    groups.advance(10_000)
    assert groups.join(pending).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_does_not_wait_for_a_pending_member_longer_than_its_session() -> None:
    groups = Groups()
    leader = groups.stable(1)[0]
    groups.join(session_ms=6_000)
    rejoined = groups.join(leader)
    assert rejoined.waits, "somebody was given an id and may come back"
    groups.advance(6_000)
    assert rejoined.response.generation_id == 2


def test_a_pending_member_can_leave() -> None:
    groups = Groups()
    leader = groups.stable(1)[0]
    pending = groups.join().member_id
    rejoined = groups.join(leader)
    assert groups.leave(pending) == [ErrorCode.NONE]
    assert rejoined.response.generation_id == 2


def test_a_member_that_joins_again_with_nothing_new_in_a_stable_group_gets_the_current_generation() -> None:
    groups = Groups()
    _, follower = groups.stable(2)
    again = groups.join(follower)
    assert again.response.generation_id == 1
    assert again.response.members == []
    assert groups.group.state is ClassicState.STABLE


def test_the_leader_that_joins_again_starts_a_rebalance() -> None:
    groups = Groups()
    leader, follower = groups.stable(2)
    assert groups.join(leader).waits
    assert groups.group.state is ClassicState.PREPARING_REBALANCE
    assert groups.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_with_new_metadata_starts_a_rebalance() -> None:
    groups = Groups()
    leader, follower = groups.stable(2)
    changed = groups.join(follower, protocols=(("range", b"new"),))
    assert changed.waits
    led = groups.join(leader)
    assert changed.response.generation_id == 2
    assert [m.metadata for m in led.response.members] == [b"subscription", b"new"]


def test_a_lost_answer_is_given_again_while_the_assignment_is_awaited() -> None:
    groups = Groups()
    one, first = groups.enter()
    two, _ = groups.enter()
    groups.advance(6_000)
    again = groups.join(one)
    assert again.response.members == first.response.members
    assert groups.join(two).response.members == []
    assert groups.group.state is ClassicState.COMPLETING_REBALANCE


def test_new_metadata_while_the_assignment_is_awaited_starts_over() -> None:
    groups = Groups()
    one, _ = groups.enter()
    two, _ = groups.enter()
    groups.advance(6_000)
    synced = groups.sync(two, 1)
    changed = groups.join(one, protocols=(("range", b"new"),))
    assert changed.waits
    assert synced.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_request_of_the_same_member_answers_the_first() -> None:
    groups = Groups()
    member, first = groups.enter()
    second = groups.join(member)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    groups.advance(60_000)
    assert second.response.generation_id == 1


def test_who_does_not_join_within_the_rebalance_timeout_is_out() -> None:
    groups = Groups()
    leader, late = groups.stable(2, rebalance_ms=20_000, session_ms=30_000)
    _, new = groups.enter(rebalance_ms=15_000)
    rejoined = groups.join(leader, rebalance_ms=20_000)
    groups.advance(19_999)
    assert rejoined.waits
    groups.advance(1)
    assert rejoined.response.generation_id == new.response.generation_id == 2
    assert groups.heartbeat(late, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_somebody_else_leads_if_the_leader_does_not_join_again() -> None:
    groups = Groups()
    _, follower = groups.stable(2, rebalance_ms=20_000, session_ms=30_000)
    rejoined = groups.join(follower, protocols=(("range", b"new"),), rebalance_ms=20_000)
    groups.advance(20_000)
    assert rejoined.response.leader == follower
    assert [m.member_id for m in rejoined.response.members] == [follower]


def test_a_new_member_that_waits_too_long_for_its_first_rebalance_expires() -> None:
    groups = Groups()
    leader = groups.stable(1, rebalance_ms=400_000, session_ms=30_000)[0]
    _, new = groups.enter(rebalance_ms=400_000)
    for _ in range(19):
        groups.advance(15_000)
        assert groups.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        assert new.waits
    groups.advance(15_000)
    assert new.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_group_is_in_the_log_before_its_first_generation() -> None:
    groups = Groups()
    groups.join()
    assert len(groups.records) == 1
    assert [g.group_id for g in groups.reloaded().list()] == ["g"]


def test_version_0_has_no_rebalance_timeout_but_the_session_timeout() -> None:
    groups = Groups()
    member = groups.join(version=0, session_ms=7_000, rebalance_ms=-1)
    groups.advance(3_000)
    assert groups.group.members[member.member_id].rebalance_timeout_ms == 7_000
