"""InitProducerId: a producer id and an epoch for a transactional id.

The new epoch fences every older producer with the same transactional id. If one of them has an open transaction, it is
aborted first, and the new producer is told to try again (CONCURRENT_TRANSACTIONS).

Version 3 lets a producer name its id and epoch, to continue after an error (KIP-360). It gets a new epoch only if
nobody took its place meanwhile. If it asks twice, because the first answer was lost, both answers are the same.
"""

from __future__ import annotations

from penstock.coordinators.shard import RequestInfo, Ticket, Turn
from penstock.coordinators.transactions.ending import Ending
from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.table import TransactionTable
from penstock.coordinators.transactions.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    Transaction,
)
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_FROM = 4
"""The first version that knows PRODUCER_FENCED."""
TRANSACTIONAL_ID_BYTES_MAX = 32_767
"""The longest key of a record in `__transaction_state`."""


class Producers:
    def __init__(self, table: TransactionTable, ending: Ending) -> None:
        self._table = table
        self._ending = ending

    def init(self, turn: Turn, ticket: Ticket, info: RequestInfo, request: InitProducerIdRequest) -> None:
        try:
            transaction = self._decide(turn, request)
        except KafkaError as error:
            code = error.code
            self._table.config.counts.errors[code] += 1
            if code is ErrorCode.PRODUCER_FENCED and info.version < FENCED_FROM:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            turn.reply(ticket, InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH))
            return
        turn.reply(
            ticket,
            InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch),
        )

    def _decide(self, turn: Turn, request: InitProducerIdRequest) -> Transaction:
        transaction = self._table.find(request.transactional_id or "")
        self._check(request, is_new=transaction is None)
        if transaction is None:
            transaction = Transaction(
                request.transactional_id or "",
                self._table.new_producer_id(),
                request.transaction_timeout_ms,
                turn.wall_ms,
            )
        if transaction.is_prepared:
            # Before the ids are compared: with an exhausted epoch the producer may have the next id already.
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        expects = request.producer_id != NO_PRODUCER_ID
        if expects and not _is_own_id(transaction, request):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if transaction.state is State.ONGOING:
            # Kafka lets a fenced producer abort the transaction of its successor here.
            if expects and request.producer_epoch < transaction.producer_epoch:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            self._ending.fence(turn, transaction)
            self._table.config.counts.fenced += 1
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        self._raise_epoch(transaction, request.producer_epoch if expects else None)
        transaction.change(State.EMPTY, turn.wall_ms)
        transaction.started_ms = NOT_STARTED
        transaction.timeout_ms = request.transaction_timeout_ms
        self._table.write(turn, transaction)
        return transaction

    def _check(self, request: InitProducerIdRequest, *, is_new: bool) -> None:
        config = self._table.config
        transactional_id = request.transactional_id
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is too long")
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id needs an epoch, and an epoch a producer id")
        if not 0 < request.transaction_timeout_ms <= config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if is_new and config.counts.ids >= config.penstock_transactional_ids_max:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)

    def _raise_epoch(self, transaction: Transaction, expected: int | None) -> None:
        epoch, last = transaction.producer_epoch, transaction.last_epoch
        # A producer that was fenced with the last epoch of all cannot be given that one.
        is_answered_again = expected is not None and expected == last and epoch < EPOCH_MAX
        if expected is not None and NO_EPOCH != epoch != expected and expected != last:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if epoch != expected and is_answered_again:
            return
        transaction.last_epoch = NO_EPOCH if expected is None else expected
        if epoch >= LAST_EPOCH:
            transaction.previous_producer_id = transaction.producer_id
            transaction.producer_id = self._table.new_producer_id()
            transaction.producer_epoch = 0
        else:
            transaction.producer_epoch = epoch + 1


def _is_own_id(transaction: Transaction, request: InitProducerIdRequest) -> bool:
    """Whether the id that the producer names belongs to this transactional id: it was just created, it is the current
    id, or the previous one whose epochs are exhausted (then the answer to an earlier request was lost)."""
    return (
        transaction.producer_epoch == NO_EPOCH
        or request.producer_id == transaction.producer_id
        or (request.producer_id == transaction.previous_producer_id and request.producer_epoch >= LAST_EPOCH)
    )
