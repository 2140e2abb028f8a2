"""Ranges of partitions as raw record batches.

A range ends by position, not by record. Offsets may be missing anywhere (compaction removes records, markers of
transactions take offsets), so a reader that waits for the last record of its range can wait forever. Here the position
follows the batch headers, and where an answer is empty the broker's own log end decides:

| the answer has | the range |
|---|---|
| batches | continues after the last complete batch |
| none; the readable end is at or after the end of the range | is done: nothing is left (requested again, alone) |
| none; the readable end is before the end of the range | waits for a leader to catch up; then RangeUnavailable |

The readable end is the high watermark, and with READ_COMMITTED the last stable offset.

The next request is sent before the last response is yielded, so that broker and network work while the caller decodes.
One request is in flight per leader; partitions of the same leader share it and take turns at being first, because a
broker fills its response in the order requested.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.client.cluster import EARLIEST, LATEST, Cluster, IsolationLevel, Retries, TopicPartition, passes
from penstock.client.connection import Connection, Sent
from penstock.client.errors import (
    AuthenticationFailed,
    BrokerError,
    ClientError,
    ConnectionFailed,
    OffsetOutOfRange,
    ProtocolError,
    RangeUnavailable,
    RequestTimedOut,
    TopicRecreated,
)
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from penstock.wire.uuids import ZERO_UUID

OFFSET_MAX: Final = 2**63 - 1
PARTITIONS_PER_REQUEST_MAX: Final = 1_000
_TOPIC_IDS_FROM: Final = 13  # of Fetch (KIP-516)
_BYTES_MIN: Final = 64 * 1024
# A guess until the first batches are seen, so that small ranges do not fetch megabytes beyond their end.
_OFFSET_BYTES_GUESS: Final = 2 * 1024
_MARGIN: Final = 1.25
_LONG_POLL_MS: Final = 50  # from this wait on, let the broker wait instead
_PAUSE_MIN_S: Final = 0.005
_PAUSE_MAX_S: Final = 0.05
_EMPTY: Final = memoryview(b"")

# The header fields needed to step over a batch: base offset, length, leader epoch, magic, crc, attributes, last
# offset delta.
_WALK = struct.Struct(">qiibIhi")


class PartitionRange(NamedTuple):
    """Offsets `start` to `end` (exclusive) of one partition; if `topic_id` is given, the topic must still have it."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes | None = None


class Fetched(NamedTuple):
    """The part of one response that concerns one partition.

    `records` are complete batches. The first may begin before `position` and the last end after the range, so the
    decoder must trim by offset. They are views of the response's buffer, which lives as long as they do.
    """

    topic: str
    partition: int
    position: int
    """The first offset of this piece."""
    next_position: int
    """The first offset of the next piece. At or after the end of the range, this is the last piece."""
    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of each aborted transaction in these batches; only with READ_COMMITTED."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def fetch_range(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    topic_id: bytes | None = None,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Iterator[Fetched]:
    """The batches that hold the offsets `start` to `end` (exclusive), in order."""
    return fetch_ranges(cluster, [PartitionRange(topic, partition, start, end, topic_id)], isolation=isolation)


