"""Produce (0): append record batches.

Served: v3–v13, parsed by hand from the connection's buffer (nothing is copied between the socket and the page cache).

- v3 adds the transactional id (KIP-98), v5 the log start offset in the answer, v8 per-record errors and a message
  (KIP-467), v9 flexible encoding, v10 the current leader on NOT_LEADER_OR_FOLLOWER (KIP-951), v11/v12 change
  transactions only (KIP-890), v13 replaces names by topic ids (KIP-516).
- acks=0 gets no answer; if something is wrong the connection is closed, which is all such a client can be told.
- acks=1 waits for the leader's own promise (a sync where `flush.*` asks for one), acks=all for the high watermark.
- A partition that a request names twice gets both batches, in their order. (Kafka drops all but the last, and says so
  to nobody.)
- A duplicate of an idempotent producer is answered with its first offset, once that is committed.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from penstock.broker import limits
from penstock.broker.net.connection import Connection, Slot
from penstock.broker.net.request import Request
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.produce.parked import ParkedProduce, Wait, check_unanswered
from penstock.broker.produce.preparing import Preparation
from penstock.broker.produce.response import Result, TopicResults, encode, refused
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.log import Appended, TooLargeForLoop
from penstock.runtime import Runtime
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.recompression import UNCOMPRESSED, codecs_in
from penstock.wire.records import (
    CODEC_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    read_unsigned_varint,
)

PARTS_PER_REQUEST_MAX = 10_000
"""Topics and partitions. Each costs more than the few bytes that it takes in the request."""
TAGGED_FIELDS_MAX = 100_000
"""In the whole request: newer clients may have some in each of its parts."""
LENGTH_POSITION = 8
ATTRIBUTES_LOW_POSITION = CRC_POSITION + 5
TRANSACTIONS_ARE_MISSING = "transactions are not served by this version of Penstock: unset transactional.id"

_short = Struct(">h").unpack_from
_int = Struct(">i").unpack_from
_acks_timeout = Struct(">hi").unpack_from
_index_length = Struct(">ii").unpack_from

UNUSUAL_FLAGS = TRANSACTIONAL_FLAG | CODEC_MASK
"""Transactional batches are refused; compressed ones may have to be opened in a thread."""
NULL = 0
ONE = 2
"""How flexible versions write an absent string, and an array of one."""
USUAL_BYTES_MIN = 80
_pack_usual_head = Struct(">iiBB").pack
_pack_usual_result = Struct(">Bihqqq").pack
USUAL_TAIL = b"\x01\0\0\0\0\0\0\0\0"
"""No record errors, no message, no tagged fields of partition and topic, no throttling, no tagged fields."""
_pack_usual_tail = Struct(">BHBiB").pack


class Produce:
    """Serves Produce requests."""

    __slots__ = ("_metrics", "_opened_on_loop", "_preparation", "_queued", "_runtime", "_table", "_wall_ms")

    def __init__(
        self, runtime: Runtime, table: PartitionTable, metrics: BrokerMetrics, preparation: Preparation
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._metrics = metrics
        self._preparation = preparation
        self._opened_on_loop = 0
        """Compressed batches of the present request that were opened where they were appended."""
        self._queued: set[Partition] = set()
        """Partitions whose queue gets a batch of the present request once it is read: others must not overtake it."""
        self._wall_ms = runtime.wall_ms

    def serve(self, request: Request) -> None:
        connection, version, correlation_id = request.connection, request.version, request.correlation_id
        assert connection is not None
        try:
            if version >= 9 and self._serve_usual(request, connection, version, correlation_id):
                return
            acks, timeout_ms, results, waits = self._append_all(request, connection, version)
        except (StructError, IndexError, ValueError, WireError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"malformed Produce request: {error}") from None
        throttle_ms = request.charge(request.size_bytes)
        if waits:
            # Copies that wait to be prepared are held by their connection's place: one request each.
            slot = connection.defer(barrier=any(wait.records is not None for wait in waits))
            self._park(slot, version, correlation_id, results, waits, timeout_ms, throttle_ms)
        elif acks:
            connection.send(encode(version, correlation_id, results, throttle_ms))
        if acks == 0:
            check_unanswered(results)

    def _serve_usual(self, request: Request, connection: Connection, version: int, correlation_id: int) -> bool:
        """The request that nearly all are: one batch for one partition. False, and nothing done, if it is another.

        What `_append_all` and `encode` do, written out: it halves what a small request costs.
        """
        buffer, p, end = connection.buffer, request.position, request.end
        if end - p < USUAL_BYTES_MIN or buffer[p] != NULL or buffer[p + 7] != ONE:
            return False
        view = connection.view
        if version >= 13:
            named = topic = bytes(view[p + 8 : p + 24])
            p += 24
            partitions = self._table.by_id.get(topic)
        else:
            length = buffer[p + 8]
            if length > 127 or length < 2 or p + length + 24 > end:
                return False
            named = bytes(view[p + 8 : p + 8 + length])
            topic = named[1:]
            p += 8 + length
            partitions = self._table.by_name.get(topic)
        if partitions is None or buffer[p] != ONE:
            return False
        index = _int(buffer, p + 1)[0]
        size, records_at = read_unsigned_varint(buffer, p + 5)
        stop = records_at + size - 1
        acks = _short(buffer, p - len(named) - 7)[0]
        if stop >= end or size < HEADER_SIZE or not 0 <= index < len(partitions) or acks not in (-1, 1):
            return False
        partition = partitions[index]
        gate = request.gate
        if gate.is_active and not request.allowed(Operation.WRITE, ResourceKind.TOPIC, partition.topic):
            return False
        leader, log = partition.leader, partition.log
        if leader is None or log is None or partition.preparing is not None:
            return False
        if _int(buffer, records_at + LENGTH_POSITION)[0] != stop - records_at - LENGTH_OVERHEAD:
            return False
        flags = buffer[records_at + ATTRIBUTES_LOW_POSITION]
        if flags & UNUSUAL_FLAGS and (flags & TRANSACTIONAL_FLAG or log.opens_batches):
            return False
        try:
            first, last, append_time_ms, duplicate = partition.append(view[records_at:stop], acks, self._wall_ms())
        except KafkaError as error:
            self._metrics.failed_produce += 1
            throttle_ms = request.charge(request.size_bytes)
            connection.send(encode(version, correlation_id, [(topic, [refused(partition, error)])], throttle_ms))
            return True
        throttle_ms = 0 if gate.quotas is None else request.charge(request.size_bytes)
        if not duplicate:
            self._metrics.messages_in += last - first + 1
            self._metrics.bytes_in += size - 1
        committed = log.stable_end if acks == 1 and not duplicate else leader.high_watermark
        if committed <= last:
            timeout_ms = _int(buffer, p - len(named) - 5)[0]
            results = [(topic, [Result(index, 0, first, append_time_ms, log.start_offset)])]
            waits = [Wait(0, 0, partition, last + 1, -1 if duplicate else acks)]
            slot = connection.defer(barrier=False)
            self._park(slot, version, correlation_id, results, waits, timeout_ms, throttle_ms)
            return True
        connection.send(
            _pack_usual_head(len(named) + 46, correlation_id, 0, ONE)
            + named
            + _pack_usual_result(ONE, index, 0, first, append_time_ms, log.start_offset)
            + (USUAL_TAIL if not throttle_ms else _pack_usual_tail(1, 0, 0, throttle_ms, 0))
        )
        return True

    def _append_all(
        self, request: Request, connection: Connection, version: int
    ) -> tuple[int, int, TopicResults, list[Wait]]:
        """Parse and append in one pass. A malformed request raises ValueError, IndexError or struct.error."""
        buffer, p, end = connection.buffer, request.position, request.end
        view = connection.view
        flexible = version >= 9
        if flexible:
            length, p = read_unsigned_varint(buffer, p)
            length -= 1
        else:
            length = _short(buffer, p)[0]
            p += 2
        transactional = length >= 0
        transactional_id = view[p : p + max(length, 0)]
        p += max(length, 0)
        acks, timeout_ms = _acks_timeout(buffer, p)
        p += 6
        if flexible:
            topic_count, p = read_unsigned_varint(buffer, p)
            topic_count -= 1
        else:
            topic_count = _int(buffer, p)[0]
            p += 4
        if p > end:
            raise ValueError("it ends early")
        lookup = self._table.by_id if version >= 13 else self._table.by_name
        refusal = None
        if transactional and not request.allowed(
            Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, str(transactional_id, "utf-8", "replace")
        ):
            refusal = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        elif transactional:
            refusal = KafkaError(ErrorCode.INVALID_REQUEST, TRANSACTIONS_ARE_MISSING)
        elif acks not in (0, 1, -1):
            refusal = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wall_ms = self._wall_ms()
        results: TopicResults = []
        waits: list[Wait] = []
        self._opened_on_loop = 0
        self._queued.clear()
        count = 0
        tags = TAGGED_FIELDS_MAX
        for _ in range(topic_count):
            if version >= 13:
                topic = bytes(view[p : p + 16])
                p += 16
            else:
                if flexible:
                    length, p = read_unsigned_varint(buffer, p)
                    length -= 1
                else:
                    length = _short(buffer, p)[0]
                    p += 2
                if length < 0:
                    raise ValueError("a topic without a name")
                topic = bytes(view[p : p + length])
                p += length
            if flexible:
                partition_count, p = read_unsigned_varint(buffer, p)
                partition_count -= 1
            else:
                partition_count = _int(buffer, p)[0]
                p += 4
            if p > end:
                raise ValueError("it ends early")
            count += 1 + max(partition_count, 0)
            if count > PARTS_PER_REQUEST_MAX:
                raise ValueError(f"more than {PARTS_PER_REQUEST_MAX} topics and partitions in one request")
            partitions = lookup.get(topic)
            denied = request.is_restricted and not may_write(request, topic, partitions, version)
            outcome: list[Result] = []
            results.append((topic, outcome))
            for _ in range(partition_count):
                if flexible:
                    index = _int(buffer, p)[0]
                    size, p = read_unsigned_varint(buffer, p + 4)
                    size -= 1
                else:
                    index, size = _index_length(buffer, p)
                    p += 8
                size = max(size, 0)
                if p + size > end:
                    raise ValueError("it ends early")
                if denied:
                    outcome.append(Result(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                elif partitions is None:
                    outcome.append(Result(index, unknown))
                elif not 0 <= index < len(partitions):
                    outcome.append(Result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                elif refusal is not None:
                    outcome.append(Result(index, refusal.code, message=refusal.message))
                else:
                    self._append_one(partitions[index], view[p : p + size], acks, wall_ms, outcome, waits, len(results))
                p += size
                if flexible:
                    p, tags = _skip_tags(buffer, p, end, tags)
            if flexible:
                p, tags = _skip_tags(buffer, p, end, tags)
        return acks, timeout_ms, results, waits

    def _append_one(
        self,
        partition: Partition,
        records: memoryview,
        acks: int,
        wall_ms: int,
        outcome: list[Result],
        waits: list[Wait],
        topic_number: int,
    ) -> None:
        appended: Appended | None = None
        try:
            flags = batch_flags(records)
            if flags & TRANSACTIONAL_FLAG:
                # Nobody could ever end that transaction: it would hold back readers of committed records for ever.
                raise KafkaError(ErrorCode.INVALID_REQUEST, TRANSACTIONS_ARE_MISSING)
            is_plain = partition.preparing is None and not flags & CODEC_MASK
            if partition not in self._queued and (is_plain or not self._must_queue(partition, records)):
                try:
                    appended = partition.append(records, acks, wall_ms)
                except TooLargeForLoop:
                    appended = None
            if appended is None:
                copy = self._preparation.copy(partition, records, acks)
                self._queued.add(partition)
                waits.append(Wait(topic_number - 1, len(outcome), partition, -1, acks, copy))
                outcome.append(Result(partition.index, 0))
                return
        except KafkaError as error:
            outcome.append(refused(partition, error))
            self._metrics.failed_produce += 1
            return
        metrics = self._metrics
        first, last, append_time_ms, duplicate = appended
        if not duplicate:
            metrics.messages_in += last - first + 1
            metrics.bytes_in += len(records)
        log, leader = partition.led()
        committed = log.stable_end if acks == 1 and not duplicate else leader.high_watermark
        if acks and committed <= last:
            waits.append(Wait(topic_number - 1, len(outcome), partition, last + 1, -1 if duplicate else acks))
        outcome.append(Result(partition.index, 0, first, append_time_ms, log.start_offset))


    def _must_queue(self, partition: Partition, records: memoryview) -> bool:
        """Whether batches cannot be appended at once: others are before them, or they take long to open."""
        queue, log = partition.preparing, partition.log
        if log is None:
            return False  # appending says why that is not possible
        codecs = codecs_in(records)
        if queue is not None and (queue.is_working or queue.changes(codecs)):
            return True
        if codecs == UNCOMPRESSED or not log.opens_batches:
            return False
        self._opened_on_loop += 1
        return (
            len(records) > limits.OPENED_ON_LOOP_BYTES_MAX
            or self._opened_on_loop > limits.OPENED_ON_LOOP_PER_REQUEST_MAX
        )

    def _park(
        self,
        slot: Slot,
        version: int,
        correlation_id: int,
        results: TopicResults,
        waits: list[Wait],
        timeout_ms: int,
        throttle_ms: int,
    ) -> None:
        ParkedProduce(
            self._runtime,
            self._metrics,
            self._preparation,
            slot,
            version,
            correlation_id,
            results,
            waits,
            timeout_ms,
            throttle_ms,
        )


def may_write(request: Request, topic: bytes, partitions: list[Partition] | None, version: int) -> bool:
    """Ids that nobody knows are answered as such, to anyone."""
    name = str(topic, "utf-8", "replace")
    if version >= 13:
        if not partitions:
            return True
        name = partitions[0].topic
    return request.allowed(Operation.WRITE, ResourceKind.TOPIC, name)


def batch_flags(records: memoryview) -> int:
    """The attributes of the batch. Raises KafkaError if there is more than one, as Kafka does from v3 on: the work of
    a request is bounded by its partitions. What is no whole batch is left for the log to refuse."""
    if len(records) < HEADER_SIZE:
        return 0
    size = _int(records, LENGTH_POSITION)[0] + LENGTH_OVERHEAD
    if HEADER_SIZE <= size < len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a request has exactly one batch for each partition")
    return records[ATTRIBUTES_LOW_POSITION]


def _skip_tags(buffer: bytearray | memoryview, p: int, end: int, left: int) -> tuple[int, int]:
    """(position behind the tagged fields, how many the rest of the request may have)"""
    if buffer[p] == 0:
        return p + 1, left
    count, p = read_unsigned_varint(buffer, p)
    left -= count
    if left < 0:
        raise ValueError(f"more than {TAGGED_FIELDS_MAX} tagged fields in one request")
    for _ in range(count):
        _, p = read_unsigned_varint(buffer, p)
        size, p = read_unsigned_varint(buffer, p)
        p += size
        if p > end:
            raise ValueError("a tagged field ends beyond the request")
    return p, left
