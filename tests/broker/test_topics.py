"""Topics as clients make, see, change and remove them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.session import TOPIC, Session, fetch_request, records_of, simulated, versions
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.uuids import ZERO_UUID

OTHER_ID = bytes(15) + b"\7"


def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)


async def refused(s: Session, wanted: CreatableTopic) -> ErrorCode:
    (result,) = (await s.call(CreateTopicsRequest(topics=[wanted]))).topics
    assert result.error_message, "an error says what to do"
    return ErrorCode(result.error_code)


# ---- CreateTopics


@simulated()
async def test_each_topic_of_a_request_succeeds_or_fails_on_its_own(s: Session) -> None:
    wanted = [topic("good"), topic("bad name"), topic("also.good", 3), topic("twice"), topic("twice")]
    answer = await s.call(CreateTopicsRequest(topics=wanted))
    assert {result.name: result.error_code for result in answer.topics} == {
        "good": ErrorCode.NONE,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "also.good": ErrorCode.NONE,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert await s.topics() == ["also.good", "good"]


@simulated()
async def test_what_cannot_be_created_is_refused(s: Session) -> None:
    await s.create("a.b")
    config = CreatableTopicConfig
    for wanted, error in (
        (topic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 2_000_000), ErrorCode.POLICY_VIOLATION),
        (topic("t", configs=[config(name="retention.ms", value="x")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[config(name="no.such.thing", value="1")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[config(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
        (
            topic("t", -1, -1, assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            topic("t", -1, -1, assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ):
        assert await refused(s, wanted) == error, wanted
    assert await s.topics() == ["a.b"]


@simulated()
async def test_partitions_may_be_placed_by_hand(s: Session) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=number, broker_ids=[1]) for number in range(3)]
    (result,) = (await s.call(CreateTopicsRequest(topics=[topic("t", -1, -1, assignments=assignments)]))).topics
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert len((await s.describe("t")).partitions) == 3


@simulated()
async def test_the_longest_name_there_is_can_be_used_and_deleted(s: Session) -> None:
    name = "x" * 249
    await s.create(name)
    await s.produce(name, b"x")
    assert await s.values(name) == [b"x"]
    await s.delete(name)
    assert await s.topics() == []


@simulated({"num.partitions": "4"})
async def test_defaults_are_the_brokers(s: Session) -> None:
    (result,) = (await s.call(CreateTopicsRequest(topics=[topic("t", -1, -1)]))).topics
    assert (result.num_partitions, result.replication_factor) == (4, 1)


@simulated()
async def test_a_topic_of_many_partitions_is_ready_when_it_is_answered(s: Session) -> None:
    await s.create("t", partitions=300)
    for partition in (0, 150, 299):
        assert (await s.produce("t", b"x", partition=partition)).error_code == 0
    assert len((await s.describe("t")).partitions) == 300


# ---- Metadata


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
@simulated({"num.partitions": "3"})
async def test_a_topic_that_is_asked_for_is_created_where_that_is_allowed(s: Session, version: int) -> None:
    answer = await s.call(MetadataRequest(topics=[MetadataRequestTopic(name="auto")]), version)
    (found,) = answer.topics
    assert (found.error_code, len(found.partitions)) == (0, 3)
    assert (await s.produce("auto", b"x")).error_code == 0
    if version >= 4:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="never")], allow_auto_topic_creation=False)
        assert (await s.call(request, version)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    bad = await s.call(MetadataRequest(topics=[MetadataRequestTopic(name="bad name")]), version)
    assert bad.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await s.topics() == ["auto"]


@simulated({"auto.create.topics.enable": "false"})
async def test_nothing_is_created_where_the_broker_forbids_it(s: Session) -> None:
    answer = await s.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await s.topics() == []


@simulated()
async def test_no_topics_are_asked_for_with_an_empty_list_and_all_with_none(s: Session) -> None:
    for name in ("b", "a", "c"):
        await s.create(name)
    assert (await s.call(MetadataRequest(topics=[]), 12)).topics == []
    assert len((await s.call(MetadataRequest(topics=[]), 0)).topics) == 3
    assert sorted(await s.topics()) == ["a", "b", "c"]


@simulated()
async def test_unknown_names_and_ids_are_told(s: Session) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=OTHER_ID), MetadataRequestTopic(name="x")],
        allow_auto_topic_creation=False,
    )
    by_id, by_name = (await s.call(request)).topics
    assert (by_id.error_code, by_id.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, OTHER_ID)
    assert (by_name.error_code, by_name.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x")


@pytest.mark.parametrize("version", [10, 11])
@simulated()
async def test_versions_that_cannot_look_up_ids_say_so(s: Session, version: int) -> None:
    topic_id = await s.create("t")
    for wanted in (MetadataRequestTopic(name=None, topic_id=topic_id), MetadataRequestTopic(name=None)):
        (found,) = (await s.call(MetadataRequest(topics=[wanted]), version)).topics
        assert found.error_code == ErrorCode.INVALID_REQUEST


@simulated({"num.partitions": "1000"})
async def test_creating_too_much_at_once_is_refused_per_topic(s: Session) -> None:
    wanted = [MetadataRequestTopic(name=f"t{number}") for number in range(11)]
    answer = await s.call(MetadataRequest(topics=wanted))
    assert {found.error_code for found in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    assert await s.topics() == []


@simulated()
async def test_a_topic_that_is_named_often_is_told_once(s: Session) -> None:
    """Else a small request makes an answer of any size."""
    await s.create("t", partitions=100)
    many = [MetadataRequestTopic(name="t")] * 1000
    answer = await s.call(MetadataRequest(topics=many))
    assert [found.name for found in answer.topics] == ["t"]


# ---- DeleteTopics


@simulated()
async def test_a_deleted_topic_is_gone_for_everyone(s: Session) -> None:
    topic_id = await s.create("t", partitions=2)
    await s.produce("t", b"x")
    await s.delete("t")
    assert (await s.produce("t", b"y")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await s.fetch("t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await s.call(fetch_request(topic_id), 16)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await s.describe("t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated()
async def test_a_topic_that_is_created_again_is_empty_and_another_one(s: Session) -> None:
    first_id = await s.create("t", retention_ms="1234")
    for round_number in range(3):
        for _ in range(5):
            await s.produce("t", b"round %d" % round_number)
        await s.delete("t")
        second_id = await s.create("t")
        assert second_id != first_id
        assert await s.values("t") == []
        assert (await s.produce("t", b"new")).base_offset == 0
        first_id = second_id
    config = s.node.served.quorum.image.config(TOPIC, "t")
    assert config == {}, "its settings went with the first one"


@simulated()
async def test_odd_deletions_are_refused(s: Session) -> None:
    topic_id = await s.create("t")
    for states, errors in (
        ([DeleteTopicState(name="t"), DeleteTopicState(name="t")], [ErrorCode.INVALID_REQUEST]),
        ([DeleteTopicState(name="t", topic_id=topic_id)], [ErrorCode.INVALID_REQUEST]),
        ([DeleteTopicState()], [ErrorCode.INVALID_REQUEST]),
        ([DeleteTopicState(topic_id=OTHER_ID)], [ErrorCode.UNKNOWN_TOPIC_ID]),
        ([DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic_id)], [ErrorCode.INVALID_REQUEST]),
    ):
        answer = await s.call(DeleteTopicsRequest(topics=states))
        assert [result.error_code for result in answer.responses] == errors, states
    assert await s.topics() == ["t"]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
@simulated({"delete.topic.enable": "false"})
async def test_deletion_can_be_forbidden(s: Session, version: int) -> None:
    await s.create("t")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], topic_names=["t"])
    (result,) = (await s.call(request, version)).responses
    expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert (result.name, result.error_code) == ("t", expected)
    assert await s.topics() == ["t"]


@simulated()
async def test_readers_finish_what_they_were_sent_of_a_deleted_topic(s: Session) -> None:
    await s.create("t")
    for _ in range(20):
        await s.produce("t", bytes(100_000))
    reader = await s.connect()
    s.world.network.slow("broker", "client", 50.0, one_way=True)
    answer = reader.send(fetch_request("t", partition_max_bytes=1 << 22), 12)
    await s.runtime.sleep(60)
    assert not answer.has_come
    await s.delete("t")
    assert len(records_of((await answer).responses[0].partitions[0])) == 20


# ---- CreatePartitions


@simulated()
async def test_partitions_that_cannot_be_added_are_refused(s: Session) -> None:
    await s.create("t", partitions=2)
    one = CreatePartitionsAssignment
    for wanted, error in (
        (CreatePartitionsTopic(name="t", count=2, assignments=None), ErrorCode.INVALID_PARTITIONS),
        (CreatePartitionsTopic(name="t", count=1, assignments=None), ErrorCode.INVALID_PARTITIONS),
        (CreatePartitionsTopic(name="t", count=-1, assignments=None), ErrorCode.INVALID_PARTITIONS),
        (CreatePartitionsTopic(name="x", count=3, assignments=None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (CreatePartitionsTopic(name="t", count=3, assignments=[]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatePartitionsTopic(name="t", count=3, assignments=[one([9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatePartitionsTopic(name="t", count=3, assignments=[one([])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ):
        (result,) = (await s.call(CreatePartitionsRequest(topics=[wanted]))).results
        assert result.error_code == error, wanted
        assert result.error_message
    assert len((await s.describe("t")).partitions) == 2


@simulated()
async def test_added_partitions_take_over_the_topics_settings_and_leave_records_where_they_are(s: Session) -> None:
    await s.create("t", partitions=1, max_message_bytes="200")
    await s.produce("t", b"stays")
    wanted = CreatePartitionsTopic(name="t", count=3, assignments=[CreatePartitionsAssignment([1])] * 2)
    (result,) = (await s.call(CreatePartitionsRequest(topics=[wanted]))).results
    assert result.error_code == 0
    assert await s.values("t", 0) == [b"stays"]
    assert (await s.produce("t", bytes(300), partition=2)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await s.produce("t", b"x", partition=2)).base_offset == 0


# ---- DescribeTopicPartitions


@simulated()
async def test_pages_follow_each_other_without_gap_or_overlap(s: Session) -> None:
    for name, partitions in (("b", 5), ("a", 3), ("c", 1)):
        await s.create(name, partitions=partitions)
    for limit in (1, 2, 3, 4, 100):
        seen: list[tuple[str, int]] = []
        cursor = None
        while True:
            request = DescribeTopicPartitionsRequest(response_partition_limit=limit, cursor=cursor)
            answer = await s.call(request)
            page = [(found.name, part.partition_index) for found in answer.topics for part in found.partitions]
            assert 0 < len(page) <= limit
            seen += page
            if answer.next_cursor is None:
                break
            cursor = DescribeTopicPartitionsRequestCursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )
        assert seen == [("a", n) for n in range(3)] + [("b", n) for n in range(5)] + [("c", 0)], limit


@simulated({"max.request.partition.size.limit": "4"})
async def test_the_broker_limits_pages_itself(s: Session) -> None:
    await s.create("t", partitions=10)
    answer = await s.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]))
    assert len(answer.topics[0].partitions) == 4
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 4)


@pytest.mark.parametrize(("name", "partition"), [("t", 99), ("zzz", 0), ("", 0), ("t", 1 << 30)])
@simulated()
async def test_a_cursor_that_points_nowhere_ends(s: Session, name: str, partition: int) -> None:
    await s.create("t", partitions=2)
    cursor = DescribeTopicPartitionsRequestCursor(topic_name=name, partition_index=partition)
    answer = await s.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor))
    told = [part.partition_index for found in answer.topics for part in found.partitions]
    assert set(told) <= {0, 1}
    assert len(told) == len(set(told))
    assert answer.next_cursor is None


@simulated()
async def test_a_cursor_before_the_first_partition_is_refused(s: Session) -> None:
    await s.create("t", partitions=2)
    cursor = DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=-1)
    answer = await s.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor))
    assert [(found.name, found.error_code) for found in answer.topics] == [("t", ErrorCode.INVALID_REQUEST)]


@simulated()
async def test_unknown_topics_are_told_in_their_page(s: Session) -> None:
    await s.create("t")
    names = [TopicRequest(name="x"), TopicRequest(name="t"), TopicRequest(name="t")]
    answer = await s.call(DescribeTopicPartitionsRequest(topics=names))
    assert [(found.name, found.error_code, found.topic_id == ZERO_UUID) for found in answer.topics] == [
        ("t", ErrorCode.NONE, False),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
    ]