def fetch_ranges(
    cluster: Cluster,
    ranges: Sequence[PartitionRange],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Iterator[Fetched]:
    """The batches of several ranges, each range in order, interleaved as they arrive. Partitions must be distinct.

    Raises OffsetOutOfRange, RangeUnavailable, UnknownTopic or TopicRecreated if the data is not available, and what
    `Cluster` raises if brokers fail. An error ends the whole iteration.
    """
    keys = {(one.topic, one.partition) for one in ranges}
    if len(keys) != len(ranges):
        raise ValueError("a partition is in several ranges: fetch them one after another")
    return _Fetcher(cluster, ranges, isolation).run()


@dataclass(eq=False)
class _Progress:
    """The progress of one range."""

    topic: str
    partition: int
    position: int
    end: int
    topic_id: bytes | None
    retries: Retries
    not_before_s: float = 0.0
    alone: bool = False
    """Request this range alone and without waiting: only then does an empty response prove that nothing is left."""
    bytes_per_offset: float = 0.0
    leader_epoch: int = -1


class _Asked(NamedTuple):
    """A request in flight."""

    leader_id: int
    connection: Connection
    sent: Sent
    ranges: list[_Progress]
    names: dict[bytes, str]


@dataclass
class _Fetcher:
    cluster: Cluster
    ranges: Sequence[PartitionRange]
    isolation: IsolationLevel
    idle: list[_Progress] = field(default_factory=list)
    """Ranges in no request; the first is requested first."""
    in_flight: deque[_Asked] = field(default_factory=deque)
    muted_until_s: dict[int, float] = field(default_factory=dict)
    """Brokers that throttled us, and until when to wait."""

    def run(self) -> Iterator[Fetched]:
        settings = self.cluster.settings
        self.idle = [
            _Progress(one.topic, one.partition, one.start, one.end, one.topic_id, Retries(settings))
            for one in self.ranges
            if one.start < one.end
        ]
        try:
            while self.idle or self.in_flight:
                self._ask()
                if not self.in_flight:
                    self._pause()
                    continue
                pieces, problem = self._take(self.in_flight.popleft())
                if problem is None:
                    try:
                        self._ask()
                    except ClientError as error:
                        problem = error
                # What was received is valid, whatever happens next.
                yield from pieces
                if problem is not None:
                    raise problem
        finally:
            # Unread responses would be taken for the response to the next request.
            for asked in self.in_flight:
                asked.connection.close()

    # Asking

    def _ask(self) -> None:
        """Sends a request to every leader that has none in flight and has partitions that are due."""
        now_s = time.monotonic()
        busy = {asked.leader_id for asked in self.in_flight}
        by_leader: dict[int, list[_Progress]] = {}
        for one in self.idle:
            if one.not_before_s > now_s:
                continue
            leader_id = self._leader_of(one)
            if leader_id is None or leader_id in busy or self.muted_until_s.get(leader_id, 0.0) > now_s:
                continue
            chosen = by_leader.setdefault(leader_id, [])
            if len(chosen) >= PARTITIONS_PER_REQUEST_MAX or (chosen and (one.alone or chosen[0].alone)):
                continue
            chosen.append(one)
        for leader_id, chosen in by_leader.items():
            try:
                connection = self.cluster.broker(leader_id)
                asked = self._send(leader_id, connection, chosen)
            except (ConnectionFailed, RequestTimedOut) as error:
                for one in chosen:
                    self._retry(one, error)
                continue
            self.in_flight.append(asked)
            gone = set(chosen)
            self.idle = [one for one in self.idle if one not in gone]

    def _leader_of(self, one: _Progress) -> int | None:
        try:
            metadata = self.cluster.leader_of(one.topic, one.partition)
            known = self.cluster.known_topic(one.topic)
        except (BrokerError, ConnectionFailed, RequestTimedOut) as error:
            self._retry(one, error)
            return None
        if one.topic_id is None:
            one.topic_id = known.topic_id
        elif ZERO_UUID != known.topic_id != one.topic_id:
            raise TopicRecreated(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                "the topic was deleted and created again under the same name",
                topic=one.topic,
                partition=one.partition,
            )
        one.leader_epoch = metadata.leader_epoch
        return metadata.leader_id

    def _send(self, leader_id: int, connection: Connection, chosen: list[_Progress]) -> _Asked:
        settings = self.cluster.settings
        version = connection.version_of(FetchRequest)
        if version >= _TOPIC_IDS_FROM and any(one.topic_id == ZERO_UUID for one in chosen):
            version = _TOPIC_IDS_FROM - 1
        topics: dict[str, FetchTopic] = {}
        names: dict[bytes, str] = {}
        for one in chosen:
            topic_id = one.topic_id or ZERO_UUID
            names[topic_id] = one.topic
            topic = topics.setdefault(one.topic, FetchTopic(topic=one.topic, topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=one.partition,
                    current_leader_epoch=one.leader_epoch,
                    fetch_offset=one.position,
                    partition_max_bytes=self._bytes_wanted(one),
                )
            )
        request = FetchRequest(
            max_wait_ms=0 if chosen[0].alone else settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=self.isolation,
            topics=list(topics.values()),
        )
        return _Asked(leader_id, connection, connection.send(request, version=version), chosen, names)

    def _bytes_wanted(self, one: _Progress) -> int:
        limit = self.cluster.settings.partition_fetch_bytes
        guess = (one.end - one.position) * (one.bytes_per_offset * _MARGIN or _OFFSET_BYTES_GUESS)
        return int(min(limit, max(guess, _BYTES_MIN)))

    def _pause(self) -> None:
        """Waits a little when nothing is in flight and nothing is due."""
        pause_s = min(one.not_before_s for one in self.idle) - time.monotonic()
        time.sleep(min(max(pause_s, _PAUSE_MIN_S), _PAUSE_MAX_S))

    # Answers

    def _take(self, asked: _Asked) -> tuple[list[Fetched], ClientError | None]:
        """The data of a response, and the error for the rest of it; marks its ranges as idle or done."""
        settings = self.cluster.settings
        timeout_ms = settings.request_timeout_ms + settings.fetch_max_wait_ms
        try:
            answer = asked.connection.receive(asked.sent, FetchResponse, timeout_ms=timeout_ms)
        except (ConnectionFailed, RequestTimedOut) as error:
            self.idle += asked.ranges
            for one in asked.ranges:
                self._retry(one, error)
            return [], None
        if answer.throttle_time_ms > 0:
            pause_ms = min(answer.throttle_time_ms, settings.request_timeout_ms)
            self.muted_until_s[asked.leader_id] = time.monotonic() + pause_ms / 1000
        else:
            self.muted_until_s.pop(asked.leader_id, None)
        self.idle += asked.ranges
        if answer.error_code != ErrorCode.NONE:
            for one in asked.ranges:
                self._retry(one, BrokerError(answer.error_code, doing=f"fetch from {asked.connection.address}"))
            return [], None
        by_key: dict[tuple[str, int], _Progress] = {(one.topic, one.partition): one for one in asked.ranges}
        pieces: list[Fetched] = []
        problem: ClientError | None = None
        for topic in answer.responses:
            name = asked.names.get(bytes(topic.topic_id), "") if asked.sent.version >= _TOPIC_IDS_FROM else topic.topic
            for data in topic.partitions:
                key = (name, data.partition_index)
                if key not in by_key:
                    raise ProtocolError(f"{asked.connection.address} answered for a partition that was not requested")
                try:
                    piece = self._take_partition(by_key.pop(key), data, throttled=answer.throttle_time_ms > 0)
                except ClientError as error:
                    problem = problem or error
                    continue
                if piece is not None:
                    pieces.append(piece)
        # The remaining ones were not in the response (a throttling broker does that). Served partitions go to the back.
        served = {(piece.topic, piece.partition) for piece in pieces}
        self.idle = [one for one in self.idle if one.position < one.end]
        self.idle.sort(key=lambda one: (one.topic, one.partition) in served)
        return pieces, problem

    def _take_partition(self, one: _Progress, data: PartitionData, *, throttled: bool) -> Fetched | None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(one)
            return None
        if data.error_code != ErrorCode.NONE:
            error = BrokerError(data.error_code, topic=one.topic, partition=one.partition, doing="fetch")
            self._retry(one, error)
            return None
        records = memoryview(data.records) if data.records is not None else _EMPTY
        size, next_position = _walk(one, records)
        if size == 0:
            if len(records) == 0 and not throttled:
                self._nothing_came(one, data)
            return None
        if next_position == one.position:
            raise ProtocolError(f"{one.topic}-{one.partition}: requested offset {next_position}, got only older ones")
        position, one.position = one.position, next_position
        one.bytes_per_offset = size / max(next_position - position, 1)
        one.alone = False
        one.retries.restart()
        return Fetched(
            one.topic,
            one.partition,
            position,
            next_position,
            records[:size],
            tuple((gone.producer_id, gone.first_offset) for gone in data.aborted_transactions or ()),
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
        )

    def _nothing_came(self, one: _Progress, data: PartitionData) -> None:
        committed = self.isolation == IsolationLevel.READ_COMMITTED
        readable_end = data.last_stable_offset if committed else data.high_watermark
        if readable_end >= one.end:
            if one.alone:
                one.position = one.end
            one.alone = True
            return
        one.alone = False
        pause_s = one.retries.next_pause_s()
        if pause_s is None:
            held_back = committed and data.high_watermark >= one.end
            raise RangeUnavailable(
                one.topic, one.partition, one.position, one.end, readable_end, open_transaction=held_back
            )
        if self.cluster.settings.fetch_max_wait_ms < _LONG_POLL_MS:
            one.not_before_s = time.monotonic() + pause_s

    def _out_of_range(self, one: _Progress) -> None:
        key = TopicPartition(one.topic, one.partition)
        start = self.cluster.list_offsets({key: EARLIEST})[key].offset
        end = self.cluster.list_offsets({key: LATEST})[key].offset
        error = OffsetOutOfRange(one.topic, one.partition, one.position, start, end)
        pause_s = one.retries.next_pause_s()
        if pause_s is None or not start <= one.position <= end:
            raise error
        # The offset is in the log: the broker that answered has not caught up with its own election.
        one.not_before_s = time.monotonic() + pause_s

    def _retry(self, one: _Progress, error: ClientError) -> None:
        """Schedules the range for a retry; raises if the error is not retriable or the deadline has passed."""
        if isinstance(error, AuthenticationFailed) or (isinstance(error, BrokerError) and not passes(error)):
            raise error
        self.cluster.forget(one.topic)
        if isinstance(error, BrokerError) and error.code in (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INCONSISTENT_TOPIC_ID,
        ):
            # A deleted topic is reported at once. If it exists, its leader has not heard of it yet.
            with suppress(ConnectionFailed, RequestTimedOut):
                self.cluster.topics([one.topic])[one.topic].partition(one.partition)
        pause_s = one.retries.next_pause_s()
        if pause_s is None:
            raise error
        one.not_before_s = time.monotonic() + pause_s


def _walk(one: _Progress, records: memoryview) -> tuple[int, int]:
    """(size of the complete batches that the range needs, the position after them)."""
    position = 0
    next_position = one.position
    end = len(records)
    while end - position >= HEADER_SIZE and next_position < one.end:
        base_offset, length, _, magic, _, _, last_offset_delta = _WALK.unpack_from(records, position)
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"the records at offset {next_position} have the format of Kafka 0.10 and older (magic {magic}): "
                "only format 2 is supported",
                topic=one.topic,
                partition=one.partition,
            )
        if size < HEADER_SIZE or last_offset_delta < 0 or not 0 <= base_offset <= OFFSET_MAX - last_offset_delta - 1:
            raise ProtocolError(
                f"{one.topic}-{one.partition}: the bytes after offset {next_position} are not a record batch"
            )
        if size > end - position:
            break
        if base_offset >= one.end:
            # The next existing batch is beyond the range: the offsets in between are gone, and the range is done.
            next_position = max(next_position, one.end)
            break
        after = base_offset + last_offset_delta + 1
        if after > next_position:
            next_position = after
        position += size
    if position == 0 and next_position >= one.end:
        one.position = one.end
    return position, next_position
