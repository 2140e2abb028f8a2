"""DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

import pytest

from coordinators.groups.harness import Groups
from penstock.wire.errors import ErrorCode


def test_a_stable_group_is_described_with_its_members_and_their_shares() -> None:
    groups = Groups()
    leader, follower = groups.stable(2, host="/10.1.2.3", client="c")
    described = groups.describe()
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    assert [(m.member_id, m.client_id, m.client_host, m.member_metadata) for m in described.members] == [
        (leader, "c", "/10.1.2.3", b"subscription"),
        (follower, "c", "/10.1.2.3", b"subscription"),
    ]
    assert [m.member_assignment for m in described.members] == [leader.encode(), follower.encode()]


def test_states_are_described_by_kafkas_names() -> None:
    groups = Groups()
    groups.join()
    assert groups.describe().group_state == "Empty"
    member, joined = groups.enter()
    assert groups.describe().group_state == "PreparingRebalance"
    groups.advance(3_000)
    assert joined.response.generation_id == 1
    described = groups.describe()
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert described.members[0].member_metadata == b""
    groups.sync(member, 1, {member: b"all"})
    assert groups.describe().group_state == "Stable"
    groups.leave(member)
    groups.advance(0)
    assert groups.describe().group_state == "Empty"


def test_a_group_that_is_not_there_is_dead_and_from_version_6_not_found() -> None:
    groups = Groups()
    old = groups.describe("x", version=5)
    assert (old.error_code, old.group_state, old.error_message) == (ErrorCode.NONE, "Dead", None)
    new = groups.describe("x", version=6)
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.error_message == "Group x not found."


def with_groups() -> Groups:
    groups = Groups()
    groups.create_topic("t")
    groups.commit(1, group="simple")
    groups.join(group="empty")
    groups.enter(group="preparing")
    return groups


def test_groups_are_listed_with_state_and_type() -> None:
    listed = with_groups().list()
    assert [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in listed] == [
        ("empty", "", "Empty", "classic"),
        ("preparing", "consumer", "PreparingRebalance", "classic"),
        ("simple", "", "Empty", "classic"),
    ]


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (("Empty",), (), ["empty", "simple"]),
        (("eMPTY", "Dead"), (), ["empty", "simple"]),
        (("PREPARINGREBALANCE",), ("CLASSIC",), ["preparing"]),
        ((), ("Classic", "consumer"), ["empty", "preparing", "simple"]),
        ((), ("consumer",), []),
        ((), ("nonsense",), []),
        (("nonsense",), (), []),
    ],
)
def test_filters_by_state_and_type_ignore_case(
    states: tuple[str, ...], types: tuple[str, ...], expected: list[str]
) -> None:
    assert [group.group_id for group in with_groups().list(states, types)] == expected


def test_deleting_a_group_takes_its_offsets_and_leaves_tombstones_only() -> None:
    groups = Groups()
    groups.create_topic("t", partitions=3)
    for partition in range(3):
        groups.commit(1, partition=partition)
    groups.commit(1, group="other")
    groups.leave(groups.stable(1)[0])
    assert groups.delete() == ErrorCode.NONE
    for shard in (groups, groups.reloaded()):
        assert [g.group_id for g in shard.list()] == ["other"]
        assert shard.fetch_all() == {}
    newest = {record.key: record.value for record in groups.records}
    assert sum(value is not None for value in newest.values()) == 1


def test_a_group_with_members_is_not_deleted() -> None:
    groups = Groups()
    groups.create_topic("t")
    member = groups.stable(1)[0]
    groups.commit(1, member_id=member, generation=1)
    assert groups.delete() == ErrorCode.NON_EMPTY_GROUP
    groups.join(member)
    assert groups.delete() == ErrorCode.NON_EMPTY_GROUP
    assert groups.fetch().committed_offset == 1


def test_a_group_that_is_not_there_is_not_deleted() -> None:
    groups = Groups()
    assert groups.delete("x") == ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.records == []


def test_who_was_about_to_join_a_deleted_group_starts_over() -> None:
    groups = Groups()
    pending = groups.join().member_id
    assert groups.delete() == ErrorCode.NONE
    assert groups.join(pending).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert ("session", "g", pending) not in groups.timers
