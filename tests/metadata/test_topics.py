"""Creating, deleting and growing topics: what is refused, with which code, and what is written."""

from __future__ import annotations

import pytest

from metadata.cluster import Cluster, registration
from penstock.metadata import (
    PARTITIONS_PER_REQUEST_MAX,
    RECORDS_PER_BATCH_MAX,
    NewPartitions,
    NewTopic,
    Outcome,
    TopicCreation,
    TopicToDelete,
)
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord


def create(cluster: Cluster, *topics: NewTopic, validate_only: bool = False) -> list[TopicCreation]:
    decision = cluster.controller.decide_create_topics(topics, validate_only=validate_only)
    cluster.log += decision.records
    return decision.reply


def refusal(cluster: Cluster, topic: NewTopic) -> Outcome:
    records = len(cluster.log)
    (result,) = create(cluster, topic)
    assert result.outcome.failed
    assert len(cluster.log) == records
    return result.outcome


def test_a_topic_is_created_with_its_settings_before_its_partitions() -> None:
    cluster = Cluster()
    (result,) = create(cluster, NewTopic("orders", 2, 1, configs=(("retention.ms", "1000"),)))
    assert result == TopicCreation("orders", Outcome(), result.topic_id, 2, 1, {"retention.ms": "1000"})
    assert [type(record) for record in cluster.log[-4:]] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    topic = cluster.topic("orders")
    assert topic is cluster.image.topic(b"orders") is cluster.image.topic_by_id(result.topic_id)
    state = topic.partitions[1]
    assert (state.replicas, state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((1,), (1,), 1, 0, 0)
    assert state.directories == registration(1).directories
    assert cluster.image.config(2, "orders") == {"retention.ms": "1000"}
    assert (cluster.image.topic_count, cluster.image.partition_count) == (1, 2)


def test_defaults_come_from_the_brokers_configuration() -> None:
    cluster = Cluster(3, num_partitions="4", default_replication_factor="2")
    (result,) = create(cluster, NewTopic("t"))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "is longer than the max allowed length 249"),
        ("a/b", "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("caf\u00e9", "contains one or more characters"),
        ("a b", "contains one or more characters"),
        ("a\n", "contains one or more characters"),
    ],
)
def test_illegal_names_are_refused(name: str, reason: str) -> None:
    outcome = refusal(Cluster(), NewTopic(name, 1, 1))
    assert outcome.error == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert outcome.message is not None
    assert outcome.message.startswith("Topic name is invalid: ")
    assert reason in outcome.message


def test_the_longest_name_is_allowed() -> None:
    Cluster().create("x" * 249)


