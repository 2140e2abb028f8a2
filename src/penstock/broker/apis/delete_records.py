"""DeleteRecords (21): move a partition's log start forward; what lies before it is gone for readers.

Served: v0–v2 (v2 is flexible). Offset -1 means the high watermark. The new start is durable before it is answered.
"""

from __future__ import annotations

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


async def serve(node: Node, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    moved = False
    for topic in request.topics:
        results = []
        for entry in topic.partitions:
            try:
                low = start_at(node, topic.name, entry.partition_index, entry.offset)
                moved = True
                results.append(DeleteRecordsPartitionResult(partition_index=entry.partition_index, low_watermark=low))
            except KafkaError as error:
                results.append(
                    DeleteRecordsPartitionResult(
                        partition_index=entry.partition_index, low_watermark=-1, error_code=error.code
                    )
                )
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if moved:
        await node.manager.checkpoint_start_offsets()
    return response


def start_at(node: Node, topic: str, index: int, offset: int) -> int:
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
        log.advance_start_offset(wanted)
    return log.start_offset
