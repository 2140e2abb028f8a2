"""DescribeQuorum (55): who leads the metadata quorum, its voters and observers, and how far each of them is.

Served: v0–v2. v1 adds times (KIP-836), v2 directories, listeners and messages (KIP-853). Answered by the leader, since
only it knows how far the others are.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import CLUSTER_METADATA
from penstock.raft import ReplicaInfo
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)


def decide(node: ControllerNode, request: Request, body: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if node.quorum.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    known = len(body.topics) == 1 and body.topics[0].topic_name == CLUSTER_METADATA
    if not known or [data.partition_index for data in body.topics[0].partitions] != [0]:
        return DescribeQuorumResponse(
            error_message=None,
            topics=[
                DescribeQuorumResponseTopicData(
                    topic_name=topic.topic_name,
                    partitions=[
                        DescribeQuorumResponsePartitionData(
                            partition_index=data.partition_index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            error_message=f"Only {CLUSTER_METADATA}-0 is kept by a quorum.",
                        )
                        for data in topic.partitions
                    ],
                )
                for topic in body.topics
            ],
        )
    info = node.quorum.core.describe()
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=CLUSTER_METADATA,
                partitions=[
                    DescribeQuorumResponsePartitionData(
                        error_message=None,
                        leader_id=info.leader_id,
                        leader_epoch=info.epoch,
                        high_watermark=info.high_watermark,
                        current_voters=[described(node, replica) for replica in info.voters],
                        observers=[described(node, replica) for replica in info.observers],
                    )
                ],
            )
        ],
        nodes=[
            Node(
                node_id=voter.id,
                listeners=[Listener(name=at.name, host=at.host, port=at.port) for at in voter.endpoints],
            )
            for voter in node.quorum.core.voter_set.voters
        ],
    )


def described(node: ControllerNode, replica: ReplicaInfo) -> ReplicaState:
    own = replica.key == node.quorum.key
    return ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=node.runtime.wall_ms() if own else wall_ms(node, replica.last_fetch_ms),
        last_caught_up_timestamp=node.runtime.wall_ms() if own else wall_ms(node, replica.last_caught_up_ms),
    )


def wall_ms(node: ControllerNode, at_ms: float) -> int:
    """A moment of the monotonic clock, by the calendar."""
    return -1 if at_ms < 0 else round(node.runtime.wall_ms() - (node.runtime.now_ms() - at_ms))
