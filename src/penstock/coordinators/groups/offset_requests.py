"""OffsetCommit, OffsetFetch and OffsetDelete: their checks, and the records they write.

OffsetCommit: versions 2 to 4 carry a retention of their own, which KIP-211 ended; 6 brings leader epochs (KIP-320), 7
static members, 9 the consumer protocol, 10 topic ids. OffsetFetch: 2 may ask for everything, 7 for stable offsets
only (KIP-447), 8 takes several groups (KIP-709), 9 member epochs, 10 topic ids.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain
from typing import Final

from penstock.coordinators.groups.classic import ClassicGroups
from penstock.coordinators.groups.classic_group import ClassicGroup
from penstock.coordinators.groups.consumer.offsets import check_commit, check_fetch
from penstock.coordinators.groups.deletion import OffsetDeletion
from penstock.coordinators.groups.records import (
    BATCH_OVERHEAD_BYTES,
    NO_EXPIRY,
    OFFSET_VALUE_VERSION,
    RECORD_OVERHEAD_BYTES,
    decode_offset_value,
    offset_key_partition,
    offset_key_prefix,
    offset_value,
    pack_partition,
    pack_value_head,
    plain_value_tail,
)
from penstock.coordinators.groups.table import AnyGroup, GroupTable
from penstock.coordinators.shard import RequestInfo, Ticket, Turn
from penstock.metadata import MetadataImage, TopicImage
from penstock.wire.codec import Message
from penstock.wire.commits import PlainCommit
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.wire.uuids import ZERO_UUID

TOPIC_IDS_FROM: Final = 10
GROUP_ID_NOT_FOUND_FROM: Final = 9

NO_OFFSET: Final = -1
READ_AT_ONCE_MAX: Final = 50
"""Offsets that are decoded in one go when all of a group are asked for; each may have 4 KB of metadata."""


class OffsetRequests:
    """Serves the three APIs for all kinds of groups."""

    def __init__(self, table: GroupTable, deletion: OffsetDeletion, classic: ClassicGroups) -> None:
        self._table = table
        self._deletion = deletion
        self._classic = classic

    # -- commit ------------------------------------------------------------------------------------------------------

    def commit(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: OffsetCommitRequest) -> None:
        group = self._table.find_managed(turn, request.group_id)
        error = self._check_commit(
            turn,
            info,
            group,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            request.topics,
        )
        if error:
            turn.reply(ticket, _refused(request, error))
            return
        table = self._table
        wall_ms = turn.wall_ms
        retention_ms = request.retention_time_ms
        expire_ms = NO_EXPIRY if retention_ms < 0 else wall_ms + retention_ms
        metadata_max = table.config.offset_metadata_max_bytes
        by_id = info.version >= TOPIC_IDS_FROM
        records: list[tuple[bytes, bytes]] = []
        topics: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            image = turn.image.topic_by_id(topic.topic_id) if by_id else turn.image.topic(topic.name)
            if image is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(_refused_topic(topic, error))
                continue
            count = len(image.partitions)
            prefix = offset_key_prefix(request.group_id, image.name)
            results: list[OffsetCommitResponsePartition] = []
            topics.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, results))
            for partition in topic.partitions:
                index = partition.partition_index
                metadata = partition.committed_metadata
                if not 0 <= index < count:
                    results.append(OffsetCommitResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                    continue
                offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
                if metadata and len(metadata) > metadata_max:
                    results.append(OffsetCommitResponsePartition(index, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                    continue
                value = offset_value(offset, leader_epoch, metadata or "", wall_ms, expire_ms, image.topic_id)
                records.append((prefix + pack_partition(index), value))
                results.append(OffsetCommitResponsePartition(index))
        if self._is_too_large(records) or not self._has_room(request.group_id, records):
            turn.reply(ticket, _refused(request, ErrorCode.INVALID_COMMIT_OFFSET_SIZE))
            return
        if records:
            # The string that is there already, not another one with the same letters.
            table.offsets.put_all(request.group_id if group is None else group.group_id, records)
            turn.append_all(records)
        turn.reply(ticket, OffsetCommitResponse(topics=topics))

    def commit_plain(self, turn: Turn, ticket: Ticket, info: RequestInfo, commit: PlainCommit) -> None:
        """A fast path of `commit` for requests whose offsets are all valid. Otherwise it falls back to `commit`."""
        table = self._table
        group = table.find_managed(turn, commit.group_id)
        records: list[tuple[bytes, bytes]] = []
        error = self._check_commit(
            turn, info, group, commit.group_id, commit.member_id, commit.instance_id, commit.generation, None
        )
        if not error:
            records = plain_records(turn, info, commit)
        if not records or self._is_too_large(records) or not self._has_room(commit.group_id, records):
            self.commit(turn, ticket, info, commit.request())
            return
        # The string that is there already, not another one with the same letters.
        table.offsets.put_all(commit.group_id if group is None else group.group_id, records)
        turn.append_all(records)
        turn.reply(ticket, commit.succeeded())

    def _check_commit(
        self,
        turn: Turn,
        info: RequestInfo,
        group: AnyGroup | None,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        topics: list[OffsetCommitRequestTopic] | None,
    ) -> ErrorCode:
        table = self._table
        if group is None:
            if generation >= 0 and table.offsets.knows(group_id):
                return ErrorCode.UNKNOWN_MEMBER_ID  # a simple group has no members
            if generation >= 0:
                found_from = GROUP_ID_NOT_FOUND_FROM
                return ErrorCode.GROUP_ID_NOT_FOUND if info.version >= found_from else ErrorCode.ILLEGAL_GENERATION
            # A consumer that assigns its own partitions may use a group only for offsets: its first commit creates it.
            is_known = table.offsets.knows(group_id)
            return ErrorCode.NONE if is_known or table.has_room() else ErrorCode.POLICY_VIOLATION
        if isinstance(group, ClassicGroup):
            return self._classic.check_commit(turn, group, member_id, instance_id, generation)
        try:
            check_commit(turn.image, info.version, group, member_id, generation, topics)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def _is_too_large(self, records: list[tuple[bytes, bytes]]) -> bool:
        size_bytes = sum(map(len, chain.from_iterable(records))) + len(records) * RECORD_OVERHEAD_BYTES
        return size_bytes + BATCH_OVERHEAD_BYTES > self._table.config.batch_bytes_max

    def _has_room(self, group_id: str, records: list[tuple[bytes, bytes]]) -> bool:
        """Whether there is memory for these records, or they only replace others."""
        return not self._table.config.memory.is_full or self._table.offsets.growth(group_id, records) <= 0

    # -- fetch -------------------------------------------------------------------------------------------------------

    def fetch(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, request: OffsetFetchRequestGroup, require_stable: bool
    ) -> None:
        table = self._table
        group = table.groups.get(request.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            try:
                check_fetch(group, request.member_id, request.member_epoch)
            except KafkaError as error:
                turn.reply(ticket, OffsetFetchResponseGroup(request.group_id, [], error.code))
                return
        if request.topics is None:
            found = self._all_offsets(turn, info, request.group_id, require_stable)
            turn.reply(ticket, found if len(found.entries) > READ_AT_ONCE_MAX else at_once(found.read()))
            return
        by_id = info.version >= TOPIC_IDS_FROM
        topics = [self._fetch_topic(turn, by_id, request.group_id, t, require_stable) for t in request.topics]
        turn.reply(ticket, OffsetFetchResponseGroup(request.group_id, topics))

    def _fetch_topic(
        self, turn: Turn, by_id: bool, group_id: str, topic: OffsetFetchRequestTopics, require_stable: bool
    ) -> OffsetFetchResponseTopics:
        name = topic.name
        if by_id:
            image = turn.image.topic_by_id(topic.topic_id)
            if image is None:
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
                return OffsetFetchResponseTopics(
                    topic.topic_id, "", [_no_offset(index, unknown) for index in topic.partition_indexes]
                )
            name = image.name
        offsets = self._table.offsets
        committed = offsets.groups.get(group_id, {})
        unstable = require_stable and offsets.has_open_transactions(group_id)
        if not (committed or unstable):
            return OffsetFetchResponseTopics(
                topic.topic_id, topic.name, [_no_offset(i) for i in topic.partition_indexes]
            )
        prefix = offset_key_prefix(group_id, name)
        results: list[OffsetFetchResponsePartitions] = []
        for index in topic.partition_indexes:
            key = prefix + pack_partition(index)
            value = committed.get(key)
            if unstable and offsets.is_pending(group_id, key):
                results.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif value is None:
                results.append(_no_offset(index))
            else:
                results.append(_fetched(index, value, topic.topic_id))
        return OffsetFetchResponseTopics(topic.topic_id, topic.name, results)

    def _all_offsets(self, turn: Turn, info: RequestInfo, group_id: str, require_stable: bool) -> UnreadOffsets:
        offsets = self._table.offsets
        entries = list(offsets.groups.get(group_id, {}).items())
        pending: frozenset[bytes] = frozenset()
        if require_stable and offsets.has_open_transactions(group_id):
            pending = frozenset(key for key, _ in entries if offsets.is_pending(group_id, key))
        return UnreadOffsets(group_id, entries, pending, turn.image if info.version >= TOPIC_IDS_FROM else None)

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete(self, turn: Turn, ticket: Ticket, request: OffsetDeleteRequest) -> None:
        """Delete offsets, but only of topics that no member of the group is subscribed to."""
        table = self._table
        group_id = request.group_id
        if not group_id:
            turn.reply(ticket, OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        group = table.find(turn, group_id)
        if group is None:
            turn.reply(ticket, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
            return
        if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_consumer_protocol:
            # The subscriptions of other protocol types, such as Connect's workers, cannot be read here.
            turn.reply(ticket, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
            return
        offsets = table.offsets
        committed = offsets.groups.get(group_id, {})
        entries: list[tuple[str, bytes, bytes | None]] = []
        topics: list[OffsetDeleteResponseTopic] = []
        for topic in request.topics:
            error = ErrorCode.NONE
            if turn.image.topic(topic.name) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.is_subscribed_to(topic.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                prefix = offset_key_prefix(group_id, topic.name)
                for partition in topic.partitions:
                    key = prefix + pack_partition(partition.partition_index)
                    entries.append((group_id, key, committed.get(key)))
            topics.append(
                OffsetDeleteResponseTopic(
                    topic.name, [OffsetDeleteResponsePartition(p.partition_index, error) for p in topic.partitions]
                )
            )
        response = OffsetDeleteResponse(topics=topics)
        self._deletion.delete(turn, entries, lambda last: last.reply(ticket, response))


class UnreadOffsets(Message):
    """All offsets of a large group, as they were at one moment, not decoded yet.

    A group may have a hundred thousand offsets with 4 KB of metadata each: to decode them would hold the loop.
    """

    group_id: str
    entries: list[tuple[bytes, bytes]]
    """Keys and values of the records, in the order of their first commits."""
    pending: frozenset[bytes]
    """Keys for which an open transaction has committed an offset, if the client wants stable offsets."""
    image: MetadataImage | None
    """For the ids of topics, if the client wants these."""

    def read(self) -> Generator[None, None, OffsetFetchResponseGroup]:
        """The answer, made in slices."""
        topics: dict[str, OffsetFetchResponseTopics] = {}
        for key, value in self.entries:
            yield
            name, index = offset_key_partition(key)
            response = topics.get(name)
            if response is None:
                image = self.image.topic(name) if self.image is not None else None
                response = topics[name] = OffsetFetchResponseTopics(_topic_id(image), name, [])
            if key in self.pending:
                response.partitions.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                response.partitions.append(_fetched(index, value))
        # A request by topic ids cannot be answered for a deleted topic, which has no id any more.
        found = [topic for topic in topics.values() if self.image is None or topic.topic_id != ZERO_UUID]
        return OffsetFetchResponseGroup(self.group_id, found)


def at_once(work: Generator[None, None, OffsetFetchResponseGroup]) -> OffsetFetchResponseGroup:
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: OffsetFetchResponseGroup = end.value
            return result


def plain_records(turn: Turn, info: RequestInfo, commit: PlainCommit) -> list[tuple[bytes, bytes]]:
    """All records of this commit, or none if any part of it is invalid."""
    by_id = info.version >= TOPIC_IDS_FROM
    records: list[tuple[bytes, bytes]] = []
    for topic in commit.topics:
        image = turn.image.topic_by_id(topic.topic) if by_id else turn.image.topic(topic.topic.decode())
        if image is None:
            return []
        entries = list(topic.unpacked())
        if not entries or max(entries)[0] >= len(image.partitions) or min(entries)[0] < 0:
            return []
        prefix = offset_key_prefix(commit.group_id, image.name)
        tail = plain_value_tail(turn.wall_ms, image.topic_id)
        records += [
            (prefix + pack_partition(index), pack_value_head(OFFSET_VALUE_VERSION, offset, leader_epoch) + tail)
            for index, offset, leader_epoch, _, _ in entries
        ]
    return records


def _topic_id(image: TopicImage | None) -> bytes:
    return ZERO_UUID if image is None else image.topic_id


def _no_offset(index: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "", error)


def _fetched(index: int, value: bytes, topic_id: bytes = ZERO_UUID) -> OffsetFetchResponsePartitions:
    committed = decode_offset_value(value)
    if topic_id != committed.topic_id and ZERO_UUID not in (topic_id, committed.topic_id):
        return _no_offset(index)  # of a topic of the same name that was deleted
    return OffsetFetchResponsePartitions(index, committed.offset, committed.leader_epoch, committed.metadata)


def _refused(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refused_topic(topic, error) for topic in request.topics])


def _refused_topic(topic: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        topic.topic_id,
        topic.name,
        [OffsetCommitResponsePartition(partition.partition_index, error) for partition in topic.partitions],
    )
