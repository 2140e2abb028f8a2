"""Asks transaction coordinators about the first batch of a transaction in a partition (KIP-890).

Without this a batch that arrives after its transaction has ended would open a transaction that nobody ends: it would
block readers of committed records for ever. A leader therefore asks the coordinator of the transactional id
(AddPartitionsToTxn):

    version 2 of transactions (Produce v12 on, if the feature `transaction.version` is 2)   add the partition
    version 1                                                                                verify that it was added

Questions for the same broker travel in one request. While a request is under way further questions wait for the next.
If this broker is the coordinator, its handler is called without a connection.

`penstock.broker.produce.preparing` keeps the batch, and all later ones of the partition, until the answer is there.
`penstock.log.producers.Verification` decides whether the answer still counts.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol

from penstock.broker.net.peer_connection import PeerUnavailable
from penstock.log import Verification
from penstock.runtime import Future, Runtime
from penstock.runtime.eventlog import EventLog
from penstock.telemetry.samples import Histogram
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

PARTITIONS_PER_REQUEST_MAX = 1_000
NO_COORDINATOR = -1

KNOWS_ABORTABLE_FROM = 11
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE."""
ADDS_PARTITIONS_FROM = 12
"""The first version of Produce that adds its partitions to the transaction, under version 2 of transactions."""

UNAVAILABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors that pass by themselves. Producers do not expect them in an answer to Produce."""


class TransactionalBatch(NamedTuple):
    """The first batch of a transaction in a partition, as far as this broker knows."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequence: int
    adds_partition: bool
    """Version 2 of transactions: the leader adds the partition. Otherwise it only verifies that it was added."""
    knows_abortable: bool
    """Whether the client knows TRANSACTION_ABORTABLE."""


class Coordination(Protocol):
    """Where transaction coordinators are, and how to reach them."""

    def broker_of(self, transactional_id: str) -> int:
        """The broker that coordinates the id; NO_COORDINATOR if there is none."""

    def ask(self, broker_id: int, request: AddPartitionsToTxnRequest) -> Awaitable[AddPartitionsToTxnResponse]:
        """Raises PeerUnavailable."""


class Question:
    __slots__ = ("answer", "batch", "index", "key", "started_ms", "topic")

    def __init__(
        self,
        topic: str,
        index: int,
        batch: TransactionalBatch,
        key: Verification,
        answer: Future[ErrorCode],
        started_ms: float,
    ) -> None:
        self.key = key
        self.topic = topic
        self.index = index
        self.batch = batch
        self.answer = answer
        self.started_ms = started_ms

    @property
    def transaction(self) -> tuple[int, int, bool]:
        """What a request may name only once for each transactional id."""
        return self.batch.producer_id, self.batch.producer_epoch, self.batch.adds_partition


