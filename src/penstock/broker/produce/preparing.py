"""Batches that must wait before they are appended: to be decompressed, recompressed, or for a transaction coordinator.

Small batches are decompressed on the loop when they are appended. Others are copied from the receive buffer, wait in
the queue of their partition, and are prepared one after the other in a thread (`penstock.log.preparing`). While one
batch of a partition is being prepared, all later ones wait, whatever their codec, so that they are appended in order.

The first batch of a transaction waits in the same queue until the transaction coordinator has been asked (`verifying`).
All batches in the queue are asked about at the same time. Two answers lead to another question:

- CONCURRENT_TRANSACTIONS: the markers of the producer's last transaction are still being written. That takes
  milliseconds, so the question is repeated for a short time before the producer is told to retry.
- Yes, but a marker was appended while the question was under way. The answer may be that of the transaction which the
  marker has ended, or of the next one.

Whatever happens to a batch, its request is answered and the queue continues.

Three limits keep clients from exhausting memory or CPU with compressed data:

- the batches of one request may decompress to `penstock.decompression.request.bytes.max` in total, otherwise it is
  refused;
- in the whole broker, batches in preparation may decompress to `penstock.decompression.bytes.max`; others wait. Each
  batch first reserves a little, and more only if that was not enough;
- the waiting copies may take `PREPARING_BYTES_MAX`; a batch beyond it is refused as timed out, so its producer retries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.broker import limits
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.produce.verifying import TransactionalBatch, Verifier, refusal_of
from penstock.broker.replicas.partition import Partition
from penstock.broker.service import trace
from penstock.config import BrokerConfig, TopicConfig
from penstock.log import Appended, Log, Verification
from penstock.log.preparing import prepare
from penstock.runtime import Future, Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.compression import Codec, DecompressedTooLarge
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.recompression import UNCOMPRESSED, Recompression, codecs_in

FIRST_BYTES_MIN = 1024 * 1024
FIRST_RATIO = 4
GROWTH = 4
"""The decompressed size reserved for the first attempt at a batch, and added for each further attempt."""

QUESTIONS_MAX = 3
"""How often a coordinator's consent may turn out to be outdated before the batch is refused."""

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

Done = Callable[[Appended | KafkaError], None]


class Allowance:
    """How much more the batches of one request may decompress to."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Waiting(NamedTuple):
    records: bytearray
    acks: int
    leader_epoch: int
    allowance: Allowance
    done: Done
    question: Question | None = None


class Question(NamedTuple):
    """A question to the transaction coordinator, which must be answered before the batch is appended."""

    batch: TransactionalBatch
    verification: Verification
    answer: Future[ErrorCode]


class PartitionQueue:
    """The queue before a partition's log: exists while batches wait, or if the topic has a codec of its own."""

    __slots__ = ("is_working", "recompression", "waiting")

    def __init__(self) -> None:
        self.recompression: Recompression | None = None
        self.waiting: deque[Waiting] = deque()
        self.is_working = False

    def changes(self, codecs: int) -> bool:
        """Whether a batch with one of these codecs (`codecs_in`) must be recompressed."""
        return self.recompression is not None and self.recompression.changes(codecs)

    def must_open(self, codecs: int, log: Log) -> bool:
        """Whether batches with these codecs may be too much work to append on the loop."""
        return self.changes(codecs) or (codecs != UNCOMPRESSED and log.opens_batches)


class WorkBudget:
    """Limits concurrent decompression in bytes and in batches. Work that does not fit waits, first come, first
    served."""

    def __init__(self, runtime: Runtime, bytes_max: int, jobs_max: int) -> None:
        self._runtime = runtime
        self._queue: deque[tuple[int, Future[None]]] = deque()
        self._left_bytes = bytes_max
        self._left_jobs = jobs_max
        self.bytes_max = bytes_max

    async def take(self, size: int) -> None:
        assert size <= self.bytes_max
        turn: Future[None] = self._runtime.future()
        self._queue.append((size, turn))
        self._admit()
        await turn

    def give_back(self, size: int) -> None:
        self._left_bytes += size
        self._left_jobs += 1
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._left_jobs and self._queue[0][0] <= self._left_bytes:
            size, turn = self._queue.popleft()
            if turn.done():
                continue  # cancelled because the broker is stopping
            self._left_bytes -= size
            self._left_jobs -= 1
            turn.set_result(None)


