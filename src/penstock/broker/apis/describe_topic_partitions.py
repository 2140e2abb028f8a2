"""DescribeTopicPartitions (75): like Metadata, in pages, with the eligible leader replicas (KIP-966).

Served: v0. Topics come in name order; `response_partition_limit` and `max.request.partition.size.limit` bound a page,
and a cursor says where the next one begins.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker.net.request import Request
from penstock.broker.net.slices import in_slices
from penstock.broker.node import Node
from penstock.metadata import PartitionState, is_internal
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.wire.uuids import ZERO_UUID


async def serve(node: Node, request: Request, body: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return await in_slices(request.slices(), describe(node, request, body))


def describe(
    node: Node, request: Request, body: DescribeTopicPartitionsRequest
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    image = node.image
    cursor = body.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    names = sorted(dict.fromkeys(topic.name for topic in body.topics)) or image.topic_names()
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = min(max(body.response_partition_limit, 1), node.config.max_request_partition_size_limit)
    response = DescribeTopicPartitionsResponse()
    allowed, denied = request.split(Operation.DESCRIBE, ResourceKind.TOPIC, names, lambda name: name)
    if body.topics:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics += [DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in denied]
    for name in allowed:
        yield
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        topic = image.topic(name)
        if topic is None:
            if body.topics:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                response.topics.append(
                    DescribeTopicPartitionsResponseTopic(
                        error_code=unknown,
                        name=name,
                        topic_id=ZERO_UUID,
                        topic_authorized_operations=request.operations(ResourceKind.TOPIC, name),
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
                topic_authorized_operations=request.operations(ResourceKind.TOPIC, name),
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
