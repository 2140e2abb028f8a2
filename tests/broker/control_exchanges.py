"""What a cluster of one answers to the requests that administer a cluster, in every version."""

from __future__ import annotations

from broker.session import Session
from broker.transactional import marker_request
from penstock.metadata import CLUSTER_METADATA
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

STRANGER = b"\x01" * 16


async def elect_leaders(s: Session, version: int, topic_id: bytes) -> None:
    wanted = [TopicPartitions(topic="t", partitions=[0, 7]), TopicPartitions(topic="nowhere", partitions=[0])]
    answer = await s.call(ElectLeadersRequest(topic_partitions=wanted), version)
    found = [
        (result.topic, partition.partition_id, partition.error_code)
        for result in answer.replica_election_results
        for partition in result.partition_result
    ]
    assert answer.error_code == 0
    assert found == [("t", 0, 84), ("t", 7, 3), ("nowhere", 0, 3)]
    everything = await s.call(ElectLeadersRequest(topic_partitions=None), version)
    assert (everything.error_code, everything.replica_election_results) == (0, [])
    if version >= 1:
        odd = await s.call(ElectLeadersRequest(election_type=9, topic_partitions=None), version)
        assert odd.error_code == ErrorCode.INVALID_REQUEST


async def alter_partition_reassignments(s: Session, version: int, topic_id: bytes) -> None:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name="t",
                partitions=[
                    ReassignablePartition(partition_index=0, replicas=[1]),
                    ReassignablePartition(partition_index=7, replicas=[1]),
                ],
            ),
            ReassignableTopic(name="nowhere", partitions=[ReassignablePartition(partition_index=0)]),
        ],
        allow_replication_factor_change=False,
    )
    answer = await s.call(request, version)
    found = [(topic.name, p.partition_index, p.error_code) for topic in answer.responses for p in topic.partitions]
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.allow_replication_factor_change == (version == 0)
    assert found == [("t", 0, 0), ("t", 7, 3), ("nowhere", 0, 3)]
    assert answer.responses[0].partitions[0].error_message is None


async def write_txn_markers(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(marker_request(0, 7, committed=True), version)
    (marker,) = answer.markers
    (topic,) = marker.topics
    assert (marker.producer_id, topic.name) == (7, "t")
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, 0), (7, 3)]


async def list_partition_reassignments(s: Session, version: int, topic_id: bytes) -> None:
    wanted = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]
    for topics in (None, [], wanted):
        answer = await s.call(ListPartitionReassignmentsRequest(topics=topics), version)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


async def describe_quorum(s: Session, version: int, topic_id: bytes) -> None:
    def asked(topic: str) -> DescribeQuorumRequest:
        partitions = [DescribeQuorumRequestPartitionData()]
        return DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name=topic, partitions=partitions)])

    answer = await s.call(asked(CLUSTER_METADATA), version)
    (data,) = answer.topics[0].partitions
    assert (answer.error_code, data.error_code, data.leader_id) == (0, 0, 1)
    assert data.leader_epoch >= 1
    (voter,) = data.current_voters
    assert (voter.replica_id, data.observers) == (1, [])
    assert voter.log_end_offset >= data.high_watermark > 0
    assert (voter.last_fetch_timestamp > 0) == (version >= 1)
    assert [node.node_id for node in answer.nodes] == ([1] if version >= 2 else [])
    (other,) = (await s.call(asked("t"), version)).topics[0].partitions
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def update_features(s: Session, version: int, topic_id: bytes) -> None:
    def wanted(level: int) -> list[FeatureUpdateKey]:
        return [FeatureUpdateKey(feature="metadata.version", max_version_level=level)]

    same = await s.call(UpdateFeaturesRequest(feature_updates=wanted(25)), version)
    assert same.error_code == 0
    assert [result.feature for result in same.results] == (["metadata.version"] if version < 2 else [])
    newer = await s.call(UpdateFeaturesRequest(feature_updates=wanted(26)), version)
    assert newer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "only supports versions 25-25" in newer.error_message
    twice = await s.call(UpdateFeaturesRequest(feature_updates=[*wanted(25), *wanted(25)]), version)
    assert twice.error_code == ErrorCode.INVALID_REQUEST


async def unregister_broker(s: Session, version: int, topic_id: bytes) -> None:
    unknown = await s.call(UnregisterBrokerRequest(broker_id=9), version)
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    living = await s.call(UnregisterBrokerRequest(broker_id=1), version)
    assert living.error_code == ErrorCode.INVALID_REQUEST
    assert "is in service" in living.error_message


async def add_raft_voter(s: Session, version: int, topic_id: bytes) -> None:
    listeners = [Listener(name="CONTROLLER", host="other", port=9192)]
    request = AddRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=STRANGER, listeners=listeners)
    answer = await s.call(request, version)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "No controller answers at other:9192" in answer.error_message
    request.voter_id = 1
    assert (await s.call(request, version)).error_code == ErrorCode.DUPLICATE_VOTER
    request.listeners = []
    assert (await s.call(request, version)).error_code == ErrorCode.INVALID_REQUEST
    request.cluster_id = "other"
    assert (await s.call(request, version)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


async def remove_raft_voter(s: Session, version: int, topic_id: bytes) -> None:
    nobody = RemoveRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=STRANGER)
    assert (await s.call(nobody, version)).error_code == ErrorCode.VOTER_NOT_FOUND
    key = s.node.served.quorum.key
    last = RemoveRaftVoterRequest(cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id)
    answer = await s.call(last, version)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "last voter" in answer.error_message


CONTROL_EXCHANGES = {
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    ApiKey.DESCRIBE_QUORUM: describe_quorum,
    ApiKey.UPDATE_FEATURES: update_features,
    ApiKey.UNREGISTER_BROKER: unregister_broker,
    ApiKey.ADD_RAFT_VOTER: add_raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: remove_raft_voter,
}
