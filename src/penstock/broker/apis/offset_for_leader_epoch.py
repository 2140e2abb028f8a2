"""OffsetForLeaderEpoch (23): where the records of a leader epoch end, so that readers can detect a truncated log.

Served: v2–v4. v2 lets the caller state the epoch it believes in (KIP-320), v3 the replica id, v4 is flexible.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator

from penstock.broker.net.request import Request
from penstock.broker.net.slices import at_once, in_slices
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

AT_ONCE_MAX = 200
"""Partitions that are looked up without giving the loop back meanwhile."""


def serve(
    node: Node, request: Request, body: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    work = ends_of_epochs(node, request, body)
    if sum(len(topic.partitions) for topic in body.topics) <= AT_ONCE_MAX:
        return at_once(work)
    return in_slices(request.slices(), work)


def ends_of_epochs(
    node: Node, request: Request, body: OffsetForLeaderEpochRequest
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    is_member = request.permits(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
    response = OffsetForLeaderEpochResponse()
    for topic in body.topics:
        ends = []
        for entry in topic.partitions:
            yield
            ends.append(end_of_epoch(node, request, is_member, topic.topic, entry))
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return response


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
