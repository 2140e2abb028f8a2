"""EndTxn, fencing, and the completion of transactions.

EndTxn: version 2 knows PRODUCER_FENCED, 3 is flexible, 4 may be answered TRANSACTION_ABORTABLE. Version 5 belongs to
transactions of version 2 (KIP-890): it raises the epoch, and the answer has the producer's new id and epoch.

A request that comes a second time, because its answer was lost, must be recognised without taking it for a decision
about the next transaction. In version 1 it has the same epoch as the next transaction, and only the state tells. In
version 2 it has an epoch one lower, or the last epoch of the previous producer id.
"""

from __future__ import annotations

from penstock.coordinators.shard import RequestInfo, Ticket, Turn
from penstock.coordinators.transactions.markers import Markers
from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.table import TransactionTable
from penstock.coordinators.transactions.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    VERSION_2,
    Transaction,
)
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_FROM = 2
"""The first version that knows PRODUCER_FENCED."""
VERSION_2_FROM = 5


class Ending:
    def __init__(self, table: TransactionTable) -> None:
        self._table = table
        self.markers = Markers(table, self._complete)

    # -- EndTxn ------------------------------------------------------------------------------------------------------

    def end(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: EndTxnRequest) -> None:
        try:
            producer_id, epoch = self._decide(turn, info, request)
        except KafkaError as error:
            code = error.code
            self._table.config.counts.errors[code] += 1
            if code is ErrorCode.PRODUCER_FENCED and info.version < FENCED_FROM:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            turn.reply(ticket, EndTxnResponse(error_code=code))
            return
        turn.reply(ticket, EndTxnResponse(producer_id=producer_id, producer_epoch=epoch))

    def _decide(self, turn: Turn, info: RequestInfo, request: EndTxnRequest) -> tuple[int, int]:
        """The id and the epoch of the producer's next transaction."""
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction = self._table.find(request.transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if info.version >= VERSION_2_FROM:
            is_done = is_done_in_version_2(transaction, request)
        else:
            is_done = is_done_in_version_1(transaction, request)
        if not is_done:
            self._prepare(turn, transaction, request.committed, VERSION_2 if info.version >= VERSION_2_FROM else 0)
        if transaction.next_producer_id != NO_PRODUCER_ID:
            return transaction.next_producer_id, 0
        return transaction.producer_id, transaction.producer_epoch

    # -- decisions ---------------------------------------------------------------------------------------------------

    def fence(self, turn: Turn, transaction: Transaction) -> None:
        """Abort the open transaction of a producer that another one replaces, or that took too long."""
        transaction.change(State.PREPARE_EPOCH_FENCE, turn.wall_ms)
        self._prepare(turn, transaction, False, transaction.version, fences=True)

    def _prepare(
        self, turn: Turn, transaction: Transaction, committed: bool, version: int, *, fences: bool = False
    ) -> None:
        was_open = transaction.state in (State.ONGOING, State.PREPARE_EPOCH_FENCE)
        epoch = transaction.producer_epoch
        if epoch == EPOCH_MAX:
            # Only the log of another broker can have a transaction with this epoch (KAFKA-20090). No higher one exists,
            # as the markers of version 2 need: end it by the rules of version 1.
            version = min(version, 1)
        if version >= VERSION_2 and epoch >= LAST_EPOCH:
            transaction.next_producer_id = self._next_producer_id(fences)
        if version >= VERSION_2 or fences:
            transaction.last_epoch = epoch
            transaction.producer_epoch = min(epoch + 1, EPOCH_MAX)
        if not was_open:
            transaction.started_ms = turn.wall_ms
        transaction.version = version
        transaction.change(State.PREPARE_COMMIT if committed else State.PREPARE_ABORT, turn.wall_ms)
        self._table.write(turn, transaction)
        if was_open:
            self._table.config.counts.open -= 1
        self.markers.send(turn, transaction)

    def _next_producer_id(self, fences: bool) -> int:
        try:
            return self._table.new_producer_id()
        except KafkaError:
            if fences:
                # InitProducerId will move the transactional id to another producer id.
                return NO_PRODUCER_ID
            raise

    def _complete(self, turn: Turn, transaction: Transaction) -> None:
        """All partitions have their markers."""
        counts = self._table.config.counts
        committed = transaction.state is State.PREPARE_COMMIT
        transaction.change(State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT, turn.wall_ms)
        transaction.partitions = {}
        if transaction.next_producer_id != NO_PRODUCER_ID:
            transaction.previous_producer_id = transaction.producer_id
            transaction.producer_id = transaction.next_producer_id
            transaction.next_producer_id = NO_PRODUCER_ID
            transaction.producer_epoch = 0
            transaction.last_epoch = NO_EPOCH
        self._table.write(turn, transaction)
        counts.committed += committed
        counts.aborted += not committed
        counts.on_ended(max(0, transaction.updated_ms - transaction.started_ms))


def is_done_in_version_2(transaction: Transaction, request: EndTxnRequest) -> bool:
    """Whether the transaction was ended already by the same request. Raises KafkaError if it must not be ended."""
    state = transaction.state
    if transaction.is_prepared:
        # Before the ids are compared: with an exhausted epoch the producer may have the next id already (KAFKA-18660).
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    epoch = request.producer_epoch
    was_raised = transaction.version >= VERSION_2 and state is not State.EMPTY
    was_moved = (
        was_raised
        and request.producer_id == transaction.previous_producer_id
        and epoch == LAST_EPOCH
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != request.producer_id and not was_moved:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_repeated = transaction.is_resting and was_raised and (was_moved or epoch + 1 == transaction.producer_epoch)
    if is_repeated and transaction.producer_epoch == EPOCH_MAX:
        # Fenced with the largest epoch, which is not for producers: InitProducerId gives another producer id.
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if not is_repeated and epoch != transaction.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if is_repeated:
        if request.committed != (state is State.COMPLETE_COMMIT):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return True
    if transaction.is_resting and request.committed:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return False


def is_done_in_version_1(transaction: Transaction, request: EndTxnRequest) -> bool:
    """Whether the transaction was ended already by the same request. Raises KafkaError if it must not be ended."""
    state = transaction.state
    if transaction.producer_id != request.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state is State.ONGOING:
        return False
    if state is (State.COMPLETE_COMMIT if request.committed else State.COMPLETE_ABORT):
        return True
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)
