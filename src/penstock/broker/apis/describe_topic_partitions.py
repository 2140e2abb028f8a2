"""DescribeTopicPartitions (75): like Metadata, in pages, with the eligible leader replicas (KIP-966).

Served: v0. Topics come in name order; `response_partition_limit` and `max.request.partition.size.limit` bound a page,
and a cursor says where the next one begins.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker.net.access import ALL_TOPIC_OPERATIONS
from penstock.broker.net.slices import in_slices
from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.metadata import PartitionState, is_internal
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.wire.uuids import ZERO_UUID


async def serve(
    node: Node, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    return await in_slices(context.slices(), describe(node, request))


def describe(
    node: Node, request: DescribeTopicPartitionsRequest
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    image = node.image
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                for topic in request.topics
            ]
        )
    names = sorted(dict.fromkeys(topic.name for topic in request.topics)) or image.topic_names()
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = min(max(request.response_partition_limit, 1), node.config.max_request_partition_size_limit)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        yield
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        topic = image.topic(name)
        if topic is None:
            if request.topics:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                response.topics.append(
                    DescribeTopicPartitionsResponseTopic(
                        error_code=unknown,
                        name=name,
                        topic_id=ZERO_UUID,
                        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
                    )
                )
            continue
        if left <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=first)
            break
        first = min(first, len(topic.partitions))
        last = min(len(topic.partitions), first + left)
        partitions = []
        for index in range(first, last):
            yield
            partitions.append(described(node, index, topic.partitions[index]))
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=is_internal(name),
                partitions=partitions,
                topic_authorized_operations=ALL_TOPIC_OPERATIONS,
            )
        )
        left -= last - first
        if last < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=last)
            break
    return response


def described(node: Node, index: int, state: PartitionState) -> DescribeTopicPartitionsResponsePartition:
    led = node.is_live(state.leader)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if led else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=node.offline(state.replicas),
    )
