"""One partition of `__transaction_state`: all transactional ids that hash to it.

AddPartitionsToTxn and AddOffsetsToTxn are decided here; the other requests in the modules that the package docstring
lists. AddPartitionsToTxn 4 and later come from brokers, for transactions of version 2, or to verify that a partition
belongs to an open transaction before its first batch is written.
"""

from __future__ import annotations

from typing import Final

from penstock.coordinators.shard import RequestInfo, Shard, Ticket, Turn
from penstock.coordinators.transactions.config import TransactionConfig
from penstock.coordinators.transactions.ending import Ending
from penstock.coordinators.transactions.expiry import Expiry
from penstock.coordinators.transactions.listing import Filter, described, listed, not_described
from penstock.coordinators.transactions.producers import Producers
from penstock.coordinators.transactions.records import decoded, size_bytes_max, transactional_id_of
from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.table import ProducerIdSource, TransactionTable
from penstock.coordinators.transactions.transaction import VERSION_2, TopicPartition, Transaction
from penstock.metadata import MetadataDelta
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsResponse

FENCED_FROM: Final = 2
"""The first version of AddPartitionsToTxn and AddOffsetsToTxn that knows PRODUCER_FENCED."""
VERSION_2_FROM: Final = 4
"""AddPartitionsToTxn: versions that brokers send."""
BATCH_OVERHEAD_BYTES: Final = 128


