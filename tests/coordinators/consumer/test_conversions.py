"""Groups change their protocol while members stay: upgrades, downgrades, and everything between."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinators.consumer.classic_client import ClassicConsumer, embedded_assignment
from coordinators.consumer.harness import (
    CONFIG,
    GROUP,
    SESSION_TIMEOUT_MS,
    Cluster,
    Consumer,
    Partition,
    all_partitions,
)
from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicState
from penstock.coordinators.groups.config import replace
from penstock.coordinators.groups.consumer import ConsumerGroup
from penstock.wire.errors import ErrorCode

FAST = replace(CONFIG, group_initial_rebalance_delay_ms=0)
Member = Consumer | ClassicConsumer


def run(cluster: Cluster, members: Sequence[Member], count: int = 12) -> None:
    """Everyone does the next thing, time after time; nobody owns what another owns."""
    for _ in range(count):
        for member in members:
            if not member.alive:
                continue
            if isinstance(member, Consumer):
                member.beat()
                member.settle()
            else:
                member.step()
            check_one_owner(members)
        cluster.advance(1_000)


def check_one_owner(members: Sequence[Member]) -> None:
    owned = [partition for member in members for partition in member.owned]
    assert len(owned) == len(set(owned))


def owned(members: Sequence[Member]) -> list[Partition]:
    return sorted(partition for member in members for partition in member.owned)


def classic_members(cluster: Cluster, count: int = 2, **options: Any) -> list[ClassicConsumer]:
    members = [ClassicConsumer(cluster, f"c{number}", **options) for number in range(count)]
    run(cluster, members)
    assert isinstance(cluster.shard.groups[GROUP], ClassicGroup)
    assert cluster.classic_group.state is ClassicState.STABLE
    return members


# -- classic to consumer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cooperative", [False, True])
def test_classic_members_stay_when_one_of_the_new_protocol_joins(cooperative: bool) -> None:
    cluster = Cluster(FAST, orders=6)
    classic = classic_members(cluster, cooperative=cooperative)
    generation = cluster.classic_group.generation
    new = Consumer(cluster, "new")
    assert new.join().error_code == 0
    assert cluster.group.epoch == generation + 1
    assert sorted(cluster.group.members) == sorted(["new", *(member.member_id for member in classic)])
    run(cluster, [*classic, new])
    assert owned([*classic, new]) == all_partitions(cluster, "orders")
    members: list[Member] = [*classic, new]
    assert [len(member.owned) for member in members] == [2, 2, 2]
    assert cluster.group.state == "Stable"
    assert [member.member_type for member in cluster.describe().members] == [0, 0, 1]
    assert [listed.group_type for listed in cluster.listed()] == ["consumer"]
    assert all(not member.errors for member in classic)
    cluster.assert_replay_gives_the_same()


def test_a_rolling_upgrade_ends_with_members_of_the_new_protocol_alone() -> None:
    cluster = Cluster(FAST, orders=6)
    classic = classic_members(cluster, 3)
    new: list[Consumer] = []
    for number, member in enumerate(classic):
        member.leave()
        new.append(Consumer(cluster, f"new{number}"))
        new[-1].join()
        run(cluster, [*classic, *new])
        assert owned([*classic, *new]) == all_partitions(cluster, "orders")
    assert cluster.group.classic_members == 0
    cluster.assert_replay_gives_the_same()


def test_who_waits_for_a_classic_rebalance_is_told_to_join_again() -> None:
    cluster = Cluster(FAST, orders=4)
    classic = classic_members(cluster)
    third = ClassicConsumer(cluster, "c2")
    third.step()
    assert third.state == "joining"
    assert cluster.classic_group.state is ClassicState.PREPARING_REBALANCE
    new = Consumer(cluster, "new")
    new.join()
    third.step()
    assert third.errors == [ErrorCode.REBALANCE_IN_PROGRESS]
    run(cluster, [*classic, third, new])
    members: list[Member] = [*classic, third, new]
    assert [len(member.owned) for member in members] == [1, 1, 1, 1]


def test_cooperative_members_keep_what_they_have_when_their_rebalance_is_cut_short() -> None:
    cluster = Cluster(FAST, orders=4)
    leader, follower = classic_members(cluster, 2, cooperative=True)
    if cluster.classic_group.leader_id == follower.member_id:
        leader, follower = follower, leader
    third, fourth = (ClassicConsumer(cluster, name, cooperative=True) for name in ("c2", "c3"))
    third.step()
    for member in (leader, follower):
        member.step()
        member.step()
    assert cluster.classic_group.state is ClassicState.COMPLETING_REBALANCE
    fourth.step()
    assert [member.assignment for member in cluster.classic_group.members.values()] == [b""] * 4
    new = Consumer(cluster, "new")
    new.join()
    new.settle()
    members: list[Member] = [leader, follower, third, fourth, new]
    check_one_owner(members)
    assert owned([leader, follower]) == all_partitions(cluster, "orders")
    run(cluster, members)
    assert owned(members) == all_partitions(cluster, "orders")
    assert [len(member.owned) for member in members] == [1, 1, 1, 1, 0]


def test_a_member_that_has_not_heard_of_its_new_assignment_still_has_what_it_had() -> None:
    cluster = Cluster(FAST, orders=6)
    leader, follower = classic_members(cluster, 2, cooperative=True)
    if cluster.classic_group.leader_id == follower.member_id:
        leader, follower = follower, leader
    third = ClassicConsumer(cluster, "c2", cooperative=True)
    third.step()
    for member in (leader, follower):
        member.step()
        member.step()
    leader.step()
    assert cluster.classic_group.state is ClassicState.STABLE
    assert len(follower.owned) == 3, "it was assigned less, and has not looked yet"
    new = Consumer(cluster, "new")
    new.join()
    new.settle()
    members: list[Member] = [leader, follower, third, new]
    check_one_owner(members)
    third.step()
    check_one_owner(members)
    run(cluster, members)
    assert owned(members) == all_partitions(cluster, "orders")


def test_a_new_member_need_not_have_the_protocol_that_was_chosen_before_it_came() -> None:
    cluster = Cluster(FAST, orders=2)
    (member,) = classic_members(cluster, 1)
    assert cluster.classic_group.protocol_name == "range"
    other = ClassicConsumer(cluster, "c1", protocols=("roundrobin",))
    other.step()
    assert cluster.classic_group.state is ClassicState.PREPARING_REBALANCE
    new = Consumer(cluster, "new")
    assert new.join().error_code == 0
    run(cluster, [member, other, new])
    assert owned([member, other, new]) == all_partitions(cluster, "orders")


def test_offsets_outlive_a_conversion() -> None:
    from coordinators.consumer.test_administration import commit, fetch

    cluster = Cluster(FAST, orders=2)
    (member,) = classic_members(cluster, 1)
    assert commit(cluster, member.member_id, member.generation, version=8) == ErrorCode.NONE
    offsets = cluster.shard.offsets.durable_state()
    Consumer(cluster, "new").join()
    assert cluster.shard.offsets.durable_state() == offsets
    assert fetch(cluster, None, -1) == ErrorCode.NONE
    assert commit(cluster, member.member_id, member.generation, version=8) == ErrorCode.NONE
    assert commit(cluster, member.member_id, 77, version=8) == ErrorCode.ILLEGAL_GENERATION


def test_an_empty_classic_group_simply_becomes_a_consumer_group() -> None:
    cluster = Cluster(FAST, orders=2)
    (member,) = classic_members(cluster, 1)
    member.leave()
    assert cluster.classic_group.is_empty
    new = Consumer(cluster, "new")
    assert new.join().error_code == 0
    assert list(cluster.group.members) == ["new"]
    cluster.assert_replay_gives_the_same()


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_an_upgrade_that_is_not_allowed_is_refused(policy: str) -> None:
    cluster = Cluster(replace(FAST, group_consumer_migration_policy=policy), orders=2)
    classic = classic_members(cluster)
    response = Consumer(cluster, "new").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message is not None
    assert "online upgrade is disabled" in response.error_message
    check_unharmed(cluster, classic)


def test_a_group_that_is_too_large_for_the_new_protocol_is_not_upgraded() -> None:
    cluster = Cluster(replace(FAST, group_consumer_max_size=1), orders=2)
    classic = classic_members(cluster)
    assert Consumer(cluster, "new").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    check_unharmed(cluster, classic)


def test_groups_of_others_than_consumers_are_not_upgraded() -> None:
    cluster = Cluster(FAST, orders=2)
    classic = classic_members(cluster)
    cluster.classic_group.protocol_type = "connect"
    assert Consumer(cluster, "new").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(cluster.shard.groups[GROUP], ClassicGroup)
    assert len(cluster.classic_group.members) == len(classic)


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (b"\x00", "the embedded consumer protocol is malformed"),
        (b"\xff\xff", "the embedded consumer protocol is malformed"),
    ],
)
def test_a_group_whose_members_cannot_be_understood_is_not_upgraded(assignment: bytes, reason: str) -> None:
    cluster = Cluster(FAST, orders=2)
    classic = classic_members(cluster)
    cluster.classic_group.members[classic[1].member_id].assignment = assignment
    response = Consumer(cluster, "new").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message is not None
    assert reason in response.error_message
    check_unharmed(cluster, classic)


@pytest.mark.parametrize(
    ("protocol", "error"),
    [("our-own", ErrorCode.GROUP_ID_NOT_FOUND), ("sticky", ErrorCode.NONE), ("cooperative-sticky", ErrorCode.NONE)],
)
def test_a_group_with_an_assignor_of_its_own_that_tells_members_more_is_not_upgraded(
    protocol: str, error: ErrorCode
) -> None:
    cluster = Cluster(FAST, orders=2)
    classic = classic_members(cluster, protocols=(protocol,))
    for member in classic:
        told = embedded_assignment(list(member.owned), b"and more")
        cluster.classic_group.members[member.member_id].assignment = told
    response = Consumer(cluster, "new").join()
    assert response.error_code == error
    if error:
        assert response.error_message is not None
        assert "custom assignor" in response.error_message
        check_unharmed(cluster, classic)


def test_a_member_that_is_refused_does_not_convert_the_group() -> None:
    cluster = Cluster(FAST, orders=2)
    classic = classic_members(cluster)
    response = cluster.join("new", subscribed_topic_regex="(")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    check_unharmed(cluster, classic)


def check_unharmed(cluster: Cluster, classic: list[ClassicConsumer]) -> None:
    before = [dict(member.owned) for member in classic]
    assert isinstance(cluster.shard.groups[GROUP], ClassicGroup)
    assert cluster.shard.consumers.index.groups_by_topic == {}
    run(cluster, classic)
    assert [member.owned for member in classic] == before


# -- consumer to classic -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("how", ["leaves", "dies"])
def test_classic_members_take_over_when_the_last_of_the_new_protocol_is_gone(how: str, cooperative: bool) -> None:
    cluster = Cluster(FAST, orders=6)
    classic = classic_members(cluster, cooperative=cooperative)
    new = Consumer(cluster, "new")
    new.join()
    run(cluster, [*classic, new])
    epoch = cluster.group.epoch
    if how == "leaves":
        new.leave()
    else:
        new.die()
        run(cluster, classic, SESSION_TIMEOUT_MS // 1_000)
    assert isinstance(cluster.shard.groups[GROUP], ClassicGroup)
    run(cluster, classic)
    assert cluster.classic_group.state is ClassicState.STABLE
    assert cluster.classic_group.generation > epoch
    assert owned(classic) == all_partitions(cluster, "orders")
    assert [len(member.owned) for member in classic] == [3, 3]
    assert cluster.shard.consumers.index.groups_by_topic == {}
    assert {kind for kind, *_ in cluster.driver.timers} <= {"session", "expiry"}
    cluster.assert_replay_gives_the_same()


def test_a_downgrade_that_is_not_allowed_leaves_a_consumer_group_of_classic_members() -> None:
    cluster = Cluster(replace(FAST, group_consumer_migration_policy="upgrade"), orders=4)
    classic = classic_members(cluster)
    new = Consumer(cluster, "new")
    new.join()
    run(cluster, [*classic, new])
    new.leave()
    assert cluster.group.classic_members == 2
    run(cluster, classic)
    assert [len(member.owned) for member in classic] == [2, 2]
    cluster.driver.add_partitions("orders", 2)
    run(cluster, classic)
    assert owned(classic) == all_partitions(cluster, "orders")


def test_a_static_member_that_comes_back_with_the_classic_protocol_downgrades_without_a_rebalance() -> None:
    cluster = Cluster(FAST, orders=4)
    classic = classic_members(cluster, 1)
    static = Consumer(cluster, "new", instance_id="i")
    static.join()
    run(cluster, [*classic, static])
    before = dict(static.owned)
    static.leave(epoch=-2)
    again = ClassicConsumer(cluster, "again", instance_id="i")
    again.step()
    assert isinstance(cluster.shard.groups[GROUP], ClassicGroup)
    assert cluster.classic_group.state is ClassicState.STABLE
    assert again.owned == before
    run(cluster, [*classic, again])
    assert owned([*classic, again]) == all_partitions(cluster, "orders")
    assert not classic[0].errors
    cluster.assert_replay_gives_the_same()


def test_a_static_member_that_comes_back_with_another_subscription_makes_everyone_join_again() -> None:
    cluster = Cluster(FAST, orders=4, refunds=2)
    classic = classic_members(cluster, 1)
    static = Consumer(cluster, "new", instance_id="i")
    static.join()
    run(cluster, [*classic, static])
    static.leave(epoch=-2)
    again = ClassicConsumer(cluster, "again", ("orders", "refunds"), instance_id="i")
    run(cluster, [*classic, again])
    assert isinstance(cluster.shard.groups[GROUP], ClassicGroup)
    assert owned([*classic, again]) == all_partitions(cluster, "orders", "refunds")


def test_a_classic_static_member_comes_back_with_the_new_protocol() -> None:
    cluster = Cluster(FAST, orders=4)
    classic = classic_members(cluster, 1)
    static = ClassicConsumer(cluster, "s", instance_id="i")
    run(cluster, [*classic, static])
    static.die()
    again = Consumer(cluster, "again", instance_id="i")
    assert again.join().error_code == 0
    run(cluster, [*classic, again])
    assert owned([*classic, again]) == all_partitions(cluster, "orders")
    assert len(cluster.group.members) == 2
    cluster.assert_replay_gives_the_same()


def test_a_group_that_becomes_classic_and_a_consumer_group_again_knows_who_has_what() -> None:
    cluster = Cluster(FAST, orders=6)
    classic = classic_members(cluster, 1, cooperative=True)
    old = Consumer(cluster, "old")
    old.join()
    run(cluster, [*classic, old])
    late = ClassicConsumer(cluster, "late", cooperative=True)
    late.step()
    assert late.owned == {}, "what it is to have others still have"
    old.leave()
    assert isinstance(cluster.shard.groups[GROUP], ClassicGroup)
    new = Consumer(cluster, "new")
    new.join()
    new.settle()
    members: list[Member] = [*classic, late, new]
    late.step()
    late.step()
    check_one_owner(members)
    run(cluster, members)
    assert owned(members) == all_partitions(cluster, "orders")


# -- back and forth ----------------------------------------------------------------------------------------------------


class MixedStorm:
    """Members of both protocols come and go, and the coordinator moves."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.cluster = Cluster(FAST, orders=rng.randint(1, 8))
        self.members: list[Member] = []
        self.cooperative = rng.random() < 0.5
        self.names = 0

    def step(self) -> None:
        rng = self.rng
        alive = [member for member in self.members if member.alive]
        what = rng.random()
        if not alive or (what < 0.08 and len(alive) < 5):
            self._join()
        elif what < 0.12:
            rng.choice(alive).leave()
        elif what < 0.14:
            rng.choice(alive).die()
        elif what < 0.16:
            self.cluster.restart()
            for member in self.members:
                if isinstance(member, ClassicConsumer):
                    member.recover()
        elif what < 0.25:
            run(self.cluster, self.members, 1)
        else:
            member = rng.choice(alive)
            if isinstance(member, ClassicConsumer):
                member.step()
            elif rng.random() < 0.5:
                member.beat()
            else:
                member.settle()
        check_one_owner(self.members)

    def _join(self) -> None:
        self.names += 1
        if self.rng.random() < 0.5:
            consumer = Consumer(self.cluster, f"m{self.names}")
            self.members.append(consumer)
            consumer.join()
        else:
            self.members.append(ClassicConsumer(self.cluster, f"c{self.names}", cooperative=self.cooperative))

    def calm(self) -> None:
        # The dead expire after 45 seconds, and a conversion on the way gives those that are left as long once more.
        run(self.cluster, self.members, 150)
        alive = [member for member in self.members if member.alive]
        if alive:
            assert owned(alive) == all_partitions(self.cluster, "orders")
        group = self.cluster.shard.groups.get(GROUP)
        consumers = [member for member in alive if isinstance(member, Consumer)]
        if alive:
            assert isinstance(group, ConsumerGroup if consumers else ClassicGroup)
        self.cluster.assert_replay_gives_the_same()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_a_storm_of_both_protocols_settles_and_never_gives_a_partition_to_two(seed: int) -> None:
    storm = MixedStorm(Random(seed))
    for _ in range(150):
        storm.step()
    storm.calm()
