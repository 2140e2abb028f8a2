"""Offsets that transactions commit: pending until the marker, and never older than what was committed since."""

from __future__ import annotations

import pytest

from coordinators.groups.harness import Groups
from penstock.coordinators.groups.records import offset_key, offset_value
from penstock.wire.errors import ErrorCode


@pytest.fixture
def groups() -> Groups:
    driver = Groups()
    driver.create_topic("t", partitions=3)
    return driver


def replay(groups: Groups, offset: int | None, *, producer: int = -1, partition: int = 0, group: str = "g") -> None:
    """A record of the log; None is a tombstone."""
    value = None if offset is None else offset_value(offset, -1, "", 0)
    groups.shard.replay(groups.next_offset, producer, 0, offset_key(group, "t", partition), value)
    groups.next_offset += 1


def end(groups: Groups, producer: int, *, committed: bool) -> None:
    groups.shard.replay_end_marker(producer, 0, committed)
    groups.next_offset += 1


def test_a_pending_offset_takes_effect_with_the_commit_marker(groups: Groups) -> None:
    replay(groups, 5, producer=1)
    assert groups.fetch().committed_offset == -1
    end(groups, 1, committed=True)
    assert groups.fetch().committed_offset == 5
    assert groups.shard.offsets.count == 1


def test_an_aborted_offset_is_forgotten(groups: Groups) -> None:
    replay(groups, 4)
    replay(groups, 5, producer=1)
    end(groups, 1, committed=False)
    assert groups.fetch().committed_offset == 4
    assert not groups.shard.offsets.has_open_transactions("g")


def test_whoever_wants_stable_offsets_is_told_to_wait_for_the_marker(groups: Groups) -> None:
    replay(groups, 4)
    replay(groups, 4, partition=1)
    replay(groups, 5, producer=1)
    assert groups.fetch(stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert groups.fetch(stable=True).committed_offset == -1
    assert groups.fetch(stable=False).committed_offset == 4
    assert groups.fetch(partition=1, stable=True).committed_offset == 4
    assert groups.fetch_all(stable=True) == {("t", 0): -1, ("t", 1): 4}
    assert groups.fetch_all() == {("t", 0): 4, ("t", 1): 4}
    end(groups, 1, committed=True)
    assert groups.fetch(stable=True).committed_offset == 5


def test_a_partition_that_was_only_committed_in_a_transaction_is_unstable_too(groups: Groups) -> None:
    replay(groups, 5, producer=1)
    assert groups.fetch(stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_a_regular_commit_after_the_transactions_wins_whenever_the_marker_comes(groups: Groups) -> None:
    replay(groups, 5, producer=1)
    replay(groups, 9)
    assert groups.fetch(stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(groups, 1, committed=True)
    assert groups.fetch(stable=True).committed_offset == 9


def test_of_two_transactions_the_later_record_wins_whatever_the_order_of_the_markers(groups: Groups) -> None:
    for first, second in ((1, 2), (2, 1)):
        replay(groups, 5, producer=1)
        replay(groups, 6, producer=2)
        end(groups, first, committed=True)
        end(groups, second, committed=True)
        assert groups.fetch().committed_offset == 6


def test_a_producers_later_commit_replaces_its_own(groups: Groups) -> None:
    replay(groups, 5, producer=1)
    replay(groups, 9)
    replay(groups, 6, producer=1)
    end(groups, 1, committed=True)
    assert groups.fetch().committed_offset == 6


def test_a_tombstone_takes_pending_offsets_too(groups: Groups) -> None:
    replay(groups, 5, producer=1)
    replay(groups, None)
    end(groups, 1, committed=True)
    assert groups.fetch().committed_offset == -1
    assert not groups.shard.offsets.has_open_transactions("g")


def test_a_transaction_may_span_groups(groups: Groups) -> None:
    replay(groups, 5, producer=1, group="g")
    replay(groups, 6, producer=1, group="h")
    replay(groups, 7, producer=2, group="h", partition=1)
    end(groups, 1, committed=True)
    assert groups.fetch(group="h", stable=True).committed_offset == 6
    assert groups.fetch(group="h", partition=1, stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_a_marker_of_a_producer_that_wrote_nothing_here_means_nothing(groups: Groups) -> None:
    end(groups, 77, committed=True)
    assert groups.list() == []


def test_deleting_offsets_and_groups_tombstones_what_is_pending(groups: Groups) -> None:
    replay(groups, 5, producer=1)
    groups.delete_offsets(("t", 0))
    assert [record.value for record in groups.records] == [None]
    replay(groups, 5, producer=2, partition=1)
    assert groups.delete() == ErrorCode.NONE
    end(groups, 1, committed=True)
    end(groups, 2, committed=True)
    assert groups.fetch_all() == {}
    assert groups.list() == []


def test_pending_offsets_of_a_deleted_topic_are_tombstoned(groups: Groups) -> None:
    replay(groups, 5, producer=1)
    groups.delete_topic("t")
    assert [record.value for record in groups.records] == [None]
    end(groups, 1, committed=True)
    assert groups.fetch_all() == {}


def test_neither_an_offset_with_a_pending_one_nor_its_group_expires() -> None:
    groups = Groups(offsets_retention_ms=1_000_000)
    groups.create_topic("t")
    groups.commit(1)
    replay(groups, 5, producer=1)
    groups.advance(2_000_000)
    assert groups.fetch().committed_offset == 1
    end(groups, 1, committed=False)
    groups.advance(600_000)
    assert groups.fetch().committed_offset == -1
