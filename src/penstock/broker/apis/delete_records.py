"""DeleteRecords (21): move a partition's log start forward; what lies before it is gone for readers.

Served: v0–v2 (v2 is flexible). Offset -1 means the high watermark. The new start is durable before it is answered, and
all in-sync replicas have it: whichever of them leads next, what is gone stays gone.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.broker.replicas.partition import Partition
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
REPLICAS_POLL_MS = 10


async def serve(node: Node, request: Request, body: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    moved: list[tuple[Partition, DeleteRecordsPartitionResult]] = []
    slices = Slices(node.runtime)
    for topic in body.topics:
        results = []
        for entry in topic.partitions:
            await slices.breathe()
            try:
                request.check(Operation.DELETE, ResourceKind.TOPIC, topic.name)
                partition, low = start_at(node, topic.name, entry.partition_index, entry.offset)
                result = DeleteRecordsPartitionResult(partition_index=entry.partition_index, low_watermark=low)
                moved.append((partition, result))
                results.append(result)
            except KafkaError as error:
                results.append(
                    DeleteRecordsPartitionResult(
                        partition_index=entry.partition_index, low_watermark=-1, error_code=error.code
                    )
                )
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if moved:
        await node.manager.checkpoint_start_offsets()
        await followed(node, moved, body.timeout_ms)
    return response


async def followed(node: Node, moved: list[tuple[Partition, DeleteRecordsPartitionResult]], timeout_ms: int) -> None:
    """Until the in-sync replicas start there, too; those that do not in time are answered with an error."""
    deadline_ms = node.runtime.now_ms() + timeout_ms
    slices = Slices(node.runtime)
    for partition, result in moved:
        await slices.breathe()
        while (error := behind(partition, result.low_watermark)) is not None:
            if error != ErrorCode.REQUEST_TIMED_OUT or node.runtime.now_ms() >= deadline_ms:
                result.error_code = error
                result.low_watermark = -1
                break
            await node.runtime.sleep(REPLICAS_POLL_MS)


def behind(partition: Partition, start: int) -> ErrorCode | None:
    """The error for a partition if some in-sync replica still has records before `start`; None otherwise."""
    leader = partition.leader
    if leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.REQUEST_TIMED_OUT if leader.low_watermark < start else None


def start_at(node: Node, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    partition = node.table.find(topic.encode(), index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log, leader = partition.led()
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} has no delete in it")
    wanted = leader.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0 or wanted > leader.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if wanted > log.start_offset:
        log.trimmer.advance_start_offset(wanted)
        partition.start_moved()
    return partition, log.start_offset
