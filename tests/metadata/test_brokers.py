"""Brokers come, go, stop cleanly and crash: registrations, and what becomes of partitions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata.cluster import Cluster, registration
from penstock.metadata import (
    ELR_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    NO_LEADER,
    PRODUCER_ID_BLOCK_SIZE,
    RECORDS_PER_BATCH_MAX,
    TRANSACTION_VERSION,
    Decision,
    FeatureUpdate,
    MetadataDelta,
    NewTopic,
    PartitionState,
    ProducerIdBlock,
    Registration,
    VersionRange,
    finalized_features,
)
from penstock.metadata.features import GROUP_VERSION, IMPLIED_FEATURES, KRAFT_VERSION
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)


def refusal(cluster: Cluster, request: Registration, *, session_alive: bool = False) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        cluster.register(request, session_alive=session_alive)
    return refused.value


def state(cluster: Cluster, name: str = "t") -> PartitionState:
    return cluster.topic(name).partitions[0]


def three(isr: tuple[int, ...] = (1, 2, 3)) -> tuple[Cluster, dict[int, int]]:
    """Three brokers and a partition that broker 1 leads."""
    cluster = Cluster(0)
    epochs = {broker_id: cluster.register(registration(broker_id)) for broker_id in isr}
    cluster.controller.decide_create_topics([NewTopic("t", assignments=((0, isr),))])
    return cluster, epochs


def test_a_new_cluster_begins_with_its_feature_levels() -> None:
    cluster = Cluster(0)
    assert cluster.log == [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
        FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=2),
    ]
    cluster.register(registration(1))
    assert cluster.controller.decide_activation().records == []


def test_a_registration_says_all_about_a_broker() -> None:
    cluster = Cluster(0)
    epoch = cluster.register(registration(4, rack="r1"), fenced=True)
    broker = cluster.image.broker(4)
    assert broker is not None
    assert epoch == broker.epoch == 3
    assert (broker.rack, broker.fenced, broker.active) == ("r1", True, False)
    assert broker.listener("PLAINTEXT") == registration(4).listeners[0]
    assert broker.listener("SSL") is None
    cluster.controller.decide_unfence_broker(4, epoch)
    broker = cluster.image.broker(4)
    assert broker is not None
    assert broker.active


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "but got cluster ID other"),
        ({"directories": ()}, ErrorCode.INVALID_REGISTRATION, "No directories specified"),
        ({"directories": (bytes(16),)}, ErrorCode.INVALID_REGISTRATION, "Reserved directory ID"),
        ({"directories": (b"d" * 16, b"d" * 16)}, ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID"),
        (
            {"directories": registration(1).directories},
            ErrorCode.INVALID_REGISTRATION,
            "Broker 1 is already registered with directory",
        ),
        (
            {"features": {ELR_VERSION: VersionRange(0, 1)}},
            ErrorCode.UNSUPPORTED_VERSION,
            "does not support finalized version 25 of metadata.version",
        ),
        (
            {"features": {ELR_VERSION: VersionRange(0, 1), METADATA_VERSION: VersionRange(1, 24)}},
            ErrorCode.UNSUPPORTED_VERSION,
            "wants a version between 1 and 24, inclusive",
        ),
    ],
)
def test_a_broker_that_does_not_fit_is_refused(change: dict[str, object], error: ErrorCode, message: str) -> None:
    cluster = Cluster(1)
    refused = refusal(cluster, replace(registration(2), **change))
    assert refused.code == error
    assert message in refused.message
    assert sorted(cluster.image.brokers) == [1]


def test_a_second_process_with_the_same_id_is_refused_while_the_first_lives() -> None:
    cluster = Cluster(1)
    refused = refusal(cluster, registration(1, incarnation=2), session_alive=True)
    assert refused.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_the_same_incarnation_may_register_again_and_keeps_its_epoch() -> None:
    cluster = Cluster(1)
    before = cluster.image.broker(1)
    assert before is not None
    assert cluster.register(replace(registration(1), rack="new"), fenced=True, session_alive=True) == before.epoch
    after = cluster.image.broker(1)
    assert after == replace(before, rack="new")


def test_a_clean_restart_changes_no_partition() -> None:
    cluster, epochs = three()
    before = state(cluster)
    decision = cluster.controller.decide_register_broker(
        registration(1, incarnation=2, previous_broker_epoch=epochs[1]), 100, fenced=False
    )
    assert [type(record) for record in decision.records] == [RegisterBrokerRecord]
    assert decision.reply.broker_epoch == 100
    assert state(cluster) == before


def test_a_restart_without_proof_leaves_every_isr_that_has_another_member() -> None:
    cluster, _ = three()
    decision = cluster.controller.decide_register_broker(registration(1, incarnation=2), 100, fenced=False)
    assert isinstance(decision.records[1], PartitionChangeRecord)
    assert (state(cluster).isr, state(cluster).leader, state(cluster).leader_epoch) == ((2, 3), 2, 1)


def test_an_older_proof_is_no_proof() -> None:
    cluster, epochs = three()
    cluster.controller.decide_register_broker(
        registration(1, incarnation=2, previous_broker_epoch=epochs[1]), 100, fenced=False
    )
    cluster.controller.decide_register_broker(
        registration(1, incarnation=3, previous_broker_epoch=epochs[1]), 200, fenced=False
    )
    assert state(cluster).isr == (2, 3)


def test_the_only_replica_leads_again_after_a_crash_but_in_a_new_epoch() -> None:
    cluster = Cluster(1)
    cluster.create("t", 3)
    cluster.controller.decide_register_broker(registration(1, incarnation=2), 100, fenced=False)
    for partition in cluster.topic("t").partitions:
        assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == ((1,), 1, 1, 1)


def test_the_only_replica_waits_until_it_is_unfenced() -> None:
    cluster = Cluster(1)
    cluster.create("t")
    epoch = cluster.register(registration(1, incarnation=2), fenced=True)
    assert (state(cluster).isr, state(cluster).leader) == ((1,), NO_LEADER)
    cluster.controller.decide_unfence_broker(1, epoch)
    assert (state(cluster).isr, state(cluster).leader, state(cluster).leader_epoch) == ((1,), 1, 2)


def test_fencing_moves_leaderships_to_in_sync_replicas() -> None:
    cluster, epochs = three()
    cluster.controller.decide_fence_broker(1, epochs[1])
    assert (state(cluster).isr, state(cluster).leader) == ((2, 3), 2)
    assert cluster.controller.decide_fence_broker(1, epochs[1]).records == []
    cluster.controller.decide_fence_broker(2, epochs[2])
    cluster.controller.decide_fence_broker(3, epochs[3])
    # The last member stays in the ISR: nobody else may have everything.
    assert (state(cluster).isr, state(cluster).leader) == ((3,), NO_LEADER)
    cluster.controller.decide_unfence_broker(1, epochs[1])
    assert (state(cluster).isr, state(cluster).leader) == ((3,), NO_LEADER)
    cluster.controller.decide_unfence_broker(3, epochs[3])
    assert (state(cluster).isr, state(cluster).leader) == ((3,), 3)
    assert cluster.controller.decide_unfence_broker(3, epochs[3]).records == []


def test_a_broker_that_shuts_down_hands_over_first() -> None:
    cluster, epochs = three()
    cluster.controller.decide_controlled_shutdown(1, epochs[1])
    broker = cluster.image.broker(1)
    assert broker is not None
    assert (broker.fenced, broker.in_controlled_shutdown, broker.active) == (False, True, False)
    assert (state(cluster).isr, state(cluster).leader) == ((2, 3), 2)
    assert cluster.controller.decide_controlled_shutdown(1, epochs[1]).records == []


def test_a_broker_can_leave_for_good() -> None:
    cluster, epochs = three()
    cluster.controller.decide_unregister_broker(1)
    assert sorted(cluster.image.brokers) == [2, 3]
    assert (state(cluster).replicas, state(cluster).isr, state(cluster).leader) == ((1, 2, 3), (2, 3), 2)
    with pytest.raises(KafkaError) as refused:
        cluster.controller.decide_unregister_broker(1)
    assert refused.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED
    with pytest.raises(KafkaError) as refused:
        cluster.controller.decide_fence_broker(1, epochs[1])
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_an_old_incarnation_decides_nothing() -> None:
    cluster, epochs = three()
    for decide in (
        cluster.controller.decide_fence_broker,
        cluster.controller.decide_unfence_broker,
        cluster.controller.decide_controlled_shutdown,
        cluster.controller.decide_allocate_producer_ids,
    ):
        with pytest.raises(KafkaError, match="Expected broker epoch") as refused:
            decide(1, epochs[1] + 1)
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_producer_ids_are_given_in_blocks_and_never_twice() -> None:
    cluster, epochs = three()
    blocks = [cluster.controller.decide_allocate_producer_ids(i, epochs[i]).reply for i in (1, 2, 1)]
    assert blocks == [
        ProducerIdBlock(0, PRODUCER_ID_BLOCK_SIZE),
        ProducerIdBlock(1000, PRODUCER_ID_BLOCK_SIZE),
        ProducerIdBlock(2000, PRODUCER_ID_BLOCK_SIZE),
    ]
    assert cluster.image.next_producer_id == 3000


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (FeatureUpdate("no.such", 1), "Local controller does not support this feature."),
        (FeatureUpdate(METADATA_VERSION, 26), "Local controller only supports versions 25-25"),
        (FeatureUpdate(METADATA_VERSION, 24, 2), "Local controller only supports versions 25-25"),
        (FeatureUpdate(METADATA_VERSION, -1), "cannot be less than 0"),
        (FeatureUpdate(METADATA_VERSION, 25, 9), "does not support the given upgrade type"),
        (FeatureUpdate(KRAFT_VERSION, 0, 2), "Local controller only supports versions 1-1"),
        (FeatureUpdate(GROUP_VERSION, 0, 3), "Local controller only supports versions 1-1"),
        (FeatureUpdate(TRANSACTION_VERSION, 3), "Local controller only supports versions 0-2"),
    ],
)
def test_a_feature_level_that_somebody_does_not_know_is_refused(update: FeatureUpdate, message: str) -> None:
    cluster = Cluster(1)
    with pytest.raises(KafkaError) as refused:
        cluster.controller.decide_update_features([update])
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("name", "level"), [(METADATA_VERSION, METADATA_VERSION_LEVEL), (ELR_VERSION, 1), *IMPLIED_FEATURES.items()]
)
def test_the_level_in_force_may_be_set_again_without_a_record(name: str, level: int) -> None:
    """Nodes of an older release would refuse a record about a feature that they do not know."""
    for upgrade_type in (1, 2, 3):
        decision = Cluster(1).controller.decide_update_features([FeatureUpdate(name, level, upgrade_type)])
        assert decision.records == []


def test_a_level_that_an_older_release_wrote_for_nothing_is_still_read() -> None:
    """It answered an upgrade of kraft.version to 1 with a record."""
    cluster = Cluster(1)
    delta = MetadataDelta(cluster.image)
    delta.replay(FeatureLevelRecord(name=KRAFT_VERSION, feature_level=1))
    image = delta.apply(cluster.image.offset + 1, cluster.image.epoch)
    assert finalized_features(image.features) == {
        ELR_VERSION: 1, GROUP_VERSION: 1, KRAFT_VERSION: 1, METADATA_VERSION: METADATA_VERSION_LEVEL,
        TRANSACTION_VERSION: 2,
    }  # fmt: skip


def test_more_records_than_a_batch_may_hold_become_a_transaction() -> None:
    assert Decision([], None).batches() == []
    exactly = Decision([NoOpRecord()] * RECORDS_PER_BATCH_MAX, None).batches()
    assert [len(batch) for batch in exactly] == [RECORDS_PER_BATCH_MAX]
    batches = Decision([NoOpRecord()] * (RECORDS_PER_BATCH_MAX + 1), None).batches()
    assert [len(batch) for batch in batches] == [RECORDS_PER_BATCH_MAX, 3]
    assert isinstance(batches[0][0], BeginTransactionRecord)
    assert isinstance(batches[1][-1], EndTransactionRecord)
