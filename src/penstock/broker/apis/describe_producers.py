"""DescribeProducers (61): the producers whose state a partition keeps (KIP-664).

Served: v0. Any replica that this broker has can be asked, as in Kafka: `kafka-transactions --broker-id` compares them.
`current_txn_start_offset` is the first offset of a producer's open transaction in this partition, -1 if none is open;
`coordinator_epoch` is that of the last marker.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


async def serve(node: Node, request: Request, body: DescribeProducersRequest) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    slices = Slices(node.runtime)
    for topic in body.topics:
        answered = TopicResponse(name=topic.name)
        # Each once, however often it was named: else a small request makes an answer of any size.
        allowed = request.allowed(Operation.READ, ResourceKind.TOPIC, topic.name)
        for index in dict.fromkeys(topic.partition_indexes):
            if allowed:
                answered.partitions.append(described(node, topic.name, index))
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                answered.partitions.append(PartitionResponse(partition_index=index, error_code=code))
            await slices.breathe()
        response.topics.append(answered)
    return response


def described(node: Node, topic: str, index: int) -> PartitionResponse:
    partition = node.table.find(topic.encode(), index)
    if partition is None:
        return PartitionResponse(partition_index=index, error_code=missing(node, topic, index))
    if partition.log is None:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_append_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_first_offset,
            )
            for producer_id, entry in partition.log.producers.entries()
        ],
    )


def missing(node: Node, topic: str, index: int) -> ErrorCode:
    """A partition that others have is to be asked for there; one that nobody has does not exist."""
    known = node.image.topic(topic)
    elsewhere = known is not None and 0 <= index < len(known.partitions)
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
