"""Produce (0): append record batches.

Served: v3–v13, parsed by hand from the connection's buffer (nothing is copied between the socket and the page cache).

- v3 adds the transactional id (KIP-98), v5 the log start offset in the answer, v8 per-record errors and a message
  (KIP-467), v9 flexible encoding, v10 the current leader on NOT_LEADER_OR_FOLLOWER (KIP-951), v11/v12 change
  transactions only (KIP-890), v13 replaces names by topic ids (KIP-516).
- acks=0 gets no answer; after an error the connection is closed, which is the only possible signal to such a client.
- acks=1 waits for the leader alone (for a sync if `flush.*` requires one), acks=all for the high watermark.
- A partition that a request names twice gets both batches, in order. (Kafka silently drops all but the last.)
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
from penstock.broker.produce.response import Result, TopicResults, encode, encode_single, refused
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.log import Appended, TooLargeForLoop
from penstock.runtime import Runtime
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.produce import TOPIC_IDS_FROM, Produced, Single, read_produce, read_single
from penstock.wire.recompression import UNCOMPRESSED, codecs_in
from penstock.wire.records import (
    CODEC_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_FLAG,
)

LENGTH_POSITION = 8
ATTRIBUTES_LOW_POSITION = CRC_POSITION + 5
TRANSACTIONS_ARE_MISSING = "transactions are not served by this version of Penstock: unset transactional.id"

_int = Struct(">i").unpack_from

UNUSUAL_FLAGS = TRANSACTIONAL_FLAG | CODEC_MASK
"""Transactional batches are refused; compressed ones may have to be opened in a thread."""


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
        """Compressed batches of the current request that were decompressed on the loop."""
        self._queued: set[Partition] = set()
        """Partitions whose queue gets a batch of the current request once it is read: others must not overtake it."""
        self._wall_ms = runtime.wall_ms

    def serve(self, request: Request) -> None:
        connection, version = request.connection, request.version
        assert connection is not None
        buffer, view, position, end = connection.buffer, connection.view, request.position, request.end
        try:
            single = read_single(buffer, view, version, position, end)
            if single is not None and self._serve_single(request, connection, single):
                return
            body = read_produce(buffer, view, version, position, end)
        except (StructError, IndexError, ValueError, WireError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"malformed Produce request: {error}") from None
        results, waits = self._append_all(request, view, body)
        throttle_ms = request.charge(request.size_bytes)
        if waits:
            # Copies that wait to be prepared are held by their connection's place: one request each.
            slot = connection.defer(barrier=any(wait.records is not None for wait in waits))
            self._park(slot, request, results, waits, body.timeout_ms, throttle_ms)
        elif body.acks:
            connection.send(encode(version, request.correlation_id, results, throttle_ms))
        if body.acks == 0:
            check_unanswered(results)

    def _serve_single(self, request: Request, connection: Connection, single: Single) -> bool:
        """One batch for one partition, appended and answered at once. False, and nothing done, if that cannot be.

        `_append_all` and `encode` would do the same; this takes half the time.
        """
        named, topic, acks, timeout_ms, index, start, stop = single
        table = self._table
        partitions = table.by_id.get(topic) if request.version >= TOPIC_IDS_FROM else table.by_name.get(topic)
        if partitions is None or not 0 <= index < len(partitions) or acks not in (-1, 1):
            return False
        partition = partitions[index]
        gate = request.gate
        if gate.is_active and not may_write_quickly(request, partition.topic):
            return False
        leader, log = partition.leader, partition.log
        if leader is None or log is None or partition.preparing is not None:
            return False
        buffer = connection.buffer
        if _int(buffer, start + LENGTH_POSITION)[0] != stop - start - LENGTH_OVERHEAD:
            return False
        flags = buffer[start + ATTRIBUTES_LOW_POSITION]
        if flags & UNUSUAL_FLAGS and (flags & TRANSACTIONAL_FLAG or log.opens_batches):
            return False
        try:
            first, last, append_time_ms, duplicate = partition.append(
                connection.view[start:stop], acks, self._wall_ms()
            )
        except KafkaError as error:
            self._metrics.failed_produce += 1
            throttle_ms = request.charge(request.size_bytes)
            results: TopicResults = [(topic, [refused(partition, error)])]
            connection.send(encode(request.version, request.correlation_id, results, throttle_ms))
            return True
        throttle_ms = 0 if gate.quotas is None else request.charge(request.size_bytes)
        if not duplicate:
            self._metrics.messages_in += last - first + 1
            self._metrics.bytes_in += stop - start
        committed = log.stable_end if acks == 1 and not duplicate else leader.high_watermark
        if committed <= last:
            results = [(topic, [Result(index, 0, first, append_time_ms, log.start_offset)])]
            waits = [Wait(0, 0, partition, last + 1, -1 if duplicate else acks)]
            slot = connection.defer(barrier=False)
            self._park(slot, request, results, waits, timeout_ms, throttle_ms)
            return True
        connection.send(
            encode_single(request.correlation_id, named, index, first, append_time_ms, log.start_offset, throttle_ms)
        )
        return True

    def _append_all(self, request: Request, view: memoryview, body: Produced) -> tuple[TopicResults, list[Wait]]:
        """Append every batch. Those that are not committed yet, or wait to be opened, are in the second list."""
        version, acks = request.version, body.acks
        lookup = self._table.by_id if version >= TOPIC_IDS_FROM else self._table.by_name
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refusal = refusal_of(request, body)
        wall_ms = self._wall_ms()
        results: TopicResults = []
        waits: list[Wait] = []
        self._opened_on_loop = 0
        self._queued.clear()
        for topic, entries in body.topics:
            partitions = lookup.get(topic)
            denied = request.is_restricted and not may_write(request, topic, partitions, version)
            outcome: list[Result] = []
            results.append((topic, outcome))
            for index, start, stop in entries:
                if denied:
                    outcome.append(Result(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                elif partitions is None:
                    outcome.append(Result(index, unknown))
                elif not 0 <= index < len(partitions):
                    outcome.append(Result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                elif refusal is not None:
                    outcome.append(Result(index, refusal.code, message=refusal.message))
                else:
                    self._append_one(partitions[index], view[start:stop], acks, wall_ms, outcome, waits, len(results))
        return results, waits

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
                # This transaction could never be ended, and would block read_committed readers for ever.
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
        """Whether batches cannot be appended at once: others are queued before them, or decompressing takes long."""
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
        request: Request,
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
            request.version,
            request.correlation_id,
            results,
            waits,
            timeout_ms,
            throttle_ms,
        )


def refusal_of(request: Request, body: Produced) -> KafkaError | None:
    """Why no batch of the request is appended."""
    if body.transactional_id is not None:
        if not request.allowed(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, body.transactional_id):
            return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return KafkaError(ErrorCode.INVALID_REQUEST, TRANSACTIONS_ARE_MISSING)
    return None if body.acks in (0, 1, -1) else KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)


def may_write(request: Request, topic: bytes, partitions: list[Partition] | None, version: int) -> bool:
    """Unknown topic ids are answered as unknown, to every client."""
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


def may_write_quickly(request: Request, topic: str) -> bool:
    """A "no" is not recorded yet: the request is then read in full, and asks again."""
    if not request.permits(Operation.WRITE, ResourceKind.TOPIC, topic):
        return False
    return request.gate.audit is None or request.allowed(Operation.WRITE, ResourceKind.TOPIC, topic)
