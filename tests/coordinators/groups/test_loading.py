"""A shard that loads what another one wrote is that other one, as far as it was durable."""

from __future__ import annotations

import pytest

from coordinators.groups.harness import Groups
from coordinators.support import ShardDriver
from penstock.coordinators.groups import GroupConfig, GroupShard
from penstock.coordinators.groups.classic_group import ClassicState
from penstock.coordinators.groups.records import group_key, group_value, offset_key, offset_value
from penstock.wire.errors import ErrorCode, WireError


def stable_group() -> bytes:
    """The record of a stable group with one member."""
    groups = Groups()
    groups.stable(1)
    return group_value(groups.group)


def test_only_the_last_record_of_a_group_is_decoded() -> None:
    shard = GroupShard(GroupConfig())
    shard.replay(0, -1, -1, group_key("g"), b"this is not a group")
    shard.replay(1, -1, -1, group_key("g"), None)
    shard.replay(2, -1, -1, group_key("h"), b"neither is this")
    shard.replay(3, -1, -1, group_key("h"), stable_group())
    driver = ShardDriver(shard)
    shard.on_loaded(driver.turn())
    assert list(shard.groups) == ["h"]


def test_groups_are_decoded_in_the_background_and_when_asked_for() -> None:
    value = stable_group()
    shard = GroupShard(GroupConfig())
    for number in range(250):
        shard.replay(number, -1, -1, group_key(f"g{number}"), value)
    driver = ShardDriver(shard)
    shard.on_loaded(driver.turn())
    assert len(shard.groups) == 100
    assert shard.table.find(driver.turn(), "g249") is not None, "who is asked for need not wait"
    driver.advance(0)
    assert len(shard.groups) == 250
    assert sum(key[0] == "session" for key in driver.timers) == 250


def test_all_groups_are_listed_before_they_are_decoded() -> None:
    value = stable_group()
    loaded = Groups()
    for number in range(250):
        loaded.shard.replay(number, -1, -1, group_key(f"g{number}"), value)
    assert len(loaded.list(("Stable",))) == 250


def test_offsets_of_the_oldest_kind_of_key_are_read() -> None:
    groups = Groups()
    groups.create_topic("t")
    key = offset_key("g", "t", 0)
    groups.shard.replay(0, -1, -1, b"\x00\x00" + key[2:], offset_value(5, -1, "", 0))
    assert groups.fetch().committed_offset == 5


def test_records_of_unknown_kinds_are_passed_over() -> None:
    shard = GroupShard(GroupConfig())
    for key in (b"\x00\x0b\x00\x01g", b"\x7f\x00\x00\x01g", b"\x00\x01", b""):
        shard.replay(0, -1, -1, key, b"?")
    assert shard.table.group_ids() == []


def test_groups_that_only_commit_need_no_object_each() -> None:
    groups = Groups()
    groups.create_topic("t")
    for number in range(10):
        for offset in range(2):
            groups.commit(offset, group=f"g{number}")
        assert groups.fetch(group=f"g{number}").committed_offset == 1
    groups.advance(600_000)
    assert len(groups.list()) == 10
    assert groups.shard.groups == {}


def test_a_key_that_is_cut_off_stops_the_load() -> None:
    shard = GroupShard(GroupConfig())
    for cut in range(4, len(offset_key("g", "t", 0))):
        with pytest.raises(WireError):
            shard.replay(0, -1, -1, offset_key("g", "t", 0)[:cut], b"?")
    with pytest.raises(WireError):
        shard.replay(0, -1, -1, b"\x00\x02\x00\x09g", b"?")


def test_a_rebalance_under_way_is_forgotten_and_started_anew_by_its_members() -> None:
    groups = Groups()
    leader, follower = groups.stable(2)
    groups.join(leader)
    loaded = groups.reloaded()
    assert loaded.group.state is ClassicState.STABLE
    assert loaded.heartbeat(follower, 1) == ErrorCode.NONE
    rejoined = loaded.join(leader)
    loaded.join(follower, protocols=(("range", b"new"),))
    assert rejoined.response.generation_id == 2


def test_deleted_groups_stay_deleted() -> None:
    groups = Groups()
    groups.create_topic("t")
    groups.commit(1)
    groups.leave(groups.stable(1)[0])
    groups.delete()
    assert groups.reloaded().list() == []


def test_a_resigned_shard_lets_go_of_everything() -> None:
    groups = Groups()
    groups.stable(1)
    groups.shard.on_resigned()
    assert groups.shard.groups == {}
