"""Static members: they come back under a new member id and find what they had."""

from __future__ import annotations

import pytest

from coordinators.consumer.harness import (
    SESSION_TIMEOUT_MS,
    Cluster,
    Consumer,
    all_partitions,
    assert_one_owner,
    owned_by_all,
    rounds,
)
from penstock.wire.errors import ErrorCode


def two_members(cluster: Cluster) -> tuple[Consumer, Consumer]:
    static, other = Consumer(cluster, "a", instance_id="i"), Consumer(cluster, "b")
    static.join()
    other.join()
    rounds([static, other])
    return static, other


def test_a_static_member_that_comes_back_gets_what_it_had_without_a_rebalance() -> None:
    cluster = Cluster(orders=4)
    static, other = two_members(cluster)
    owned, epoch = dict(static.owned), cluster.group.epoch
    assert static.leave(epoch=-2).member_epoch == -2
    other.beat()
    again = Consumer(cluster, "a2", instance_id="i")
    again.join()
    again.settle()
    assert again.owned == owned
    assert again.epoch == epoch == cluster.group.epoch
    assert list(cluster.group.members) == ["b", "a2"]
    rounds([again, other])
    assert_one_owner([again, other])
    cluster.assert_replay_gives_the_same()


def test_a_static_member_that_does_not_come_back_is_replaced_after_its_session() -> None:
    cluster = Cluster(orders=4)
    static, other = two_members(cluster)
    static.leave(epoch=-2)
    cluster.advance(SESSION_TIMEOUT_MS - 10_001)
    other.beat()
    cluster.advance(10_001)
    assert list(cluster.group.members) == ["b"]
    rounds([other])
    assert owned_by_all([other]) == all_partitions(cluster, "orders")


def test_a_static_member_may_leave_for_good() -> None:
    cluster = Cluster(orders=4)
    static, _ = two_members(cluster)
    assert static.leave(epoch=-1).error_code == 0
    assert list(cluster.group.members) == ["b"]
    assert cluster.group.static_members == {}


def test_an_instance_id_in_use_is_not_given_to_another() -> None:
    cluster = Cluster(orders=4)
    two_members(cluster)
    response = cluster.join("rival", instance_id="i")
    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert "rival" not in cluster.group.members


def test_a_static_member_that_comes_back_with_other_wishes_gets_what_it_asks_for_now() -> None:
    cluster = Cluster(orders=2, refunds=2)
    static = Consumer(cluster, "a", ["orders"], instance_id="i", regex="ref.*", assignor="range")
    static.join()
    static.leave(epoch=-2)
    again = Consumer(cluster, "a2", ["orders"], instance_id="i")
    again.join()
    rounds([again])
    assert owned_by_all([again]) == all_partitions(cluster, "orders")
    assert (cluster.group.resolved, cluster.group.assignor_votes) == ({}, {})
    cluster.assert_replay_gives_the_same()


def test_a_static_member_whose_first_answer_was_lost_may_ask_again() -> None:
    cluster = Cluster(orders=4)
    assert cluster.join("a", instance_id="i").error_code == 0
    response = cluster.join("a", instance_id="i")
    assert (response.error_code, response.member_epoch) == (0, 1)
    assert response.assignment is not None


@pytest.mark.parametrize("epoch", [3, -1, -2])
def test_the_former_incarnation_is_fenced(epoch: int) -> None:
    cluster = Cluster(orders=4)
    static, _ = two_members(cluster)
    static.leave(epoch=-2)
    cluster.join("a2", instance_id="i")
    response = cluster.heartbeat(member_id="a", member_epoch=epoch, instance_id="i")
    assert response.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert "a2" in cluster.group.members


def test_a_static_member_that_leaves_while_it_has_partitions_to_give_up_frees_them() -> None:
    cluster = Cluster(orders=4)
    static, other = Consumer(cluster, "a", instance_id="i"), Consumer(cluster, "b")
    static.join()
    static.settle()
    other.join()
    static.beat()
    other.beat()
    assert other.told == {}
    static.leave(epoch=-2)
    other.beat()
    other.settle()
    assert len(other.owned) == 2
    again = Consumer(cluster, "a2", instance_id="i")
    again.join()
    again.settle()
    assert_one_owner([again, other])
    rounds([again, other])
    assert owned_by_all([again, other]) == all_partitions(cluster, "orders")


def test_the_same_member_id_may_come_back_too() -> None:
    cluster = Cluster(orders=4)
    static, other = two_members(cluster)
    owned = dict(static.owned)
    static.leave(epoch=-2)
    static.join()
    static.settle()
    assert static.owned == owned
    rounds([static, other])
    cluster.assert_replay_gives_the_same()


def test_the_coordinator_restarts_while_a_static_member_is_away() -> None:
    cluster = Cluster(orders=4)
    static, other = two_members(cluster)
    owned = dict(static.owned)
    static.leave(epoch=-2)
    cluster.restart()
    again = Consumer(cluster, "a2", instance_id="i")
    again.join()
    again.settle()
    assert again.owned == owned
    rounds([again, other])
    assert_one_owner([again, other])
