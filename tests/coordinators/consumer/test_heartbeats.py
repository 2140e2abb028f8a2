"""ConsumerGroupHeartbeat: how members come, stay and go, and what they are told."""

from __future__ import annotations

import pytest

from coordinators.consumer.harness import (
    CONFIG,
    GROUP,
    SESSION_TIMEOUT_MS,
    Cluster,
    Consumer,
    all_partitions,
    owned_by_all,
    rounds,
)
from penstock.coordinators.groups.config import replace
from penstock.coordinators.groups.consumer.member import MemberState
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequestTopicPartitions

SOME_PARTITION = [ConsumerGroupHeartbeatRequestTopicPartitions(bytes(16), [1])]
MORE_TOPICS_THAN_A_RECORD_HOLDS = [f"{number:0249}" for number in range(1_100)]


def test_the_first_member_gets_everything_at_once() -> None:
    cluster = Cluster(orders=3)
    response = cluster.join("m")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert response.assignment is not None
    assert [(t.topic_id, t.partitions) for t in response.assignment.topic_partitions] == [
        (cluster.topic_id("orders"), [0, 1, 2])
    ]
    assert cluster.group.state == "Stable"
    cluster.assert_replay_gives_the_same()


def test_in_version_0_the_coordinator_makes_up_the_member_id() -> None:
    cluster = Cluster(orders=1)
    response = cluster.join("", version=0)
    assert response.error_code == 0
    assert response.member_id
    assert list(cluster.group.members) == [response.member_id]


def test_an_answer_without_news_has_no_assignment_and_nothing_is_written() -> None:
    cluster = Cluster(orders=1)
    consumer = Consumer(cluster, "m")
    consumer.join()
    consumer.settle()
    consumer.beat()
    cluster.driver.take_records()
    response = consumer.beat()
    assert response.assignment is None
    assert response.member_epoch == 1
    assert cluster.driver.take_records() == []


def test_a_full_request_is_answered_in_full() -> None:
    cluster = Cluster(orders=1)
    consumer = Consumer(cluster, "m")
    consumer.join()
    response = consumer.beat(
        rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"], topic_partitions=consumer._topic_partitions()
    )
    assert response.assignment is not None


def test_a_second_member_gets_partitions_when_the_first_has_given_them_up() -> None:
    cluster = Cluster(orders=4)
    first, second = Consumer(cluster, "a"), Consumer(cluster, "b")
    first.join()
    first.settle()
    second.join()
    assert second.told == {}
    assert cluster.group.members["b"].current.state is MemberState.UNRELEASED_PARTITIONS
    first.beat()
    assert cluster.group.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS
    assert first.epoch == 1
    assert len(first.told) == 2
    second.beat()
    assert second.told == {}, "the first has not said that it gave them up"
    first.settle()
    first.beat()
    assert first.epoch == 2
    second.beat()
    assert len(second.told) == 2
    assert cluster.group.state == "Stable"
    cluster.assert_replay_gives_the_same()


def test_a_member_that_leaves_leaves_its_partitions_to_the_others() -> None:
    cluster = Cluster(orders=4)
    consumers = [Consumer(cluster, "a"), Consumer(cluster, "b")]
    for consumer in consumers:
        consumer.join()
    rounds(consumers)
    response = consumers[0].leave()
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", -1)
    rounds(consumers)
    assert owned_by_all(consumers) == all_partitions(cluster, "orders")
    assert list(cluster.group.members) == ["b"]
    cluster.assert_replay_gives_the_same()


def test_the_last_member_leaves_an_empty_group() -> None:
    cluster = Cluster(orders=1)
    consumer = Consumer(cluster, "a")
    consumer.join()
    consumer.leave()
    assert cluster.group.state == "Empty"
    assert cluster.group.epoch == 2
    assert not cluster.driver.timers.keys() & {("session", GROUP, "a")}
    cluster.assert_replay_gives_the_same()


def test_a_member_that_is_not_heard_of_expires() -> None:
    cluster = Cluster(orders=2)
    consumers = [Consumer(cluster, "a"), Consumer(cluster, "b")]
    for consumer in consumers:
        consumer.join()
    rounds(consumers)
    consumers[0].die()
    rounds(consumers, 7)
    assert list(cluster.group.members) == ["a", "b"], "40 of its 45 seconds are over"
    rounds(consumers, 3)
    assert list(cluster.group.members) == ["b"]
    assert owned_by_all(consumers) == all_partitions(cluster, "orders")


def test_a_member_that_does_not_give_up_partitions_in_time_is_fenced() -> None:
    cluster = Cluster(orders=2)
    stubborn = Consumer(cluster, "a", rebalance_timeout_ms=20_000)
    stubborn.join()
    stubborn.settle()
    other = Consumer(cluster, "b")
    other.join()
    for _ in range(4):
        assert stubborn.beat().error_code == 0
        other.beat()
        cluster.advance(5_000)
    assert stubborn.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    rounds([stubborn, other])
    assert owned_by_all([stubborn, other]) == all_partitions(cluster, "orders")


def test_a_new_subscription_takes_off_what_is_no_longer_wanted_at_once() -> None:
    cluster = Cluster(replace(CONFIG, group_consumer_assignment_interval_ms=60_000), orders=2, refunds=2)
    consumer = Consumer(cluster, "a", ["orders", "refunds"])
    consumer.join()
    consumer.settle()
    consumer.beat()
    consumer.beat(subscribed_topic_names=["refunds"])
    assert sorted(consumer.told) == [("refunds", 0), ("refunds", 1)]
    assert cluster.group.epoch == 2
    assert cluster.group.assignment_epoch == 1, "the next target has to wait"
    consumer.settle()
    consumer.beat()
    assert consumer.epoch == 1
    cluster.assert_replay_gives_the_same()


