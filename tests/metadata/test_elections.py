"""Who is in sync, who may lead, who leads: the rules of one partition, and the requests that touch them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.cluster import Cluster, registration
from penstock.config import Alteration, AlterOperation
from penstock.metadata import (
    NO_LEADER,
    ConfigAlteration,
    Election,
    FeatureUpdate,
    IsrProposal,
    NewTopic,
    PartitionElection,
    PartitionState,
    ResourceType,
)
from penstock.metadata.elections import Rules, change_record, elect, without
from penstock.metadata.image import LeaderRecoveryState
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import MetadataRecord

REPLICAS = (1, 2, 3)


def partition(
    isr: tuple[int, ...] = REPLICAS,
    leader: int = 1,
    *,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
) -> PartitionState:
    return PartitionState(REPLICAS, isr, leader, 5, 9, elr=elr, last_known_elr=last_known)


def rules(alive: Iterable[int] = REPLICAS, *, min_isr: int = 2, elr: bool = True, unclean: bool = False) -> Rules:
    living = list(alive)
    return Rules(lambda replica: replica in living, min_isr, elr, unclean)


def seen(state: PartitionState) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    return state.isr, state.elr, state.leader, state.leader_epoch


def test_a_follower_that_leaves_changes_the_isr_alone() -> None:
    assert seen(without(partition(), 3, rules((1, 2)), lost=False)) == ((1, 2), (), 1, 5)


def test_a_leader_that_leaves_is_followed_by_the_next_in_sync() -> None:
    assert seen(without(partition(), 1, rules((2, 3)), lost=False)) == ((2, 3), (), 2, 6)


def test_who_leaves_an_isr_that_is_too_small_is_still_eligible() -> None:
    below = without(partition((1, 2)), 2, rules((1,)), lost=False)
    assert seen(below) == ((1,), (2,), 1, 5)
    # The leader dies too. It stays in the ISR as its last member, and the other one may lead as soon as it is back.
    alone = without(below, 1, rules(()), lost=False)
    assert seen(alone) == ((1,), (2,), NO_LEADER, 6)
    back = elect(alone, alone.isr, rules((2,)))
    assert seen(back) == ((2,), (1,), 2, 7)
    # Two in sync again: nobody needs to be remembered.
    assert seen(elect(back, (1, 2), rules((1, 2)))) == ((1, 2), (), 2, 7)


def test_with_others_eligible_a_last_member_that_lost_records_leaves() -> None:
    lost = without(partition((1,), elr=(2,)), 1, rules(()), lost=True)
    assert seen(lost) == ((), (2,), NO_LEADER, 6)
    assert lost.last_known_elr == (1,)
    assert seen(elect(lost, lost.isr, rules((1,)))) == ((), (2,), NO_LEADER, 6)
    assert seen(elect(lost, lost.isr, rules((1, 2)))) == ((2,), (), 2, 7)


def test_the_very_last_replica_stays_and_leads_again_in_a_new_epoch() -> None:
    only = PartitionState((1,), (1,), 1, 5, 9)
    assert seen(without(only, 1, rules((1,)), lost=True)) == ((1,), (), 1, 6)
    assert seen(without(partition((1,)), 1, rules((1, 2, 3), min_isr=1), lost=True)) == ((1,), (), 1, 6)


def test_the_last_eligible_replica_stays_too_when_all_have_restarted_without_proof() -> None:
    """Or the partition would have no leader for ever, though every replica is back."""
    first = without(partition((1,), elr=(2,)), 1, rules(()), lost=True)
    assert seen(first) == ((), (2,), NO_LEADER, 6)
    second = without(first, 2, rules((1,)), lost=True)
    assert seen(second) == ((), (2,), NO_LEADER, 6)
    assert seen(elect(second, second.isr, rules((1, 2)))) == ((2,), (), 2, 7)


def test_the_place_of_the_last_replica_goes_to_one_with_a_disk_if_its_own_is_empty() -> None:
    """Replica 1 restarted without proof, then 3, the last one, comes back with an empty disk."""
    state = without(partition((3, 1), 3), 1, rules((1, 3)), lost=True)
    assert (seen(state), state.last_known_elr) == (((3,), (), 3, 5), (1,))
    after = without(state, 3, rules((1, 3)), lost=True, emptied=True)
    assert (seen(after), after.last_known_elr) == (((1,), (), 1, 6), ())
    # It waits for the one with a disk, should that be away.
    after = without(state, 3, rules((3,)), lost=True, emptied=True)
    assert seen(after) == ((1,), (), NO_LEADER, 6)
    assert seen(elect(after, after.isr, rules((1, 3)))) == ((1,), (), 1, 7)


def test_an_empty_replica_keeps_its_place_only_where_nobody_could_have_more() -> None:
    only = PartitionState((1,), (1,), 1, 5, 9)
    assert seen(without(only, 1, rules((1,)), lost=True, emptied=True)) == ((1,), (), 1, 6)
    known = without(partition((1,), elr=(2,)), 2, rules((1,)), lost=True, emptied=True)
    assert known.last_known_elr == (), "what had nothing is not asked later"


def test_a_replica_that_lost_records_is_no_longer_eligible() -> None:
    state = without(partition((1,), elr=(2, 3)), 2, rules(), lost=True)
    assert seen(state) == ((1,), (3,), 1, 5)
    assert state.last_known_elr == (2,)


def test_without_the_feature_nobody_is_eligible_but_the_isr() -> None:
    state = without(partition((1, 2)), 2, rules((1,), elr=False), lost=False)
    assert seen(state) == ((1,), (), 1, 5)


def test_an_unclean_election_happens_only_where_it_is_allowed() -> None:
    state = partition((1,), NO_LEADER)
    assert elect(state, (1,), rules((2, 3))).leader == NO_LEADER
    forced = elect(state, (1,), rules((2, 3)), election=Election.UNCLEAN)
    assert (forced.isr, forced.leader, forced.elr) == ((2,), 2, ())
    assert forced.leader_recovery_state == LeaderRecoveryState.RECOVERING
    assert elect(state, (1,), rules((3,), unclean=True)).leader == 3


def test_an_unclean_election_prefers_who_was_eligible_last() -> None:
    state = partition((), NO_LEADER, last_known=(3,))
    assert elect(state, (), rules((2, 3)), election=Election.UNCLEAN).leader == 3


def test_a_record_says_what_differs_and_nothing_else() -> None:
    before = partition()
    assert change_record(b"t" * 16, 0, before, before) is None
    record = change_record(b"t" * 16, 0, before, without(before, 3, rules((1, 2)), lost=False))
    assert record is not None
    assert (record.isr, record.leader, record.eligible_leader_replicas) == ([1, 2], -2, None)


@given(
    isr=st.sets(st.sampled_from(REPLICAS)),
    elr=st.sets(st.sampled_from(REPLICAS)),
    leader=st.sampled_from((*REPLICAS, NO_LEADER)),
    alive=st.sets(st.sampled_from(REPLICAS)),
    broker=st.sampled_from(REPLICAS),
    lost=st.booleans(),
    emptied=st.booleans(),
    min_isr=st.sampled_from((1, 2, 3)),
)
def test_only_who_has_everything_ever_leads(
    isr: set[int], elr: set[int], leader: int, alive: set[int], broker: int, lost: bool, emptied: bool, min_isr: int
) -> None:
    """Whoever leads a partition, short of an unclean election, was in its ISR or its ELR, and did not lose records."""
    members = tuple(sorted(isr))
    eligible = tuple(sorted(elr - isr)) if len(isr) < min_isr else ()
    state = partition(members, leader if leader in isr else NO_LEADER, elr=eligible)
    present = rules(alive - ({broker} if not lost else set()), min_isr=min_isr)
    after = without(state, broker, present, lost=lost, emptied=lost and emptied)
    assert set(after.isr) | set(after.elr) <= set(members) | set(eligible)
    assert not set(after.isr) & set(after.elr)
    if after.leader != NO_LEADER:
        assert after.leader in after.isr
        assert after.leader in members + eligible
        assert after.leader in alive
    if lost and (set(members) | set(eligible)) - {broker}:
        assert broker not in after.isr + after.elr
    if members or eligible:
        assert after.isr or after.elr, "somebody is always known to have everything, or at least most"


# -- AlterPartition --------------------------------------------------------------------------------------------------


def three() -> tuple[Cluster, dict[int, int], bytes]:
    cluster = Cluster(0, min_insync_replicas="2")
    epochs = {broker_id: cluster.register(registration(broker_id)) for broker_id in REPLICAS}
    cluster.controller.decide_create_topics([NewTopic("t", assignments=((0, REPLICAS),))])
    return cluster, epochs, cluster.topic("t").topic_id


def proposal(topic_id: bytes, isr: tuple[int, ...], *, partition_epoch: int = 0, **changes: object) -> IsrProposal:
    fields = {"leader_epoch": 0, "partition_epoch": partition_epoch, **changes}
    return IsrProposal(topic_id, 0, isr=isr, **fields)  # type: ignore[arg-type]


def test_a_leader_shrinks_and_expands_its_isr() -> None:
    cluster, epochs, topic_id = three()
    (result,) = cluster.controller.decide_alter_isrs(1, epochs[1], [proposal(topic_id, (1, 2))]).reply
    assert result.state is not None
    assert (result.error, result.state.isr, result.state.partition_epoch) == (ErrorCode.NONE, (1, 2), 1)
    assert cluster.topic("t").partitions[0] == result.state
    grown = proposal(topic_id, (1, 3, 2), partition_epoch=1, broker_epochs=(epochs[1], epochs[3], epochs[2]))
    (result,) = cluster.controller.decide_alter_isrs(1, epochs[1], [grown]).reply
    assert result.state is not None
    assert (result.state.isr, result.state.leader, result.state.leader_epoch) == ((1, 2, 3), 1, 0)
    # The same again changes nothing, and is no error.
    same = proposal(topic_id, (1, 2, 3), partition_epoch=2)
    decision = cluster.controller.decide_alter_isrs(1, epochs[1], [same])
    assert decision.records == []
    assert decision.reply[0].error == ErrorCode.NONE


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": (2, 4)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 1)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 4)}, ErrorCode.INVALID_REQUEST),
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"topic_id": b"x" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"broker_epochs": (1, 99, 99)}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_that_does_not_fit_is_refused_and_changes_nothing(
    change: dict[str, object], error: ErrorCode
) -> None:
    cluster, epochs, topic_id = three()
    before = cluster.topic("t").partitions[0]
    fields: dict[str, object] = {
        "topic_id": topic_id, "partition": 0, "leader_epoch": 0, "partition_epoch": 0, "isr": (1, 2, 3),
    } | change  # fmt: skip
    wanted = IsrProposal(**fields)  # type: ignore[arg-type]
    decision = cluster.controller.decide_alter_isrs(1, epochs[1], [wanted])
    assert (decision.records, decision.reply[0].error) == ([], error)
    assert cluster.topic("t").partitions[0] == before


def test_a_leader_whose_log_is_damaged_leaves_the_isr_and_another_leads() -> None:
    cluster, epochs, topic_id = three()
    (result,) = cluster.controller.decide_alter_isrs(1, epochs[1], [proposal(topic_id, (2, 3))]).reply
    assert result.error == ErrorCode.NEW_LEADER_ELECTED
    after = cluster.topic("t").partitions[0]
    assert (after.leader, after.leader_epoch, after.isr, after.elr) == (2, 1, (2, 3), ())


def test_a_damaged_leader_is_not_eligible_below_the_minimum_either() -> None:
    cluster, epochs, topic_id = three()
    cluster.controller.decide_alter_isrs(1, epochs[1], [proposal(topic_id, (1, 2))])
    (result,) = cluster.controller.decide_alter_isrs(1, epochs[1], [proposal(topic_id, (2,), partition_epoch=1)]).reply
    assert result.error == ErrorCode.NEW_LEADER_ELECTED
    after = cluster.topic("t").partitions[0]
    assert (after.leader, after.isr) == (2, (2,))
    assert 1 not in after.elr


def test_only_one_that_is_in_sync_already_takes_over_from_a_damaged_leader() -> None:
    cluster, epochs, topic_id = three()
    cluster.controller.decide_alter_isrs(1, epochs[1], [proposal(topic_id, (1, 2))])
    unsafe = proposal(topic_id, (2, 3), partition_epoch=1)
    (result,) = cluster.controller.decide_alter_isrs(1, epochs[1], [unsafe]).reply
    assert result.error == ErrorCode.INVALID_REQUEST
    assert cluster.topic("t").partitions[0].leader == 1


def test_a_fenced_broker_does_not_enter_an_isr() -> None:
    cluster, epochs, topic_id = three()
    cluster.controller.decide_fence_broker(3, epochs[3])
    back = proposal(topic_id, (1, 2, 3), partition_epoch=1)
    assert cluster.controller.decide_alter_isrs(1, epochs[1], [back]).reply[0].error == ErrorCode.INELIGIBLE_REPLICA


def test_an_older_incarnation_of_the_leader_proposes_nothing() -> None:
    cluster, epochs, topic_id = three()
    with pytest.raises(KafkaError) as refused:
        cluster.controller.decide_alter_isrs(1, epochs[1] - 1, [proposal(topic_id, (1, 2))])
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


# -- ElectLeaders ----------------------------------------------------------------------------------------------------


def test_the_preferred_leader_gets_its_place_back_when_it_is_in_sync_again() -> None:
    cluster, epochs, topic_id = three()
    cluster.controller.decide_fence_broker(1, epochs[1])
    wanted = [PartitionElection("t", 0)]
    (result,) = cluster.controller.decide_elect_leaders(Election.PREFERRED, wanted).reply
    assert result.outcome.error == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.controller.decide_unfence_broker(1, epochs[1])
    state = cluster.topic("t").partitions[0]
    back = proposal(topic_id, (1, 2, 3), partition_epoch=state.partition_epoch, leader_epoch=state.leader_epoch)
    cluster.controller.decide_alter_isrs(2, epochs[2], [back])
    assert cluster.controller.decide_balance().reply == 1
    assert cluster.topic("t").partitions[0].leader == 1
    (again,) = cluster.controller.decide_elect_leaders(Election.PREFERRED, wanted).reply
    assert again.outcome.error == ErrorCode.ELECTION_NOT_NEEDED
    assert cluster.controller.decide_elect_leaders(Election.PREFERRED, None).reply == []


def test_an_unclean_election_is_possible_on_request() -> None:
    cluster, epochs, _ = three()
    for broker_id in (1, 2, 3):
        cluster.controller.decide_fence_broker(broker_id, epochs[broker_id])
    cluster.controller.decide_register_broker(registration(1, incarnation=2), 99, fenced=False)
    assert cluster.topic("t").partitions[0].leader == NO_LEADER
    (result,) = cluster.controller.decide_elect_leaders(Election.UNCLEAN, [PartitionElection("t", 0)]).reply
    assert not result.outcome.failed
    state = cluster.topic("t").partitions[0]
    assert (state.leader, state.isr, state.leader_recovery_state) == (1, (1,), LeaderRecoveryState.RECOVERING)


def test_a_restart_without_proof_leaves_isr_and_eligible_set_in_the_batch_of_the_registration() -> None:
    cluster, epochs, _ = three()
    for broker_id in (3, 2, 1):
        cluster.controller.decide_fence_broker(broker_id, epochs[broker_id])
    before = cluster.topic("t").partitions[0]
    assert (before.isr, before.elr) == ((1,), (2,))
    decision = cluster.controller.decide_register_broker(registration(2, incarnation=2), 99)
    assert len(decision.records) == 2
    after = cluster.topic("t").partitions[0]
    assert (after.isr, after.elr, after.last_known_elr) == ((1,), (), (2,))


def below_the_minimum(brokers: int = 3) -> Cluster:
    """A partition led by 1 with the minimum of two; 2 and 3 left while it was not reached, and are eligible."""
    cluster = Cluster(brokers)
    cluster.create("t", 1, 3, min_insync_replicas="2")
    for broker_id in (2, 3):
        broker = cluster.image.broker(broker_id)
        assert broker is not None
        cluster.log += cluster.controller.decide_fence_broker(broker_id, broker.epoch).records
    before = cluster.topic("t").partitions[0]
    assert (before.isr, before.elr) == ((1,), (3,))
    return cluster


def set_min_isr(cluster: Cluster, resource: ResourceType, name: str, value: str) -> list[MetadataRecord]:
    alteration = ConfigAlteration(resource, name, (Alteration("min.insync.replicas", AlterOperation.SET, value),))
    decision = cluster.controller.decide_incremental_alter_configs([alteration])
    assert not decision.reply[0].outcome.failed, decision.reply[0].outcome
    return decision.records


def test_nobody_stays_eligible_once_fewer_replicas_suffice_and_that_is_one_batch() -> None:
    cluster = below_the_minimum()
    records = set_min_isr(cluster, ResourceType.TOPIC, "t", "1")
    assert [type(record).__name__ for record in records] == ["ConfigRecord", "PartitionChangeRecord"]
    after = cluster.topic("t").partitions[0]
    assert (after.isr, after.elr, after.last_known_elr, after.leader) == ((1,), (), (), 1)


def test_the_default_of_all_topics_counts_as_well_where_a_topic_has_none_of_its_own() -> None:
    cluster = Cluster(3, min_insync_replicas="2")
    cluster.create("t", 1, 3)
    cluster.create("own", 1, 3, min_insync_replicas="3")
    for broker_id in (2, 3):
        broker = cluster.image.broker(broker_id)
        assert broker is not None
        cluster.controller.decide_fence_broker(broker_id, broker.epoch)
    assert [cluster.topic(name).partitions[0].elr for name in ("t", "own")] == [(3,), (2, 3)]
    set_min_isr(cluster, ResourceType.BROKER, "", "1")
    assert [cluster.topic(name).partitions[0].elr for name in ("t", "own")] == [(), (2, 3)]


def test_a_higher_minimum_and_other_settings_change_no_partition() -> None:
    cluster = below_the_minimum()
    assert len(set_min_isr(cluster, ResourceType.TOPIC, "t", "3")) == 1
    assert cluster.topic("t").partitions[0].elr == (3,)


def test_without_the_feature_who_was_eligible_is_forgotten_in_the_same_batch() -> None:
    cluster = below_the_minimum()
    update = FeatureUpdate("eligible.leader.replicas.version", 0, 2)
    records = cluster.controller.decide_update_features([update]).records
    assert [type(record).__name__ for record in records] == ["FeatureLevelRecord", "PartitionChangeRecord"]
    assert cluster.topic("t").partitions[0].elr == ()


def test_who_was_eligible_under_a_feature_that_is_gone_does_not_empty_an_isr() -> None:
    state = without(partition((1,), elr=(2,)), 1, rules((2,), elr=False), lost=False)
    assert seen(state) == ((1,), (), NO_LEADER, 6)