def test_an_existing_topic_is_refused() -> None:
    cluster = Cluster()
    cluster.create("t")
    assert refusal(cluster, NewTopic("t")) == Outcome(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    cluster = Cluster()
    cluster.create("a.b_c")
    for name in ("a_b_c", "a.b.c", "a_b.c"):
        outcome = refusal(cluster, NewTopic(name, 1, 1))
        assert outcome == Outcome(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: a.b_c"
        )
    cluster.create("a-b-c")
    results = create(cluster, NewTopic("x.y", 1, 1), NewTopic("x_y", 1, 1))
    assert [result.outcome.error for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_deleted_topic_leaves_its_name_free() -> None:
    cluster = Cluster()
    old = cluster.create("a.b", retention_ms="5")
    cluster.controller.decide_delete_topics([TopicToDelete("a.b")])
    new = cluster.create("a_b")
    assert new.topic_id != old.topic_id
    assert cluster.image.topic("a.b") is None
    assert cluster.image.config(2, "a.b") == {}


def test_topics_of_one_request_succeed_or_fail_on_their_own() -> None:
    cluster = Cluster()
    results = create(cluster, NewTopic("good", 1, 1), NewTopic("b@d", 1, 1), NewTopic("fine", 3, 1))
    assert [(result.name, result.outcome.error) for result in results] == [
        ("good", ErrorCode.NONE),
        ("b@d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("fine", ErrorCode.NONE),
    ]
    assert cluster.image.topic_names() == ["fine", "good"]


def test_a_topic_named_twice_in_one_request_is_refused_once() -> None:
    cluster = Cluster()
    results = create(cluster, NewTopic("t", 1, 1), NewTopic("u", 1, 1), NewTopic("t", 2, 1))
    assert [(result.name, result.outcome) for result in results] == [
        ("t", Outcome(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")),
        ("u", Outcome()),
    ]


def test_two_requests_in_flight_cannot_both_create_a_topic() -> None:
    cluster = Cluster()
    committed = cluster.image
    first = cluster.controller.decide_create_topics([NewTopic("t", 1, 1)])
    second = cluster.controller.decide_create_topics([NewTopic("t", 1, 1)])
    assert not first.reply[0].outcome.failed
    assert second.reply[0].outcome.error == ErrorCode.TOPIC_ALREADY_EXISTS
    # Leadership is lost before anything was committed: whoever leads next starts from what is.
    cluster.controller.reset(committed)
    cluster.create("t")


def test_the_metadata_log_itself_cannot_be_created() -> None:
    outcome = refusal(Cluster(), NewTopic("__cluster_metadata", 1, 1))
    assert outcome == Outcome(ErrorCode.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited.")


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
        (NewTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
        (
            NewTopic("t", 1, 3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached "
            "because only 2 broker(s) are registered.",
        ),
        (NewTopic("t", 1, 1, configs=(("no.such", "1"),)), ErrorCode.INVALID_CONFIG, "no.such"),
        (NewTopic("t", 1, 1, configs=(("retention.ms", "soon"),)), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (
            NewTopic("t", 1, 1, configs=(("retention.ms", None), ("segment.ms", None))),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms,segment.ms",
        ),
        (NewTopic("t", 1, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST, "numPartitions was not set to -1"),
        (NewTopic("t", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST, "replication factor was not set to -1"),
        (
            NewTopic("t", -1, -1, ((0, (1,)), (0, (1,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", -1, -1, ((0, (1,)), (2, (1,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (NewTopic("t", -1, -1, ((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        (
            NewTopic("t", -1, -1, ((0, (1, 9)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 9, but no such broker is registered",
        ),
        (
            NewTopic("t", -1, -1, ((0, (1, 1)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes the broker 1 more than once",
        ),
        (
            NewTopic("t", -1, -1, ((0, (1, 2)), (1, (1,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "a partition with 1 replica(s), but this is not consistent with previous partitions, which have 2",
        ),
    ],
)
def test_what_cannot_be_created_is_refused(topic: NewTopic, error: ErrorCode, message: str) -> None:
    outcome = refusal(Cluster(2), topic)
    assert outcome.error == error
    assert outcome.message is not None
    assert message in outcome.message


def test_replicas_may_be_chosen() -> None:
    cluster = Cluster(3)
    (result,) = create(cluster, NewTopic("t", assignments=((1, (2, 3)), (0, (3, 1)))))
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert [state.replicas for state in cluster.topic("t").partitions] == [(3, 1), (2, 3)]


def test_fenced_brokers_get_replicas_but_no_place_in_the_isr() -> None:
    cluster = Cluster(2)
    epoch = cluster.register(registration(3), fenced=True)
    (result,) = create(cluster, NewTopic("t", assignments=((0, (3, 1)),)))
    assert not result.outcome.failed
    state = cluster.topic("t").partitions[0]
    assert (state.isr, state.leader) == ((1,), 1)
    outcome = refusal(cluster, NewTopic("u", assignments=((0, (3,)),)))
    assert outcome.error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "partition 0 are fenced or in controlled shutdown" in (outcome.message or "")
    cluster.controller.decide_unfence_broker(3, epoch)
    create(cluster, NewTopic("u", assignments=((0, (3,)),)))


def test_without_an_active_broker_nothing_can_be_created() -> None:
    cluster = Cluster(0)
    epoch = cluster.register(registration(1))
    cluster.controller.decide_controlled_shutdown(1, epoch)
    assert refusal(cluster, NewTopic("t", 1, 1)) == Outcome(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced or in controlled shutdown.",
    )
    cluster.controller.decide_fence_broker(1, epoch)
    assert refusal(cluster, NewTopic("t", 1, 1)).message == (
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced."
    )


def test_validate_only_answers_the_same_and_changes_nothing() -> None:
    cluster = Cluster()
    before = cluster.image
    results = create(cluster, NewTopic("t", 2, 1), NewTopic("b@d"), validate_only=True)
    assert [result.outcome.failed for result in results] == [False, True]
    assert results[0].num_partitions == 2
    assert cluster.image is before


def test_a_request_with_too_many_partitions_is_refused_as_a_whole() -> None:
    cluster = Cluster()
    half = PARTITIONS_PER_REQUEST_MAX // 2
    with pytest.raises(KafkaError, match="Excessively large number of partitions") as refused:
        create(cluster, NewTopic("a", half, 1), NewTopic("b", half, 1), NewTopic("c", 1, 1))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    cluster.create("t")
    with pytest.raises(KafkaError, match="Excessively large number of partitions"):
        cluster.controller.decide_create_partitions([NewPartitions("t", PARTITIONS_PER_REQUEST_MAX + 2)])
    assert cluster.image.partition_count == 1


def test_a_request_that_needs_too_many_records_is_refused_as_a_whole() -> None:
    cluster = Cluster()
    with pytest.raises(KafkaError, match="excessively large batch operation") as refused:
        create(cluster, NewTopic("t", RECORDS_PER_BATCH_MAX, 1))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert cluster.image.topic_count == 0


def test_topics_are_deleted_by_name_or_by_id() -> None:
    cluster = Cluster()
    a = cluster.create("a", 3)
    b = cluster.create("b", 2)
    cluster.create("c")
    decision = cluster.controller.decide_delete_topics([TopicToDelete("a"), TopicToDelete(topic_id=b.topic_id)])
    assert [(result.name, result.topic_id, result.outcome.error) for result in decision.reply] == [
        ("a", a.topic_id, ErrorCode.NONE),
        ("b", b.topic_id, ErrorCode.NONE),
    ]
    assert decision.records == [RemoveTopicRecord(topic_id=a.topic_id), RemoveTopicRecord(topic_id=b.topic_id)]
    assert cluster.image.topic_names() == ["c"]
    assert cluster.image.partition_count == 1


@pytest.mark.parametrize(
    ("topics", "errors"),
    [
        ([TopicToDelete("no")], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([TopicToDelete(topic_id=b"\x07" * 16)], [ErrorCode.UNKNOWN_TOPIC_ID]),
        ([TopicToDelete()], [ErrorCode.INVALID_REQUEST]),
        ([TopicToDelete("a", b"\x07" * 16)], [ErrorCode.INVALID_REQUEST]),
        ([TopicToDelete("a"), TopicToDelete("a")], [ErrorCode.INVALID_REQUEST]),
        ([TopicToDelete("no"), TopicToDelete("a")], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]),
    ],
)
def test_what_cannot_be_deleted_is_refused_by_itself(topics: list[TopicToDelete], errors: list[ErrorCode]) -> None:
    cluster = Cluster()
    cluster.create("a")
    assert [result.outcome.error for result in cluster.controller.decide_delete_topics(topics).reply] == errors


def test_a_topic_that_is_named_and_given_by_id_is_not_deleted() -> None:
    cluster = Cluster()
    topic = cluster.create("a")
    decision = cluster.controller.decide_delete_topics([TopicToDelete("a"), TopicToDelete(topic_id=topic.topic_id)])
    (result,) = decision.reply
    assert result.outcome.message == "The provided topic name maps to an ID that was already supplied."
    assert decision.records == []


def test_deletion_can_be_switched_off() -> None:
    cluster = Cluster(1, delete_topic_enable="false")
    cluster.create("a")
    with pytest.raises(KafkaError) as refused:
        cluster.controller.decide_delete_topics([TopicToDelete("a")])
    assert refused.value.code == ErrorCode.TOPIC_DELETION_DISABLED


def test_partitions_are_added_and_the_old_ones_stay() -> None:
    cluster = Cluster(3)
    before = cluster.create("t", 2, 2)
    decision = cluster.controller.decide_create_partitions([NewPartitions("t", 5)])
    assert not decision.reply[0].outcome.failed
    after = cluster.topic("t")
    assert after.partitions[:2] == before.partitions
    assert [len(state.replicas) for state in after.partitions] == [2] * 5
    assert cluster.image.partition_count == 5
    decision = cluster.controller.decide_create_partitions([NewPartitions("t", 6, ((3, 1),))])
    assert cluster.topic("t").partitions[5].replicas == (3, 1)


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (NewPartitions("no", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS, "has 2 partition(s); 1 would not be an increase"),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
        (
            NewPartitions("t", 4, ((1,),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (NewPartitions("t", 3, ((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker is registered"),
        (NewPartitions("t", 3, ((),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
    ],
)
def test_what_cannot_be_added_is_refused(topic: NewPartitions, error: ErrorCode, message: str) -> None:
    cluster = Cluster()
    cluster.create("t", 2)
    (result,) = cluster.controller.decide_create_partitions([topic]).reply
    assert result.outcome.error == error
    assert message in (result.outcome.message or "")


def test_growing_validates_only_where_asked_and_refuses_duplicates() -> None:
    cluster = Cluster()
    cluster.create("t")
    cluster.create("u")
    before = cluster.image
    decision = cluster.controller.decide_create_partitions(
        [NewPartitions("t", 2), NewPartitions("u", 2), NewPartitions("t", 3)], validate_only=True
    )
    assert [(result.name, result.outcome.error) for result in decision.reply] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]
    assert cluster.image is before
