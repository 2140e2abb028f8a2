"""Describe, list, delete; who may commit and fetch offsets."""

from __future__ import annotations

import pytest

from coordinators.consumer.harness import CONFIG, GROUP, Cluster, Consumer, answered, rounds
from penstock.coordinators.groups import RequestInfo
from penstock.coordinators.groups.config import replace
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_groups import DeletableGroupResult
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)


def delete(cluster: Cluster) -> int:
    call = cluster.driver.call(lambda turn, ticket: cluster.shard.delete_group(turn, ticket, GROUP))
    return answered(call, DeletableGroupResult).error_code


def commit(
    cluster: Cluster, member_id: str, epoch: int, partition: int = 0, *, version: int = 9, topic: str = "orders"
) -> int:
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                name=topic, partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=5)]
            )
        ],
    )
    info = RequestInfo(version, "client", "/127.0.0.1")
    call = cluster.driver.call(lambda turn, ticket: cluster.shard.offset_commit(turn, ticket, info, request))
    return answered(call, OffsetCommitResponse).topics[0].partitions[0].error_code


def fetch(cluster: Cluster, member_id: str | None, epoch: int) -> int:
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=topics)
    info = RequestInfo(9, "client", "/127.0.0.1")
    call = cluster.driver.call(lambda turn, ticket: cluster.shard.offset_fetch_group(turn, ticket, info, request))
    return answered(call, OffsetFetchResponseGroup).error_code


def test_a_group_is_described_with_what_members_own_and_shall_own() -> None:
    cluster = Cluster(orders=2)
    first = Consumer(cluster, "a", instance_id="i", assignor="range")
    first.join()
    first.settle()
    Consumer(cluster, "b", [], regex="ord.*").join()
    described = cluster.describe()
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Reconciling", "range")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    one, two = described.members
    assert (one.member_id, one.instance_id, one.member_epoch, one.member_type) == ("a", "i", 1, 1)
    assert (one.client_id, one.client_host) == ("client", "/127.0.0.1")
    assert [(t.topic_name, t.partitions) for t in one.assignment.topic_partitions] == [("orders", [0, 1])]
    assert [(t.topic_name, t.partitions) for t in one.target_assignment.topic_partitions] == [("orders", [0])]
    assert (two.subscribed_topic_names, two.subscribed_topic_regex) == ([], "ord.*")
    assert two.assignment.topic_partitions == []


def test_a_group_that_is_not_there_is_described_as_such() -> None:
    described = Cluster().describe("nowhere")
    assert (described.group_id, described.error_code) == ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND)
    assert described.error_message == "Group nowhere not found."


def test_groups_are_listed_with_state_and_type() -> None:
    cluster = Cluster(replace(CONFIG, group_consumer_assignment_interval_ms=1_000), orders=2)
    cluster.join("a")
    cluster.join("b")
    (listed,) = cluster.listed()
    assert (listed.group_id, listed.protocol_type) == (GROUP, "consumer")
    assert (listed.group_state, listed.group_type) == ("Assigning", "consumer")
    assert cluster.listed(types=["Consumer"]) == [listed]
    assert cluster.listed(types=["classic"]) == []
    assert cluster.listed(states=["stable"]) == []
    assert cluster.listed(states=["assigning"]) == [listed]


def test_an_empty_group_can_be_deleted_and_nothing_of_it_stays() -> None:
    cluster = Cluster(orders=2)
    consumer = Consumer(cluster, "a", [], regex="ord.*")
    consumer.join()
    assert delete(cluster) == ErrorCode.NON_EMPTY_GROUP
    consumer.leave()
    assert delete(cluster) == ErrorCode.NONE
    assert cluster.shard.groups == {}
    newest = {record.key: record.value for record in cluster.driver.records}
    assert set(newest.values()) == {None}
    assert cluster.reloaded().groups == {}
    assert delete(cluster) == ErrorCode.GROUP_ID_NOT_FOUND


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_a_member_commits_in_its_epoch() -> None:
    cluster = Cluster(orders=2)
    cluster.join("a")
    assert commit(cluster, "a", 1) == ErrorCode.NONE
    assert commit(cluster, "a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(cluster, "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(cluster, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(cluster, "a", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION


def test_a_commit_of_an_older_epoch_counts_where_the_member_has_owned_the_partition_since() -> None:
    cluster = Cluster(orders=4)
    first, second = Consumer(cluster, "a"), Consumer(cluster, "b")
    first.join()
    second.join()
    rounds([first, second])
    cluster.heartbeat(member_id="b", member_epoch=-1)
    second.die()
    rounds([first])
    kept = sorted(cluster.group.members["a"].current.assigned[cluster.topic_id("orders")].items())
    epochs = dict(kept)
    assert sorted(epochs.values()) == [1, 1, 3, 3]
    since_first = next(partition for partition, epoch in kept if epoch == 1)
    new = next(partition for partition, epoch in kept if epoch == 3)
    assert commit(cluster, "a", 1, since_first) == ErrorCode.NONE
    assert commit(cluster, "a", 2, since_first) == ErrorCode.NONE
    assert commit(cluster, "a", 2, new) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(cluster, "a", 3, new) == ErrorCode.NONE


def test_anyone_may_commit_to_an_empty_group_without_an_epoch() -> None:
    cluster = Cluster(orders=2)
    consumer = Consumer(cluster, "a")
    consumer.join()
    consumer.leave()
    assert commit(cluster, "", -1) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("a", 1, ErrorCode.NONE),
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_fetches_offsets_in_its_epoch(member_id: str | None, epoch: int, error: ErrorCode) -> None:
    cluster = Cluster(orders=2)
    cluster.join("a")
    assert fetch(cluster, member_id, epoch) == error