class Verifier:
    """The questions of one broker to transaction coordinators."""

    def __init__(self, runtime: Runtime, events: EventLog, coordination: Coordination) -> None:
        self._runtime = runtime
        self._events = events
        self.coordination = coordination
        self._questions: dict[Verification, Question] = {}
        self._queues: dict[int, list[Question]] = {}
        """By broker. An entry exists while a request is under way or about to be sent."""
        self.times = Histogram()
        self.failures = 0

    def ask(self, topic: str, index: int, batch: TransactionalBatch, verification: Verification) -> Future[ErrorCode]:
        """The future resolves to the coordinator's answer; NONE if the batch may be appended. Batches with the same
        `verification` share the answer: nothing has happened in between that makes it outdated."""
        asked = self._questions.get(verification)
        if asked is not None:
            return asked.answer
        answer: Future[ErrorCode] = self._runtime.future()
        question = Question(topic, index, batch, verification, answer, self._runtime.now_ms())
        self._questions[verification] = question
        self._enqueue(question)
        return answer

    def _enqueue(self, question: Question) -> None:
        broker_id = self.coordination.broker_of(question.batch.transactional_id)
        if broker_id == NO_COORDINATOR:
            self._settle(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        queue = self._queues.get(broker_id)
        if queue is None:
            self._queues[broker_id] = [question]
            self._runtime.spawn(self._deliver(broker_id), "verify transactions")
        else:
            queue.append(question)

    async def _deliver(self, broker_id: int) -> None:
        queues = self._queues
        while queues[broker_id]:
            batch, queues[broker_id] = _next_request(queues[broker_id])
            for question, code in await self._attempt(broker_id, batch):
                self._settle(question, code)
        del queues[broker_id]

    async def _attempt(self, broker_id: int, batch: list[Question]) -> list[tuple[Question, ErrorCode]]:
        try:
            response = await self.coordination.ask(broker_id, _combined(batch))
        except (PeerUnavailable, KafkaError) as error:
            self._events.recurring("transactions not verified", broker_id, coordinator=broker_id, error=str(error))
            return [(question, ErrorCode.NETWORK_EXCEPTION) for question in batch]
        whole = ErrorCode(response.error_code)
        if whole:
            self._events.recurring("transactions not verified", broker_id, coordinator=broker_id, error=whole.name)
            # A client must not learn that this broker lacks a permission.
            shown = ErrorCode.INVALID_TXN_STATE if whole == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else whole
            return [(question, shown) for question in batch]
        codes = {
            (result.transactional_id, topic.name, partition.partition_index): partition.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        missing = ErrorCode.NETWORK_EXCEPTION
        return [
            (one, ErrorCode(codes.get((one.batch.transactional_id, one.topic, one.index), missing))) for one in batch
        ]

    def _settle(self, question: Question, code: ErrorCode) -> None:
        del self._questions[question.key]
        self.times.record(self._runtime.now_ms() - question.started_ms)
        self.failures += code != ErrorCode.NONE
        if not question.answer.done():
            question.answer.set_result(code)


def refusal_of(code: ErrorCode, batch: TransactionalBatch) -> KafkaError:
    """The error for a producer whose batch was not verified, as in Kafka."""
    if code == ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code == ErrorCode.TRANSACTION_ABORTABLE and batch.knows_abortable:
        return KafkaError(code)
    if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    reason = f"the transaction coordinator could not verify that the partition belongs to the transaction: {code.name}"
    if code in UNAVAILABLE:
        # Older clients retry this error as they should, and do not ask for metadata before.
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
    if code == ErrorCode.UNKNOWN_PRODUCER_ID:
        return KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)
    return KafkaError(code, reason)


def _next_request(queue: list[Question]) -> tuple[list[Question], list[Question]]:
    """(the questions of the next request, those that wait for another): a request names a transactional id once."""
    asked: dict[str, tuple[int, int, bool]] = {}
    now: list[Question] = []
    later: list[Question] = []
    for question in queue:
        transaction = asked.setdefault(question.batch.transactional_id, question.transaction)
        fits = transaction == question.transaction and len(now) < PARTITIONS_PER_REQUEST_MAX
        (now if fits else later).append(question)
    return now, later


def _combined(batch: list[Question]) -> AddPartitionsToTxnRequest:
    transactions: dict[str, AddPartitionsToTxnTransaction] = {}
    topics: dict[tuple[str, str], AddPartitionsToTxnTopic] = {}
    for question in batch:
        producer_id, producer_epoch, adds_partition = question.transaction
        transactional_id, name = question.batch.transactional_id, question.topic
        transaction = transactions.get(transactional_id)
        if transaction is None:
            transaction = transactions[transactional_id] = AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=not adds_partition,
                topics=[],
            )
        topic = topics.get((transactional_id, name))
        if topic is None:
            topic = topics[transactional_id, name] = AddPartitionsToTxnTopic(name=name, partitions=[])
            transaction.topics.append(topic)
        if question.index not in topic.partitions:
            topic.partitions.append(question.index)
    return AddPartitionsToTxnRequest(transactions=list(transactions.values()))