class Preparation:
    """Prepares batches for all partitions of a broker."""

    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        metrics: BrokerMetrics,
        config: BrokerConfig,
        verifier: Verifier | None = None,
    ) -> None:
        self._verifier = verifier
        self._verify_again_ms = config.add_partitions_to_txn_retry_backoff_ms
        self._verify_again_max_ms = config.add_partitions_to_txn_retry_backoff_max_ms
        self._runtime = runtime
        self._events = events
        self._metrics = metrics
        self._request_bytes_max = config.penstock_decompression_request_bytes_max
        self._budget = WorkBudget(runtime, config.penstock_decompression_bytes_max, limits.PREPARING_JOBS_MAX)
        self.queued_bytes = 0
        """Bytes of copied batches that wait or are being prepared."""

    def allowance(self) -> Allowance:
        return Allowance(self._request_bytes_max)

    def copy(self, partition: Partition, records: memoryview, acks: int) -> bytearray:
        """Copy batches for the queue, if there is room and the partition could append them now. Raises KafkaError."""
        partition.check_append(acks)
        log, _ = partition.led()
        if len(records) > log.config.segment_bytes:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(records)} bytes do not fit into a segment")
        if self.queued_bytes + len(records) > limits.PREPARING_BYTES_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.queued_bytes} bytes of other batches are waiting to be checked; retry later",
            )
        return bytearray(records)

    def submit(
        self,
        partition: Partition,
        records: bytearray,
        acks: int,
        allowance: Allowance,
        done: Done,
        transactional: TransactionalBatch | None = None,
    ) -> None:
        """Append to the partition after everything submitted before, then call `done`. `transactional`: ask the
        transaction coordinator first."""
        question = None if transactional is None else self._question(partition, transactional)
        queue = partition.preparing
        if queue is None:
            queue = partition.preparing = PartitionQueue()
        self.queued_bytes += len(records)
        queue.waiting.append(Waiting(records, acks, partition.leader_epoch, allowance, done, question))
        if not queue.is_working:
            queue.is_working = True
            self._runtime.spawn(self._work(partition, queue), f"prepare {partition}")

    def _question(self, partition: Partition, batch: TransactionalBatch) -> Question | None:
        log = partition.log
        if log is None or self._verifier is None:
            return None  # the append is refused
        verification = log.producers.begin_verification(
            batch.producer_id,
            batch.producer_epoch,
            batch.sequence,
            self._runtime.wall_ms(),
            is_new_state_expected=batch.adds_partition,
        )
        if verification is None:
            return None
        answer = self._verifier.ask(partition.topic, partition.index, batch, verification)
        return Question(batch, verification, answer)

    async def _verified(self, partition: Partition, waiting: Waiting, question: Question) -> Verification | None:
        """The verification with which the batch may be appended; None if the transaction is open meanwhile. Raises
        KafkaError."""
        batch = question.batch
        retry_until_ms = self._runtime.now_ms() + self._verify_again_max_ms
        asked = 1
        while True:
            code = await question.answer
            if partition.leader_epoch != waiting.leader_epoch:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            log, _ = partition.led()
            if code == ErrorCode.CONCURRENT_TRANSACTIONS and self._runtime.now_ms() < retry_until_ms:
                await self._runtime.sleep(self._verify_again_ms)
            elif code:
                raise refusal_of(code, batch)
            else:
                is_current = log.producers.verification_of(batch.producer_id) is question.verification
                if is_current or asked == QUESTIONS_MAX:
                    return question.verification
                asked += 1
            again = self._question(partition, batch)
            if again is None:
                return None
            question = again

    async def _work(self, partition: Partition, queue: PartitionQueue) -> None:
        try:
            await self._empty(partition, queue)
        finally:
            queue.is_working = False
            if queue.recompression is None and partition.preparing is queue and not queue.waiting:
                partition.preparing = None

    async def _empty(self, partition: Partition, queue: PartitionQueue) -> None:
        while queue.waiting:
            waiting = queue.waiting.popleft()
            size = len(waiting.records)
            try:
                outcome: Appended | KafkaError = await self._append(partition, queue, waiting)
            except KafkaError as error:
                outcome = error
            except Exception as error:
                self._report(partition, error)
                outcome = KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to check the batch; see the broker's log"
                )
            self.queued_bytes -= size
            try:
                waiting.done(outcome)
            except Exception as error:
                self._report(partition, error)

    def _report(self, partition: Partition, error: Exception) -> None:
        self._metrics.unexpected_errors += 1
        self._events.error("unexpected error", partition=str(partition), error=repr(error), trace=trace(error))

    async def _append(self, partition: Partition, queue: PartitionQueue, waiting: Waiting) -> Appended:
        verification = None if waiting.question is None else await self._verified(partition, waiting, waiting.question)
        log, _ = partition.led()
        records, checked = waiting.records, False
        if queue.must_open(codecs_in(records), log):
            records, checked = await self._prepare(partition, queue, waiting), True
        if partition.leader_epoch != waiting.leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        appended = partition.append(
            memoryview(records),
            waiting.acks,
            self._runtime.wall_ms(),
            checked=checked,
            verification=verification,
        )
        partition.wake_soon()
        return appended

    async def _prepare(self, partition: Partition, queue: PartitionQueue, waiting: Waiting) -> bytearray:
        records, allowance = waiting.records, waiting.allowance
        wanted = max(FIRST_BYTES_MIN, FIRST_RATIO * len(records))
        while True:
            log, _ = partition.led()
            config, recompression = log.config, queue.recompression
            granted = min(wanted, allowance.left, self._budget.bytes_max)
            await self._budget.take(granted)
            if granted > allowance.left:
                # Other batches of the same request used up its allowance meanwhile.
                self._budget.give_back(granted)
                continue
            try:
                again, opened = await self._runtime.offload(
                    prepare, records, config, recompression, self._runtime.wall_ms(), granted
                )
            except DecompressedTooLarge:
                if granted < wanted:
                    allowance.left = 0
                    raise self._too_large() from None
                wanted *= GROWTH
                continue
            finally:
                self._budget.give_back(granted)
            allowance.left = max(allowance.left - opened, 0)
            if partition.log is log and log.config is config and queue.recompression == recompression:
                return again
            # The topic's configuration changed meanwhile, so the checks may not be sufficient.

    def _too_large(self) -> KafkaError:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            "the batches of the request decompress to more than this broker allows: "
            f"penstock.decompression.request.bytes.max is {self._request_bytes_max}, "
            f"penstock.decompression.bytes.max {self._budget.bytes_max}",
        )


def configure_compression(partition: Partition, config: TopicConfig) -> None:
    """Give the partition the codec that its topic's configuration requires, or none."""
    codec = CODECS.get(config.compression_type)
    recompression = None
    if codec is not None:
        level = {
            Codec.GZIP: config.compression_gzip_level if config.compression_gzip_level > 0 else None,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }.get(codec)
        recompression = Recompression(codec, level)
    if partition.preparing is None:
        if recompression is None:
            return
        partition.preparing = PartitionQueue()
    # A queue that is working stays even without a codec until it is empty: new batches must not overtake it.
    partition.preparing.recompression = recompression
    if recompression is None and not partition.preparing.is_working:
        partition.preparing = None
