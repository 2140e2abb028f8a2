"""Moving partitions to other replicas (KIP-455): the rules of one partition, and the requests that use them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from metadata.cluster import Cluster, contents, registration
from penstock.metadata import (
    EMPTY_IMAGE,
    NO_LEADER,
    IsrProposal,
    MetadataDelta,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    PartitionState,
    TopicToDelete,
    image_from_snapshot,
    snapshot_values,
)
from penstock.metadata.elections import Rules, elect
from penstock.metadata.reassignments import begun, completed, is_reassigning, originals_of, reverted, target_of
from penstock.raft import OffsetAndEpoch
from penstock.wire.errors import ErrorCode

BROKERS = (1, 2, 3, 4, 5, 6)


def directory(broker_id: int) -> bytes:
    return b"directory-%06d" % broker_id


def partition(replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] | None = None) -> PartitionState:
    isr = replicas if isr is None else isr
    return PartitionState(replicas, isr, isr[0] if isr else NO_LEADER, 5, 9, tuple(map(directory, replicas)))


def seen(state: PartitionState) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return state.replicas, state.adding, state.removing


# -- one partition ---------------------------------------------------------------------------------------------------


def test_while_it_moves_a_partition_has_the_replicas_of_both_places() -> None:
    state = begun(partition(), (4, 2, 5), directory)
    assert seen(state) == ((4, 2, 5, 1, 3), (4, 5), (1, 3))
    assert state.directories == tuple(map(directory, (4, 2, 5, 1, 3)))
    assert (target_of(state), originals_of(state)) == ((4, 2, 5), (2, 1, 3))


def test_another_order_is_no_move() -> None:
    state = begun(partition(), (3, 1, 2), directory)
    assert seen(state) == ((3, 1, 2), (), ())
    assert not is_reassigning(state)
    assert state.directories == tuple(map(directory, (3, 1, 2)))


def test_it_is_complete_when_all_that_were_added_are_in_sync() -> None:
    state = begun(partition(), (4, 2, 5), directory)
    assert completed(state, (1, 2, 3, 4)) == (state, (1, 2, 3, 4))
    after, isr = completed(state, (1, 3, 4, 5))
    # 2 lags, and that is no reason to wait: as many replicas have everything as before, but for the one that lags.
    assert (seen(after), isr) == (((4, 2, 5), (), ()), (4, 5))
    assert after.directories == tuple(map(directory, (4, 2, 5)))


def test_with_fewer_replicas_it_is_complete_when_all_of_the_target_are_in_sync() -> None:
    state = begun(partition(), (1, 2), directory)
    assert completed(state, (1, 3)) == (state, (1, 3))
    after, isr = completed(state, (1, 2, 3))
    assert (seen(after), isr) == (((1, 2), (), ()), (1, 2))


def test_with_more_replicas_it_is_complete_when_the_new_ones_are_in_sync() -> None:
    state = begun(partition((1,)), (1, 2, 3), directory)
    assert completed(state, (1, 2))[0] is state
    assert seen(completed(state, (1, 2, 3))[0]) == ((1, 2, 3), (), ())


def test_it_is_not_complete_while_too_few_of_the_target_would_be_in_sync() -> None:
    """1 and 2 lag: what 3 and 4 have acknowledged together would be on 4 alone."""
    state = begun(partition(), (4, 1, 2), directory)
    assert completed(state, (3, 4), min_isr=2) == (state, (3, 4))
    assert completed(state, (1, 3, 4), min_isr=2)[1] == (1, 4)
    # A topic with fewer replicas than that needs all of them.
    alone = begun(partition(), (4,), directory)
    assert completed(alone, (1, 4), min_isr=2)[1] == (4,)


def test_cancelling_takes_away_what_was_added() -> None:
    state = begun(partition(), (4, 2, 5), directory)
    back, unclean = reverted(state)
    assert (sorted(back.replicas), back.adding, back.removing, back.isr) == ([1, 2, 3], (), (), (1, 2, 3))
    assert not unclean


def test_cancelling_with_only_new_replicas_in_sync_is_unclean() -> None:
    state = begun(partition(isr=(1,)), (4, 5, 6), directory)
    back, unclean = reverted(replace(state, isr=(4,), leader=4))
    assert (back.isr, unclean) == ((1,), True)


def test_a_second_target_replaces_the_first() -> None:
    state = begun(begun(partition(), (4, 2, 5), directory), (4, 6, 2), directory)
    # 4 is still on its way in, 5 is not wanted any longer, and cancelling leads back to where it all began.
    assert seen(state) == ((4, 6, 2, 1, 3, 5), (4, 6), (1, 3, 5))
    again = begun(begun(partition(), (4, 2, 3), directory), (1, 2, 3), directory)
    assert seen(again) == ((1, 2, 3, 4), (), (4,))
    assert seen(completed(again, (1, 2, 3))[0]) == ((1, 2, 3), (), ())


ids = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple)


@given(
    replicas=ids,
    targets=st.lists(ids, min_size=1, max_size=3),
    isrs=st.lists(st.sets(st.sampled_from(BROKERS)), min_size=3, max_size=3),
    alive=st.sets(st.sampled_from(BROKERS)),
    cancel=st.booleans(),
)
def test_no_sequence_of_targets_loses_what_is_in_sync(
    replicas: tuple[int, ...], targets: list[tuple[int, ...]], isrs: list[set[int]], alive: set[int], cancel: bool
) -> None:
    """Whatever is asked for, in whatever order: leader in ISR, ISR in replicas, lists that fit, and a way back."""
    rules = Rules(lambda replica: replica in alive, 1, False)
    state = partition(replicas)
    for target, wanted in zip(targets, isrs, strict=False):
        towards = begun(state, target, directory)
        assert set(state.replicas) <= set(towards.replicas), "nothing is taken away before what replaces it is there"
        state = elect(towards, towards.isr, rules)
        check(state)
        isr = [replica for replica in state.replicas if replica in wanted] or list(state.isr)
        before = state
        state = elect(state, isr, rules)
        check(state)
        if len(state.replicas) < len(before.replicas):
            assert state.leader_epoch > before.leader_epoch, "who left must notice"
            assert state.replicas == target
    if cancel and is_reassigning(state):
        back, _ = reverted(state)
        check(elect(back, back.isr, rules, shrunk=True))


def check(state: PartitionState) -> None:
    assert state.isr
    assert set(state.isr) <= set(state.replicas)
    assert set(state.adding) <= set(state.replicas)
    assert set(state.removing) <= set(state.replicas)
    assert not set(state.adding) & set(state.removing)
    assert target_of(state)
    assert originals_of(state)
    assert state.leader == NO_LEADER or state.leader in state.isr
    assert state.directories == tuple(map(directory, state.replicas))


# -- the controller --------------------------------------------------------------------------------------------------


class Moving(Cluster):
    """Brokers 1 to 6, and a topic `t` on 1, 2 and 3."""

    def __init__(self, replicas: tuple[int, ...] = (1, 2, 3), **settings: Any) -> None:
        super().__init__(0, **settings)
        self.epochs = {broker_id: self.register(registration(broker_id)) for broker_id in BROKERS}
        decision = self.controller.decide_create_topics([NewTopic("t", assignments=((0, replicas),))])
        self.log += decision.records

    def move(
        self, replicas: tuple[int, ...] | None, *, topic: str = "t", number: int = 0, allow: bool = True
    ) -> tuple[ErrorCode, str | None]:
        decision = self.controller.decide_alter_reassignments(
            [PartitionReassignment(topic, number, replicas)], allow_replication_factor_change=allow
        )
        self.log += decision.records
        return decision.reply[0].outcome.error, decision.reply[0].outcome.message

    @property
    def partition(self) -> PartitionState:
        return self.topic("t").partitions[0]

    def in_sync(self, *isr: int) -> ErrorCode:
        """The leader proposes this ISR."""
        state = self.partition
        proposal = IsrProposal(self.topic("t").topic_id, 0, state.leader_epoch, state.partition_epoch, isr)
        decision = self.controller.decide_alter_isrs(state.leader, self.epochs[state.leader], [proposal])
        self.log += decision.records
        return decision.reply[0].error

    def ongoing(self, wanted: list[tuple[str, list[int]]] | None = None) -> list[tuple[str, int]]:
        decision = self.controller.decide_list_reassignments(wanted)
        assert decision.records == []
        return [(one.topic, one.partition) for one in decision.reply]


def test_a_partition_moves_when_its_new_replicas_are_in_sync() -> None:
    cluster = Moving()
    assert cluster.move((1, 2, 4)) == (ErrorCode.NONE, None)
    assert cluster.ongoing() == [("t", 0)]
    state = cluster.partition
    assert (seen(state), state.leader_epoch, state.partition_epoch) == (((1, 2, 4, 3), (4,), (3,)), 0, 1)
    assert state.directories == tuple(cluster.image.brokers[replica].directories[0] for replica in (1, 2, 4, 3))
    assert cluster.in_sync(1, 2, 3, 4) == ErrorCode.NONE
    state = cluster.partition
    assert (seen(state), state.isr, state.leader) == (((1, 2, 4), (), ()), (1, 2, 4), 1)
    assert state.leader_epoch == 1, "3 must hear that it is no replica any longer"
    assert cluster.ongoing() == []


def test_the_record_is_kafkas() -> None:
    cluster = Moving()
    topic_id = cluster.topic("t").topic_id
    record: Any
    (record,) = cluster.controller.decide_alter_reassignments([PartitionReassignment("t", 0, (1, 2, 4))]).records
    assert (record.replicas, record.adding_replicas, record.removing_replicas) == ([1, 2, 4, 3], [4], [3])
    assert (record.isr, record.leader, len(record.directories or [])) == (None, -2, 4)
    done = IsrProposal(topic_id, 0, 0, 1, (1, 2, 3, 4))
    (record,) = cluster.controller.decide_alter_isrs(1, cluster.epochs[1], [done]).records
    assert (record.replicas, record.adding_replicas, record.removing_replicas) == ([1, 2, 4], [], [])
    assert (record.isr, record.leader, len(record.directories or [])) == ([1, 2, 4], 1, 3)


def test_a_leader_that_leaves_is_followed_by_one_of_the_target() -> None:
    cluster = Moving()
    cluster.move((4, 5, 6))
    assert cluster.in_sync(1, 2, 3, 4) == ErrorCode.NONE
    assert cluster.partition.leader == 1
    assert cluster.in_sync(1, 2, 3, 4, 5, 6) == ErrorCode.NEW_LEADER_ELECTED
    state = cluster.partition
    assert (seen(state), state.isr, state.leader, state.leader_epoch) == (((4, 5, 6), (), ()), (4, 5, 6), 4, 1)


def test_a_smaller_target_that_is_in_sync_is_reached_at_once() -> None:
    cluster = Moving()
    assert cluster.move((1, 3)) == (ErrorCode.NONE, None)
    assert (seen(cluster.partition), cluster.partition.isr) == (((1, 3), (), ()), (1, 3))
    assert cluster.ongoing() == []


def test_what_changes_nothing_writes_nothing() -> None:
    cluster = Moving()
    decision = cluster.controller.decide_alter_reassignments([PartitionReassignment("t", 0, (1, 2, 3))])
    assert (decision.records, decision.reply[0].outcome.failed) == ([], False)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"replicas": ()}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
        ({"replicas": (1, 2, 7)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7, but no such broker is registered"),
        ({"replicas": (1, -2)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker -2, but no such broker is registered"),
        ({"replicas": (1, 2, 2)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 2 more than once"),
        ({"replicas": (1, 2), "allow": False}, ErrorCode.INVALID_REPLICATION_FACTOR, "changed from 3 to 2"),
        ({"replicas": None}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
        ({"replicas": (1,), "topic": "u"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named u."),
        ({"replicas": (1,), "number": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:1."),
        ({"replicas": None, "number": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:-1."),
    ],
)
def test_a_target_that_does_not_fit_is_refused_and_changes_nothing(
    change: dict[str, object], error: ErrorCode, message: str
) -> None:
    cluster = Moving()
    before = contents(cluster.image)
    code, text = cluster.move(**change)  # type: ignore[arg-type]
    assert code == error
    assert message in (text or "")
    assert contents(cluster.image) == before


def test_a_partition_named_twice_is_refused_and_others_are_not() -> None:
    cluster = Moving()
    cluster.create("u", 1, 2)
    wanted = [PartitionReassignment("t", 0, (1, 2, 4)), PartitionReassignment("t", 0, None)]
    wanted.append(PartitionReassignment("u", 0, (5, 6)))
    decision = cluster.controller.decide_alter_reassignments(wanted)
    errors = [result.outcome.error for result in decision.reply]
    assert errors == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert cluster.ongoing() == [("u", 0)]


def test_while_it_moves_the_replication_factor_is_that_of_the_target() -> None:
    cluster = Moving()
    cluster.move((1, 4))
    assert cluster.move((4, 5), allow=False) == (ErrorCode.NONE, None)
    code, text = cluster.move((4, 5, 6), allow=False)
    assert (code, text) == (ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 2 to 3")
    # And so it is for partitions that are added meanwhile.
    decision = cluster.controller.decide_create_partitions([NewPartitions("t", 2)])
    assert not decision.reply[0].outcome.failed
    assert len(cluster.topic("t").partitions[1].replicas) == 2


def test_cancelling_leads_back() -> None:
    cluster = Moving()
    cluster.move((4, 5, 6))
    cluster.in_sync(1, 2, 3, 4)
    assert cluster.move(None) == (ErrorCode.NONE, None)
    state = cluster.partition
    assert (sorted(state.replicas), state.isr, state.leader) == ([1, 2, 3], (1, 2, 3), 1)
    assert (state.adding, state.removing, state.leader_epoch) == ((), (), 1)
    assert cluster.move(None)[0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancelling_gives_a_new_replica_that_leads_its_successor() -> None:
    cluster = Moving()
    cluster.move((4, 5, 2))
    cluster.in_sync(1, 2, 3, 4)
    cluster.controller.decide_fence_broker(1, cluster.epochs[1])
    assert cluster.partition.leader == 4
    assert cluster.move(None) == (ErrorCode.NONE, None)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2, 3))


def test_a_cancellation_that_would_lose_records_is_refused_unless_that_is_allowed() -> None:
    cluster = Moving()
    cluster.move((4, 5, 6))
    cluster.in_sync(1, 2, 3, 4)
    for broker_id in (1, 2, 3):
        cluster.controller.decide_fence_broker(broker_id, cluster.epochs[broker_id])
    assert (cluster.partition.isr, cluster.partition.leader) == ((4,), 4)
    code, text = cluster.move(None)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "unclean leader election" in (text or "")
    assert is_reassigning(cluster.partition)

    risky = Moving(unclean_leader_election_enable="true")
    risky.move((4, 5, 6))
    risky.in_sync(1, 2, 3, 4)
    for broker_id in (1, 2):
        risky.controller.decide_fence_broker(broker_id, risky.epochs[broker_id])
    assert (risky.partition.leader, risky.in_sync(4)) == (4, ErrorCode.NONE)
    risky.controller.decide_fence_broker(3, risky.epochs[3])
    assert risky.partition.isr == (4,)
    risky.controller.decide_unfence_broker(2, risky.epochs[2])
    assert risky.move(None) == (ErrorCode.NONE, None)
    assert (risky.partition.leader, risky.partition.isr) == (2, (2,))


def test_a_new_replica_that_dies_holds_the_move_up_until_it_is_back() -> None:
    cluster = Moving()
    cluster.move((1, 2, 4))
    cluster.controller.decide_fence_broker(4, cluster.epochs[4])
    assert seen(cluster.partition) == ((1, 2, 4, 3), (4,), (3,))
    cluster.controller.decide_unfence_broker(4, cluster.epochs[4])
    assert cluster.in_sync(1, 2, 3, 4) == ErrorCode.NONE
    assert seen(cluster.partition) == ((1, 2, 4), (), ())


def test_a_replica_that_was_to_leave_and_dies_holds_nothing_up() -> None:
    cluster = Moving()
    cluster.move((4, 5, 6))
    cluster.controller.decide_fence_broker(1, cluster.epochs[1])
    assert cluster.partition.leader == 2
    assert cluster.in_sync(2, 3, 4, 5, 6) == ErrorCode.NEW_LEADER_ELECTED
    assert seen(cluster.partition) == ((4, 5, 6), (), ())


def test_a_topic_that_is_deleted_while_it_moves_is_gone() -> None:
    cluster = Moving()
    cluster.move((4, 5, 6))
    assert cluster.image.reassigning
    cluster.controller.decide_delete_topics([TopicToDelete("t")])
    assert (cluster.ongoing(), dict(cluster.image.reassigning)) == ([], {})


def test_the_list_tells_what_was_asked_for() -> None:
    cluster = Moving()
    cluster.create("u", 3, 1)
    cluster.move((4, 5, 6))
    there = cluster.topic("u").partitions[1].replicas
    cluster.move(tuple(broker for broker in BROKERS if broker not in there)[:1], topic="u", number=1)
    assert sorted(cluster.ongoing()) == [("t", 0), ("u", 1)]
    assert cluster.ongoing([("u", [0, 1, 1, 2, 9])]) == [("u", 1)]
    assert cluster.ongoing([("nosuch", [0]), ("t", [1])]) == []
    assert cluster.ongoing([]) == []


def test_log_and_snapshot_know_what_moves() -> None:
    cluster = Moving()
    cluster.move((4, 2, 5))
    replayed = MetadataDelta(EMPTY_IMAGE).replay_all(cluster.log).apply(len(cluster.log) - 1, 1)
    assert contents(replayed) == contents(cluster.image)
    assert dict(replayed.reassigning) == dict(cluster.image.reassigning) == {cluster.topic("t").topic_id: 1}
    loaded = image_from_snapshot(OffsetAndEpoch(9, 1), snapshot_values(cluster.image))
    assert contents(loaded) == contents(cluster.image)
    assert dict(loaded.reassigning) == dict(cluster.image.reassigning)
