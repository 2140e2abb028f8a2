"""ListOffsets (2): the first or last offset of a log, or the offset for a timestamp.

Served: v1–v11. v2 isolation level, v4 leader epochs (KIP-320), v5 OFFSET_NOT_AVAILABLE (KIP-207), v6 flexible,
v7 the offset of the largest timestamp (KIP-734), v8 the earliest local offset (KIP-405), v9 the last tiered offset
(KIP-1005), v10 a timeout (KIP-1075), v11 the earliest offset that waits for its tier (KIP-1023).
A partition that is named twice is refused, as in Kafka.
Consumers are told of the log up to the high watermark, those with isolation level 1 (`read_committed`) up to the last
stable offset: the end before the first open transaction. No tier holds data yet, so the earliest local offset is the
earliest, and there is no tiered one (-1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.broker.replicas.partition import Partition
from penstock.log import Log, TimeSearch
from penstock.replication import Leader
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
OLDEST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
UNKNOWN = -1
READ_COMMITTED = 1
AT_ONCE_MAX = 200
"""Partitions that are looked up without yielding to the loop."""


def serve(
    node: Node, request: Request, body: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    if request.gate.authorizer is not None:
        return serve_allowed(node, request, body)
    return find(node, request, body)


async def serve_allowed(node: Node, request: Request, body: ListOffsetsRequest) -> ListOffsetsResponse:
    body.topics, denied = request.split(Operation.DESCRIBE, ResourceKind.TOPIC, body.topics, lambda topic: topic.name)
    response = find(node, request, body)
    response = response if isinstance(response, ListOffsetsResponse) else await response
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    response.topics += [
        ListOffsetsTopicResponse(name=topic.name, partitions=[refusal(entry, code) for entry in topic.partitions])
        for topic in denied
    ]
    return response


def find(
    node: Node, request: Request, body: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    committed = body.isolation_level == READ_COMMITTED
    if sum(len(topic.partitions) for topic in body.topics) <= AT_ONCE_MAX and all(
        entry.timestamp in (LATEST, EARLIEST) for topic in body.topics for entry in topic.partitions
    ):
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        at_end(
                            node.table.find(topic.name.encode(), entry.partition_index),
                            entry,
                            request.version,
                            committed,
                        )
                        for entry in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )
    return search(node, request, body)


async def search(node: Node, request: Request, body: ListOffsetsRequest) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    with request.slices() as slices:
        asked: Counter[tuple[str, int]] = Counter()
        for topic in body.topics:
            asked.update((topic.name, entry.partition_index) for entry in topic.partitions)
            await slices.breathe()
        for topic in body.topics:
            answers = []
            for entry in topic.partitions:
                await slices.breathe()
                if asked[topic.name, entry.partition_index] > 1:
                    answers.append(refusal(entry, ErrorCode.INVALID_REQUEST))
                else:
                    partition = node.table.find(topic.name.encode(), entry.partition_index)
                    committed = body.isolation_level == READ_COMMITTED
                    answers.append(await found(partition, entry, request.version, committed))
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


async def found(
    partition: Partition | None, entry: ListOffsetsPartition, version: int, committed: bool
) -> ListOffsetsPartitionResponse:
    if entry.timestamp in (LATEST, EARLIEST):
        return at_end(partition, entry, version, committed)
    try:
        return await at_time(partition, entry, version, committed)
    except KafkaError as error:
        return refusal(entry, error.code)
    except OSError:
        gone = partition is None or partition.retired
        return refusal(entry, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.KAFKA_STORAGE_ERROR)


def at_end(
    partition: Partition | None, entry: ListOffsetsPartition, version: int, committed: bool
) -> ListOffsetsPartitionResponse:
    try:
        log, leader = checked(partition, entry).led()
        if entry.timestamp == LATEST:
            check_end_is_known(leader, version)
    except KafkaError as error:
        return refusal(entry, error.code)
    offset = readable_end(log, leader, committed) if entry.timestamp == LATEST else log.start_offset
    return answer(partition, entry, UNKNOWN, offset)


async def at_time(
    partition: Partition | None, entry: ListOffsetsPartition, version: int, committed: bool
) -> ListOffsetsPartitionResponse:
    partition = checked(partition, entry)
    log, leader = partition.led()
    timestamp = entry.timestamp
    if timestamp < 0:
        if timestamp not in OLDEST_VERSION_OF or version < OLDEST_VERSION_OF[timestamp]:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if timestamp in (EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
            return answer(partition, entry, UNKNOWN, log.start_offset if timestamp == EARLIEST_LOCAL else UNKNOWN)
        if timestamp == LATEST_TIERED:
            return refusal(entry, ErrorCode.NONE)
        found = await TimeSearch(log).max_timestamp_offset(readable_end(log, leader, committed))
    else:
        found = await TimeSearch(log).offset_for_timestamp(timestamp, readable_end(log, leader, committed))
    if found is None:
        check_end_is_known(leader, version)
        return refusal(entry, ErrorCode.NONE)
    return ListOffsetsPartitionResponse(
        partition_index=entry.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def readable_end(log: Log, leader: Leader, committed: bool) -> int:
    return log.last_stable_offset(leader.high_watermark) if committed else leader.high_watermark


def checked(partition: Partition | None, entry: ListOffsetsPartition) -> Partition:
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition.led()
    partition.check_epoch(entry.current_leader_epoch)
    return partition


def check_end_is_known(leader: Leader, version: int) -> None:
    """Whether a new leader's high watermark is still behind: answering it would send clients backwards (KIP-207)."""
    if leader.high_watermark < leader.epoch_start:
        old = ErrorCode.LEADER_NOT_AVAILABLE
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else old)


def answer(
    partition: Partition | None, entry: ListOffsetsPartition, timestamp: int, offset: int
) -> ListOffsetsPartitionResponse:
    assert partition is not None
    assert partition.log is not None
    return ListOffsetsPartitionResponse(
        partition_index=entry.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=partition.log.epoch_of(offset),
    )


def refusal(entry: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    """An answer without an offset: there was an error, or no offset matches."""
    return ListOffsetsPartitionResponse(
        partition_index=entry.partition_index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
    )
