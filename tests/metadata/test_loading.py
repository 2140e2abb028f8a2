"""Log and snapshot → image: everybody who reads the same holds the same, at a cost that follows the change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.cluster import Cluster, contents, registration
from penstock.config import Alteration, AlterOperation
from penstock.metadata import (
    EMPTY_IMAGE,
    ConfigAlteration,
    MetadataDelta,
    MetadataError,
    MetadataLoader,
    NewPartitions,
    NewTopic,
    TopicToDelete,
    image_from_snapshot,
    image_records,
    snapshot_values,
)
from penstock.raft import LeaderChange, LogBatch, OffsetAndEpoch, VoterSet, read_snapshot, snapshot_batches
from penstock.wire.messages import metadata_records as r


def batch(base_offset: int, *records: r.MetadataRecord, epoch: int = 1) -> LogBatch:
    values = tuple(r.encode_metadata_record(record) for record in records)
    return LogBatch(base_offset, len(values), epoch, values=values)


def topic_records(name: str, topic_id: bytes, partitions: int = 1) -> list[r.MetadataRecord]:
    return [
        r.TopicRecord(name=name, topic_id=topic_id),
        *(
            r.PartitionRecord(
                partition_id=i, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
            )
            for i in range(partitions)
        ),
    ]


A, B = b"a" * 16, b"b" * 16


def test_a_step_says_what_changed() -> None:
    loader = MetadataLoader()
    step = loader.load([batch(0, *topic_records("t", A, 2), *topic_records("u", B))])
    assert [topic.name for topic in step.delta.topics_created] == ["t", "u"]
    assert step.image is loader.image
    assert (step.image.offset, step.image.epoch) == (4, 1)
    older = step.image
    step = loader.load(
        [
            batch(5, r.PartitionChangeRecord(topic_id=A, partition_id=1, leader=1), epoch=2),
            batch(
                6,
                r.RemoveTopicRecord(topic_id=B),
                r.ConfigRecord(resource_type=2, resource_name="t", name="segment.ms", value="1"),
                epoch=2,
            ),
        ]
    )
    assert [topic.name for topic in step.delta.topics_deleted] == ["u"]
    (change,) = step.delta.topics_changed
    assert (change.before.name, change.partitions) == ("t", (1,))
    assert change.after.partitions[1].leader_epoch == 1
    assert change.after.partitions[0] is change.before.partitions[0]
    assert step.delta.configs_changed == [(2, "t")]
    assert step.delta.brokers_changed == []
    assert (step.image.offset, step.image.epoch) == (7, 2)
    # Whoever still reads the older image is not disturbed.
    assert older.topic_names() == ["t", "u"]
    assert older.partition_count == 3
    assert step.image.topic_names() == ["t"]
    assert step.image.partition_count == 2


def test_a_topic_may_be_deleted_and_created_again_in_one_step() -> None:
    loader = MetadataLoader()
    loader.load([batch(0, *topic_records("a.b", A, 3))])
    step = loader.load([batch(4, r.RemoveTopicRecord(topic_id=A), *topic_records("a.b", B))])
    assert [topic.topic_id for topic in step.delta.topics_deleted] == [A]
    assert [topic.topic_id for topic in step.delta.topics_created] == [B]
    topic = step.image.topic("a.b")
    assert topic is not None
    assert topic.topic_id == B
    assert step.image.topic_by_id(A) is None
    assert step.image.partition_count == 1
    assert step.image.collisions.get(b"a_b") == ("a.b",)


def test_a_topic_that_comes_and_goes_within_a_step_was_never_there() -> None:
    step = MetadataLoader().load([batch(0, *topic_records("t", A), r.RemoveTopicRecord(topic_id=A))])
    assert (step.delta.topics_created, step.delta.topics_deleted) == ([], [])
    assert step.image.topic_count == 0


def test_control_batches_move_the_offset_and_nothing_else() -> None:
    step = MetadataLoader().load([LogBatch(0, 1, 3, control=(LeaderChange(1, (1,), (1,)),))])
    assert (step.image.offset, step.image.epoch) == (0, 3)
    assert step.image.snapshot_id == OffsetAndEpoch(1, 3)


def test_a_transaction_counts_when_it_has_ended() -> None:
    loader = MetadataLoader()
    loader.load([batch(0, *topic_records("t", A))])
    step = loader.load([batch(2, r.BeginTransactionRecord(), *topic_records("u", B))])
    assert step.image.topic_names() == ["t"]
    assert step.image.offset == 1
    step = loader.load([batch(5, r.RemoveTopicRecord(topic_id=A), r.EndTransactionRecord())])
    assert step.image.topic_names() == ["u"]
    assert step.image.offset == 6


def test_an_aborted_transaction_never_happened() -> None:
    loader = MetadataLoader()
    step = loader.load(
        [
            batch(0, r.BeginTransactionRecord(), *topic_records("u", B)),
            batch(3, r.AbortTransactionRecord(reason="the controller changed its mind")),
        ]
    )
    assert step.image.topic_count == 0
    assert step.image.offset == 3


@pytest.mark.parametrize(
    "records",
    [
        [r.EndTransactionRecord()],
        [r.BeginTransactionRecord(), r.BeginTransactionRecord()],
        [r.PartitionRecord(topic_id=A, partition_id=0)],
        [r.TopicRecord(name="t", topic_id=A), r.TopicRecord(name="u", topic_id=A)],
        [*topic_records("t", A), r.PartitionRecord(topic_id=A, partition_id=2)],
        [*topic_records("t", A), r.PartitionChangeRecord(topic_id=A, partition_id=1)],
        [*topic_records("t", A), r.RemoveTopicRecord(topic_id=A), r.PartitionChangeRecord(topic_id=A, partition_id=0)],
        [r.RemoveTopicRecord(topic_id=A)],
        [r.FenceBrokerRecord(id=1, epoch=1)],
        [r.RegisterBrokerRecord(broker_id=1, broker_epoch=4), r.UnfenceBrokerRecord(id=1, epoch=3)],
        [r.RegisterBrokerRecord(broker_id=1), r.BrokerRegistrationChangeRecord(broker_id=1, fenced=2)],
        [r.UnregisterBrokerRecord(broker_id=1)],
        [r.ProducerIdsRecord(next_producer_id=1000), r.ProducerIdsRecord(next_producer_id=1000)],
        [r.FeatureLevelRecord(name="metadata.version", feature_level=26)],
        [r.FeatureLevelRecord(name="no.such", feature_level=1)],
        [r.RemoveAccessControlEntryRecord()],
    ],
    ids=lambda records: "+".join(type(record).__name__.removesuffix("Record") for record in records),
)
def test_records_that_do_not_fit_are_refused_and_never_skipped(records: list[r.MetadataRecord]) -> None:
    with pytest.raises(MetadataError):
        MetadataLoader().load([batch(0, *records)])


def test_older_forms_of_fencing_are_understood() -> None:
    delta = MetadataDelta(EMPTY_IMAGE).replay_all(
        [r.RegisterBrokerRecord(broker_id=1, broker_epoch=4), r.UnfenceBrokerRecord(id=1, epoch=4)]
    )
    assert not delta.apply(1, 1).brokers[1].fenced
    delta.replay(r.FenceBrokerRecord(id=1, epoch=4))
    assert delta.apply(2, 1).brokers[1].fenced


def test_controllers_are_kept_too() -> None:
    record = r.RegisterControllerRecord(
        controller_id=3,
        incarnation_id=A,
        end_points=[r.ControllerEndpoint(name="CONTROLLER", host="h", port=9093)],
        features=[r.ControllerFeature(name="metadata.version", min_supported_version=25, max_supported_version=25)],
    )
    image = MetadataDelta(EMPTY_IMAGE).replay_all([record]).apply(0, 1)
    assert list(image_records(image)) == [record]


operations = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, 12), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("grow"), st.integers(0, 12), st.integers(1, 6)),
        st.tuples(st.just("config"), st.integers(0, 12), st.integers(0, 3)),
        st.tuples(st.just("fence"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("unfence"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("crash"), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("producer ids"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(operations, st.data())
def test_what_was_decided_is_what_is_loaded_from_log_and_snapshot(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    cluster = Cluster(3)
    for name, a, b in steps:
        operate(cluster, name, a, b)
    # Through the log, in batches cut anywhere:
    loader = MetadataLoader()
    offset = 0
    while offset < len(cluster.log):
        size = data.draw(st.integers(1, len(cluster.log) - offset))
        loader.load([batch(offset, *cluster.log[offset : offset + size])])
        offset += size
    assert contents(loader.image) == contents(cluster.image)
    # Through a snapshot's file:
    snapshot = loader.image.snapshot_id
    file = b"".join(snapshot_batches(snapshot, VoterSet(), snapshot_values(loader.image), timestamp_ms=1))
    image = image_from_snapshot(snapshot, read_snapshot(file).values)
    assert contents(image) == contents(cluster.image)
    assert (image.offset, image.epoch) == (loader.image.offset, loader.image.epoch)
    check_consistency(cluster)


def operate(cluster: Cluster, name: str, a: int, b: int) -> None:
    controller = cluster.controller
    topic = f"topic.{a}" if a % 2 else f"topic-{a}"
    broker = cluster.image.broker(a)
    if name == "create":
        cluster.log += controller.decide_create_topics([NewTopic(topic, b, 2)]).records
    elif name == "delete":
        cluster.log += controller.decide_delete_topics([TopicToDelete(topic)]).records
    elif name == "grow":
        cluster.log += controller.decide_create_partitions([NewPartitions(topic, b)]).records
    elif name == "config":
        operation = AlterOperation.SET if b else AlterOperation.DELETE
        alteration = Alteration("segment.ms", operation, str(b * 60_000) if b else None)
        cluster.log += controller.decide_incremental_alter_configs([ConfigAlteration(2, topic, (alteration,))]).records
    elif name == "fence" and broker is not None:
        cluster.log += controller.decide_fence_broker(a, broker.epoch).records
    elif name == "unfence" and broker is not None:
        cluster.log += controller.decide_unfence_broker(a, broker.epoch).records
    elif name == "crash" and broker is not None:
        clean = broker.epoch if b else -1
        cluster.register(
            registration(a, incarnation=len(cluster.log) % 250, previous_broker_epoch=clean), fenced=bool(b)
        )
    elif name == "producer ids" and (first := cluster.image.broker(1)) is not None:
        cluster.log += controller.decide_allocate_producer_ids(1, first.epoch).records


def check_consistency(cluster: Cluster) -> None:
    image = cluster.image
    assert image.topic_names() == sorted(image.topic_names())
    assert [topic.name for topic in image.topics()] == image.topic_names()
    assert image.partition_count == sum(len(topic.partitions) for topic in image.topics())
    for topic in image.topics():
        assert image.topic_by_id(topic.topic_id) is topic
        assert image.topic(topic.name.encode()) is topic
        assert image.partition(topic.name, len(topic.partitions)) is None
        for index, state in enumerate(topic.partitions):
            assert image.partition(topic.name, index) is state
            assert state.isr
            assert all(replica in state.replicas for replica in state.isr)
            if state.leader >= 0:
                assert state.leader in state.isr
                assert image.brokers[state.leader].active
            else:
                assert not any(image.brokers[replica].active for replica in state.isr)
