"""TxnOffsetCommit: offsets that take effect when a producer's transaction commits.

The offsets are records of the producer in the group's partition, and pending until the marker arrives
(`penstock.coordinators.groups.offsets`). From version 3 on the request names the member of the group (KIP-447), so a
consumer that was removed from its group can commit no offsets through its producer either. Older requests name nobody
and are accepted. Who calls this has made sure that the partition belongs to an open transaction of the producer.
"""

from __future__ import annotations

from itertools import chain

from penstock.coordinators.groups.classic_group import ClassicGroup
from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.records import (
    BATCH_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    offset_key_prefix,
    offset_value,
    pack_partition,
)
from penstock.coordinators.groups.table import AnyGroup, GroupTable
from penstock.coordinators.shard import Producer, ProducerEpoch, ProducerId, RequestInfo, Ticket, Turn
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NOBODY = -1
"""The generation of a request that names no member."""


class TransactionalCommits:
    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def commit(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: TxnOffsetCommitRequest) -> None:
        """The host was given the producer as the request's claim."""
        table = self._table
        group = table.find_managed(turn, request.group_id)
        error = self._check(group, request)
        if error:
            turn.reply(ticket, refused(request.topics, error))
            return
        records: list[tuple[bytes, bytes]] = []
        topics = [self._topic(turn, request.group_id, topic, records) for topic in request.topics]
        if self._is_too_large(records):
            turn.reply(ticket, refused(request.topics, ErrorCode.INVALID_COMMIT_OFFSET_SIZE))
            return
        if records:
            first_offset = turn.end_offset
            producer_id = ProducerId(request.producer_id)
            turn.append_as(Producer(producer_id, ProducerEpoch(request.producer_epoch)), records)
            # The string that is there already, not another one with the same letters.
            group_id = request.group_id if group is None else group.group_id
            for number, (key, value) in enumerate(records):
                table.offsets.put_pending(group_id, producer_id, first_offset + number, key, value)
        turn.reply(ticket, TxnOffsetCommitResponse(topics=topics))

    def _topic(
        self, turn: Turn, group_id: str, topic: TxnOffsetCommitRequestTopic, records: list[tuple[bytes, bytes]]
    ) -> TxnOffsetCommitResponseTopic:
        """Collect the records of one topic, and its part of the answer."""
        image = turn.image.topic(topic.name)
        count = 0 if image is None else len(image.partitions)
        metadata_max = self._table.config.offset_metadata_max_bytes
        prefix = offset_key_prefix(group_id, topic.name)
        results: list[TxnOffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            index, metadata = partition.partition_index, partition.committed_metadata or ""
            if image is None or not 0 <= index < count:
                results.append(TxnOffsetCommitResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif len(metadata) > metadata_max:
                results.append(TxnOffsetCommitResponsePartition(index, ErrorCode.OFFSET_METADATA_TOO_LARGE))
            else:
                value = offset_value(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    turn.wall_ms,
                    topic_id=image.topic_id,
                )
                records.append((prefix + pack_partition(index), value))
                results.append(TxnOffsetCommitResponsePartition(index))
        return TxnOffsetCommitResponseTopic(topic.name, results)

    def _check(self, group: AnyGroup | None, request: TxnOffsetCommitRequest) -> ErrorCode:
        table = self._table
        generation, member_id = request.generation_id, request.member_id
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if table.config.memory.is_full:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        if group is None:
            if generation >= 0:
                is_simple = table.offsets.knows(request.group_id)
                return ErrorCode.UNKNOWN_MEMBER_ID if is_simple else ErrorCode.ILLEGAL_GENERATION
            is_known = table.offsets.knows(request.group_id)
            return ErrorCode.NONE if is_known or table.has_room() else ErrorCode.POLICY_VIOLATION
        if generation < 0 and group.is_empty:
            return ErrorCode.NONE
        if generation == NOBODY and not member_id and request.group_instance_id is None:
            return ErrorCode.NONE  # a producer from before KIP-447
        if isinstance(group, ClassicGroup):
            error = group.check_member(member_id, request.group_instance_id)
            return error or (ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION)
        assert isinstance(group, ConsumerGroup)
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # As in Kafka: versions until 5 do not know STALE_MEMBER_EPOCH.
        return ErrorCode.NONE if generation == member.current.epoch else ErrorCode.ILLEGAL_GENERATION

    def _is_too_large(self, records: list[tuple[bytes, bytes]]) -> bool:
        size_bytes = sum(map(len, chain.from_iterable(records))) + len(records) * RECORD_OVERHEAD_BYTES
        return size_bytes + BATCH_OVERHEAD_BYTES > self._table.config.batch_bytes_max


def refused(topics: list[TxnOffsetCommitRequestTopic], error: ErrorCode) -> TxnOffsetCommitResponse:
    """The answer with the same error for all partitions of these topics."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(one.partition_index, error) for one in topic.partitions]
            )
            for topic in topics
        ]
    )
