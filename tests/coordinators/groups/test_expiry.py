"""Offsets that nobody needs any more go, and with the last of them their group (KIP-211)."""

from __future__ import annotations

import pytest

from coordinators.groups.harness import Groups, subscription
from penstock.wire.errors import ErrorCode

RETENTION_MS = 10_000_000
CHECK_MS = 600_000


@pytest.fixture
def groups() -> Groups:
    driver = Groups(offsets_retention_ms=RETENTION_MS)
    driver.create_topic("t", partitions=2)
    driver.create_topic("u", partitions=2)
    return driver


def test_offsets_of_a_simple_group_expire_each_after_its_commit(groups: Groups) -> None:
    groups.commit(1, partition=0)
    groups.advance(RETENTION_MS - CHECK_MS)
    groups.commit(1, partition=1)
    groups.advance(2 * CHECK_MS)
    assert groups.fetch_all() == {("t", 1): 1}
    groups.advance(RETENTION_MS)
    assert groups.fetch_all() == {}
    assert groups.list() == []
    assert groups.reloaded().list() == []


def test_a_new_commit_starts_the_retention_over(groups: Groups) -> None:
    for _ in range(5):
        groups.commit(1)
        groups.advance(RETENTION_MS - CHECK_MS)
    assert groups.fetch().committed_offset == 1


def test_offsets_of_an_empty_group_expire_after_it_became_empty(groups: Groups) -> None:
    member = groups.stable(1, session_ms=1_800_000, protocols=(("range", subscription("t")),))[0]
    groups.commit(1, member_id=member, generation=1)
    for _ in range(20):
        groups.advance(RETENTION_MS // 10)
        assert groups.heartbeat(member, 1) == ErrorCode.NONE
    groups.leave(member)
    groups.advance(RETENTION_MS - CHECK_MS)
    assert groups.reloaded().fetch().committed_offset == 1
    groups.advance(2 * CHECK_MS)
    assert groups.fetch_all() == {}
    assert groups.list() == []
    assert groups.records[-1].value is None, "the group's own tombstone comes last"


def test_offsets_of_topics_that_a_stable_group_no_longer_reads_expire_after_their_commit(groups: Groups) -> None:
    member = groups.stable(1, session_ms=1_800_000, protocols=(("range", subscription("t")),))[0]
    groups.commit(1, topic="t", member_id=member, generation=1)
    groups.commit(1, topic="u", member_id=member, generation=1)
    for _ in range(11):
        groups.advance(RETENTION_MS // 10)
        assert groups.heartbeat(member, 1) == ErrorCode.NONE
    assert groups.fetch_all() == {("t", 0): 1}
    assert len(groups.list()) == 1


def test_offsets_of_members_whose_subscriptions_cannot_be_read_stay(groups: Groups) -> None:
    member = groups.stable(1, session_ms=1_800_000, protocols=(("range", b"?"),))[0]
    groups.commit(1, topic="u", member_id=member, generation=1)
    for _ in range(12):
        groups.advance(RETENTION_MS // 10)
        groups.heartbeat(member, 1)
    assert groups.fetch_all() == {("u", 0): 1}


def test_nothing_expires_while_a_group_rebalances(groups: Groups) -> None:
    leader, follower = groups.stable(
        2, session_ms=1_800_000, rebalance_ms=100_000_000, protocols=(("range", subscription("t")),)
    )
    groups.commit(1, topic="u", member_id=leader, generation=1)
    groups.join(leader, session_ms=1_800_000, rebalance_ms=100_000_000)
    for _ in range(12):
        groups.advance(RETENTION_MS // 10)
        groups.heartbeat(follower, 1)
    assert groups.fetch_all() == {("u", 0): 1}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_retention_that_an_old_client_asked_for_is_kept(groups: Groups, version: int) -> None:
    groups.commit(1, partition=0, retention_ms=CHECK_MS, version=version)
    groups.commit(1, partition=1, retention_ms=3 * RETENTION_MS, version=version)
    loaded = groups.reloaded()
    for shard in (groups, loaded):
        shard.advance(CHECK_MS)
        assert shard.fetch_all() == {("t", 1): 1}
        shard.advance(2 * RETENTION_MS)
        assert shard.fetch_all() == {("t", 1): 1}


def test_an_empty_group_without_offsets_is_forgotten_at_the_next_look(groups: Groups) -> None:
    groups.leave(groups.stable(1)[0])
    assert len(groups.list()) == 1
    groups.advance(CHECK_MS)
    assert groups.list() == []
    assert groups.reloaded().list() == []


def test_a_group_that_somebody_is_about_to_join_is_kept() -> None:
    groups = Groups(offsets_retention_check_interval_ms=5_000)
    pending = groups.join(session_ms=30_000).member_id
    groups.advance(5_000)
    assert groups.join(pending).waits


def test_no_turn_writes_more_than_a_batch_holds_however_long_the_names_are() -> None:
    groups = Groups(offsets_retention_ms=600_000, batch_bytes_max=100_000)
    groups.create_topic("t", partitions=3)
    names = [f"{number}-" + "g" * 10_000 for number in range(20)]
    for name in names:
        for partition in range(3):
            groups.commit(1, group=name, partition=partition)
    groups.take_records()
    groups.turn_bytes_max = 0
    groups.advance(600_000)
    assert groups.list() == []
    assert len(groups.take_records()) == 20 * 3
    assert 0 < groups.turn_bytes_max <= 100_000


def test_looking_around_is_spread_over_turns() -> None:
    groups = Groups(offsets_retention_ms=1_000_000)
    groups.create_topic("t", partitions=1_000)
    for number in range(10):
        for partition in range(0, 1_000, 2):
            groups.commit(1, partition=partition, group=f"g{number}")
    groups.advance(600_000)
    turns: list[int] = []
    start = len(groups.records)
    callback = groups.timers["expiry",][2]
    groups.now_ms += 600_000
    while True:
        before = len(groups.records)
        del groups.timers["expiry",]
        callback(groups.turn(), ("expiry",))
        turns.append(len(groups.records) - before)
        deadline, _, callback = groups.timers["expiry",]
        if deadline > groups.now_ms:
            break
    assert len(turns) >= 3
    assert max(turns) <= 2_500 + 10
    assert sum(turns) == len(groups.records) - start >= 5_000