class TransactionShard(Shard):
    """Every request method answers through `turn.reply(ticket, …)` at once."""

    def __init__(self, config: TransactionConfig, take_producer_id: ProducerIdSource) -> None:
        self.table = TransactionTable(config, take_producer_id)
        self._ending = Ending(self.table)
        self._producers = Producers(self.table, self._ending)
        self._expiry = Expiry(self.table, self._ending)

    @property
    def config(self) -> TransactionConfig:
        return self.table.config

    @config.setter
    def config(self, config: TransactionConfig) -> None:
        self.table.config = config

    # -- requests of producers ---------------------------------------------------------------------------------------

    def init_producer_id(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: InitProducerIdRequest) -> None:
        self._producers.init(turn, ticket, info, request)

    def end_txn(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: EndTxnRequest) -> None:
        self._ending.end(turn, ticket, info, request)

    def add_partitions(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, request: AddPartitionsToTxnTransaction
    ) -> None:
        """One transaction of an AddPartitionsToTxn: the answer is an AddPartitionsToTxnResult."""
        partitions = [(topic.name, index) for topic in request.topics for index in topic.partitions]
        version = VERSION_2 if info.version >= VERSION_2_FROM else 0
        errors: dict[TopicPartition, ErrorCode] = {}
        try:
            transaction = self._find(request)
            if not request.verify_only:
                self._add(turn, transaction, partitions, version)
            else:
                absent = ErrorCode.TRANSACTION_ABORTABLE
                errors = {partition: absent for partition in partitions if partition not in transaction.partitions}
        except KafkaError as error:
            errors = dict.fromkeys(partitions, self._refused(info, error.code))
        turn.reply(ticket, added(request, errors))

    def add_offsets(
        self, turn: Turn, ticket: Ticket, info: RequestInfo, request: AddOffsetsToTxnRequest, partition: TopicPartition
    ) -> None:
        """AddOffsetsToTxn: the partition of `__consumer_offsets` that holds the group's offsets."""
        code = ErrorCode.NONE
        try:
            self._add(turn, self._find(request), [partition], 0)
        except KafkaError as error:
            code = self._refused(info, error.code)
        turn.reply(ticket, AddOffsetsToTxnResponse(error_code=code))

    def _find(self, request: AddPartitionsToTxnTransaction | AddOffsetsToTxnRequest) -> Transaction:
        """The transaction of this producer. Raises KafkaError."""
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = self.table.find(request.transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        verifies = isinstance(request, AddPartitionsToTxnTransaction) and request.verify_only
        if transaction.is_prepared and not verifies:
            # Before the ids are compared: the answer to EndTxn may have told the producer its next id (KAFKA-18660).
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.producer_id != request.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if transaction.producer_epoch != request.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if transaction.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return transaction

    def _add(self, turn: Turn, transaction: Transaction, partitions: list[TopicPartition], version: int) -> None:
        is_open = transaction.state is State.ONGOING
        new = [partition for partition in partitions if partition not in transaction.partitions]
        if is_open and not new:
            return
        counts = self.config.counts
        if not is_open and counts.open >= self.config.penstock_transactions_open_max:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if size_bytes_max(transaction, new) + BATCH_OVERHEAD_BYTES > self.config.batch_bytes_max:
            # Kafka's answer when the record does not fit into a batch.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if not is_open:
            transaction.started_ms = turn.wall_ms
            transaction.deadline_ms = turn.now_ms + transaction.timeout_ms
            counts.open += 1
        transaction.version = max(version, transaction.version) if is_open else version
        transaction.change(State.ONGOING, turn.wall_ms)
        transaction.partitions.update(dict.fromkeys(new))
        self.table.write(turn, transaction)

    def _refused(self, info: RequestInfo, code: ErrorCode) -> ErrorCode:
        self.config.counts.errors[code] += 1
        if code is ErrorCode.PRODUCER_FENCED and info.version < FENCED_FROM:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return code

    # -- administration ----------------------------------------------------------------------------------------------

    def describe(self, turn: Turn, ticket: Ticket, info: RequestInfo, transactional_id: str) -> None:
        """One id of a DescribeTransactions: the answer is a TransactionState."""
        transaction = self.table.find(transactional_id)
        if not transactional_id:
            turn.reply(ticket, not_described(transactional_id, ErrorCode.INVALID_REQUEST))
        elif transaction is None:
            turn.reply(ticket, not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
        else:
            turn.reply(ticket, described(transaction))

    def list_transactions(self, turn: Turn, ticket: Ticket, wanted: Filter) -> None:
        turn.reply(ticket, ListTransactionsResponse(transaction_states=listed(self.table, wanted, turn.wall_ms)))

    # -- life --------------------------------------------------------------------------------------------------------

    def replay(self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None) -> None:
        transactional_id = transactional_id_of(key)
        if transactional_id is None:
            return
        if value is None:
            self.table.forget(transactional_id)
        else:
            self.table.put(decoded(transactional_id, value))

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        pass  # Nobody writes to this topic in transactions.

    def on_loaded(self, turn: Turn) -> None:
        for transaction in list(self.table.active.values()):
            if transaction.state is State.ONGOING:
                self.config.counts.open += 1
                left_ms = transaction.started_ms + transaction.timeout_ms - turn.wall_ms
                transaction.deadline_ms = turn.now_ms + max(0, left_ms)
            else:
                # The former coordinator may have sent some of them. Leaders take a marker twice.
                self._ending.markers.send(turn, transaction)
        self._expiry.schedule(turn)

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        if delta.is_replayed:
            # Only a record proves that a topic was deleted.
            self._ending.markers.on_image(turn)

    def on_resigned(self) -> None:
        self.table.clear()

    def durable_state(self) -> dict[str, object]:
        """The state that replaying the log must reproduce."""
        return {
            transaction.transactional_id: (
                transaction.state,
                transaction.producer_id,
                transaction.previous_producer_id,
                transaction.next_producer_id,
                transaction.producer_epoch,
                transaction.timeout_ms,
                sorted(transaction.partitions),
                transaction.started_ms,
                transaction.updated_ms,
                transaction.version,
            )
            for transaction in sorted(self.table.all(), key=lambda one: one.transactional_id)
        }


def added(request: AddPartitionsToTxnTransaction, errors: dict[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResult:
    """The result of one transaction; partitions without an error were added, or verified."""
    return AddPartitionsToTxnResult(
        transactional_id=request.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(index, errors.get((topic.name, index), ErrorCode.NONE))
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