def test_targets_are_computed_once_per_interval() -> None:
    cluster = Cluster(replace(CONFIG, group_consumer_assignment_interval_ms=1_000), orders=4)
    consumers = [Consumer(cluster, f"m{i}") for i in range(4)]
    for consumer in consumers:
        consumer.join()
    assert cluster.group.epoch == 4
    assert cluster.group.assignment_epoch == 1
    cluster.advance(999)
    consumers[3].beat()
    assert cluster.group.assignment_epoch == 1
    cluster.advance(1)
    consumers[3].beat()
    assert cluster.group.assignment_epoch == 4
    rounds(consumers)
    assert [len(consumer.owned) for consumer in consumers] == [1, 1, 1, 1]


def test_a_group_may_have_settings_of_its_own() -> None:
    from penstock.metadata import ResourceType
    from penstock.wire.messages.metadata_records import ConfigRecord

    cluster = Cluster(orders=1)
    cluster.driver.change_metadata(
        ConfigRecord(ResourceType.GROUP, GROUP, "consumer.heartbeat.interval.ms", "7000"),
        ConfigRecord(ResourceType.GROUP, GROUP, "consumer.session.timeout.ms", "1000000"),
    )
    assert cluster.join("m").heartbeat_interval_ms == 7_000
    cluster.advance(59_999)
    assert list(cluster.group.members) == ["m"], "the broker's maximum is a minute"
    cluster.advance(1)
    assert cluster.group.is_empty


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "  "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": SOME_PARTITION}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "cleverest"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_names": MORE_TOPICS_THAN_A_RECORD_HOLDS}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_request_that_is_refused_leaves_no_trace(fields: dict[str, object], error: ErrorCode) -> None:
    cluster = Cluster(orders=1)
    response = cluster.join(**{"member_id": "m", **fields})  # type: ignore[arg-type]
    assert response.error_code == error
    assert response.error_message
    assert cluster.shard.groups == {}
    assert cluster.driver.records == []
    assert ("session", GROUP, "m") not in cluster.driver.timers


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "unheard-of"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": 2}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": 99}, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_who_is_not_known_or_speaks_in_the_wrong_epoch_is_refused(fields: dict[str, object], error: ErrorCode) -> None:
    cluster = Cluster(orders=1)
    Consumer(cluster, "m").join()
    before = cluster.shard.durable_state()
    response = cluster.heartbeat(**{"member_id": "m", "member_epoch": 1, **fields})  # type: ignore[arg-type]
    assert response.error_code == error
    assert cluster.shard.durable_state() == before


def test_a_member_whose_answer_was_lost_may_speak_in_the_epoch_before() -> None:
    cluster = Cluster(orders=2)
    first, second = Consumer(cluster, "a"), Consumer(cluster, "b")
    first.join()
    first.settle()
    second.join()
    first.beat()
    first.settle()
    first.lose_an_answer()
    assert first.epoch == 1
    assert cluster.group.members["a"].current.epoch == 2
    assert first.beat().error_code == 0
    assert first.epoch == 2
    response = cluster.heartbeat(
        member_id="a",
        member_epoch=1,
        topic_partitions=[ConsumerGroupHeartbeatRequestTopicPartitions(cluster.topic_id("orders"), [0, 1])],
    )
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH, "it owns more than it may"


def test_a_member_that_was_fenced_may_start_again_under_its_id() -> None:
    cluster = Cluster(orders=2)
    consumer = Consumer(cluster, "a")
    consumer.join()
    consumer.settle()
    consumer.beat()
    response = consumer.join()
    assert response.error_code == 0
    consumer.settle()
    assert owned_by_all([consumer]) == all_partitions(cluster, "orders")


def test_a_group_that_is_full_takes_nobody_but_its_members() -> None:
    cluster = Cluster(replace(CONFIG, group_consumer_max_size=2), orders=1)
    assert cluster.join("a").error_code == 0
    assert cluster.join("b").error_code == 0
    assert cluster.join("c").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert cluster.join("a").error_code == 0
    assert cluster.heartbeat(member_id="b", member_epoch=2).error_code == 0


# -- after a restart ---------------------------------------------------------------------------------------------------


def test_members_go_on_after_a_restart_as_if_nothing_had_happened() -> None:
    cluster = Cluster(orders=6)
    consumers = [Consumer(cluster, f"m{i}") for i in range(3)]
    for consumer in consumers:
        consumer.join()
    rounds(consumers)
    owned = [dict(consumer.owned) for consumer in consumers]
    epochs = [consumer.epoch for consumer in consumers]
    cluster.restart()
    rounds(consumers)
    assert [consumer.owned for consumer in consumers] == owned
    assert [consumer.epoch for consumer in consumers] == epochs


def test_members_that_do_not_come_back_after_a_restart_expire() -> None:
    cluster = Cluster(orders=6)
    cluster.join("a")
    cluster.restart()
    cluster.advance(SESSION_TIMEOUT_MS - 1)
    assert list(cluster.group.members) == ["a"]
    cluster.advance(1)
    assert cluster.group.is_empty


def test_the_rebalance_timeout_runs_again_after_a_restart() -> None:
    cluster = Cluster(orders=2)
    stubborn = Consumer(cluster, "a", rebalance_timeout_ms=20_000)
    stubborn.join()
    stubborn.settle()
    cluster.join("b")
    stubborn.beat()
    cluster.restart()
    cluster.advance(20_000)
    assert list(cluster.group.members) == ["b"]
