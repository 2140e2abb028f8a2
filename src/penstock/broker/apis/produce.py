"""Produce (0): append record batches.

Served: v3–v13, parsed by hand from the connection's buffer (nothing is copied between the socket and the page cache).

- v3 adds the transactional id (KIP-98), v5 the log start offset in the answer, v8 per-record errors and a message
  (KIP-467), v9 flexible encoding, v10 the current leader on NOT_LEADER_OR_FOLLOWER (KIP-951), v11
  TRANSACTION_ABORTABLE, v12 adds partitions to the transaction (KIP-890), v13 replaces names by topic ids (KIP-516).
- acks=0 gets no answer; after an error the connection is closed, which is the only possible signal to such a client.
- acks=1 waits for the leader alone (for a sync if `flush.*` requires one), acks=all for the high watermark.
- A partition that a request names twice gets both batches, in order. (Kafka silently drops all but the last.)
- A duplicate of an idempotent producer is answered with its first offset, once that is committed.
- The first batch of a transaction in a partition waits until the transaction coordinator was asked
  (`penstock.broker.produce.verifying`), and later batches of the partition wait behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError

from penstock.broker import limits
from penstock.broker.net.connection import Connection, Slot
from penstock.broker.net.request import Request
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.produce.parked import ParkedProduce, Wait, check_unanswered
from penstock.broker.produce.preparing import Preparation
from penstock.broker.produce.response import Result, TopicResults, encode, encode_single, refused
from penstock.broker.produce.verifying import ADDS_PARTITIONS_FROM, KNOWS_ABORTABLE_FROM, TransactionalBatch
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
    read_header,
)

LENGTH_POSITION = 8
ATTRIBUTES_LOW_POSITION = CRC_POSITION + 5

_int = Struct(">i").unpack_from

UNUSUAL_FLAGS = TRANSACTIONAL_FLAG | CODEC_MASK
"""Transactional batches may have to wait for their coordinator, compressed ones be opened in a thread."""
TRANSACTIONAL_ID_BYTES_MAX = 32_767
"""The longest string of the protocol's older versions, which Kafka keeps as the limit."""


class Produce:
    """Serves Produce requests."""

    __slots__ = (
        "_adds_partitions",
        "_metrics",
        "_opened_on_loop",
        "_preparation",
        "_queued",
        "_runtime",
        "_table",
        "_wall_ms",
    )

    def __init__(
        self,
        runtime: Runtime,
        table: PartitionTable,
        metrics: BrokerMetrics,
        preparation: Preparation,
        adds_partitions: Callable[[], bool] = lambda: False,
    ) -> None:
        """`adds_partitions`: whether version 2 of transactions is in force."""
        self._adds_partitions = adds_partitions
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
        transactional_id = body.transactional_id
        if transactional_id is not None and refusal is None:
            refusal = refusal_of_producers(view, body)
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
                    self._append_one(
                        partitions[index],
                        view[start:stop],
                        acks,
                        wall_ms,
                        outcome,
                        waits,
                        len(results),
                        version,
                        transactional_id,
                    )
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
        version: int,
        transactional_id: str | None,
    ) -> None:
        appended: Appended | None = None
        transactional: TransactionalBatch | None = None
        try:
            flags = batch_flags(records)
            if flags & TRANSACTIONAL_FLAG:
                transactional = self._unverified(partition, records, version, transactional_id)
            is_plain = partition.preparing is None and not flags & CODEC_MASK
            if (
                transactional is None
                and partition not in self._queued
                and (is_plain or not self._must_queue(partition, records))
            ):
                try:
                    appended = partition.append(records, acks, wall_ms)
                except TooLargeForLoop:
                    appended = None
            if appended is None:
                copy = self._preparation.copy(partition, records, acks)
                self._queued.add(partition)
                waits.append(Wait(topic_number - 1, len(outcome), partition, -1, acks, copy, transactional))
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

    def _unverified(
        self, partition: Partition, records: memoryview, version: int, transactional_id: str | None
    ) -> TransactionalBatch | None:
        """A transactional batch that its coordinator must be asked about; None if it need not be. Raises KafkaError."""
        if transactional_id is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
            )
        log = partition.log
        if log is None or len(records) < HEADER_SIZE:
            return None  # appending says why that is not possible
        header = read_header(records)
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer_id < 0:
            return None
        known = log.producers.get(producer_id)
        if known is not None and (
            known.has_open_transaction(epoch)
            or known.epoch > epoch
            or known.find(epoch, header.base_sequence, header.last_sequence) is not None
        ):
            return None
        return TransactionalBatch(
            transactional_id,
            producer_id,
            epoch,
            header.base_sequence,
            adds_partition=version >= ADDS_PARTITIONS_FROM and self._adds_partitions(),
            knows_abortable=version >= KNOWS_ABORTABLE_FROM,
        )

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
        if len(body.transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
            return KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is too long")
    return None if body.acks in (0, 1, -1) else KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)


def refusal_of_producers(view: memoryview, body: Produced) -> KafkaError | None:
    """Kafka refuses a request with transactional batches of several producers."""
    found: tuple[int, int] | None = None
    for _, entries in body.topics:
        for _, start, stop in entries:
            if stop - start >= HEADER_SIZE and view[start + ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_FLAG:
                header = read_header(view, start)
                producer = (header.producer_id, header.producer_epoch)
                if found is not None and producer != found:
                    reason = "the transactional batches of a request must have one producer"
                    return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, reason)
                found = producer
    return None


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
