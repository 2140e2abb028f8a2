"""OffsetForLeaderEpoch (23): where the records of a leader epoch end, so that readers can detect a truncated log.

Served: v2–v4. v2 lets the caller state the epoch it believes in (KIP-320), v3 the replica id, v4 is flexible.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def serve(
    node: Node, request: Request, body: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    is_member = request.allowed_on_cluster(Operation.CLUSTER_ACTION)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[end_of_epoch(node, request, is_member, topic.topic, entry) for entry in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def end_of_epoch(
    node: Node, request: Request, is_member: bool, topic: str, entry: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        if not is_member:
            request.check(Operation.DESCRIBE, ResourceKind.TOPIC, topic)
        partition = node.table.find(topic.encode(), entry.partition)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log, _ = partition.led()
        partition.check_epoch(entry.current_leader_epoch)
        epoch, end_offset = log.epoch_end_offset(entry.leader_epoch)
        return EpochEndOffset(partition=entry.partition, leader_epoch=epoch, end_offset=end_offset)
    except KafkaError as error:
        return EpochEndOffset(partition=entry.partition, error_code=error.code, leader_epoch=-1, end_offset=-1)
