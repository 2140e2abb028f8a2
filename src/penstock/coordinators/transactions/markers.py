"""Sends the markers of ended transactions to the leaders of their partitions, until every partition has its own.

Each partition is one request of the shard. The courier of the broker combines the requests to the same broker. An
answer with an error that may pass is followed by another request after a pause. The partition of a topic that was
deleted needs no marker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.coordinators.shard import Key, PartitionLeader, TimerKey, Turn
from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.table import TransactionTable
from penstock.coordinators.transactions.transaction import TopicPartition, Transaction
from penstock.metadata import MetadataImage
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

RETRY_MS: Final = 100.0
NOTHING_TO_END: Final = (
    # The partition has seen a newer epoch of this producer, so the transaction with this one has ended there.
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)


class Markers:
    def __init__(self, table: TransactionTable, complete: Callable[[Turn, Transaction], None]) -> None:
        self._table = table
        self._complete = complete

    def send(self, turn: Turn, transaction: Transaction) -> None:
        """Send the markers of a transaction that has just been decided, or loaded."""
        assert transaction.is_prepared
        assert not transaction.unmarked
        transaction.unmarked = dict(transaction.partitions)
        self._table.config.counts.markers += len(transaction.unmarked)
        for partition in transaction.partitions:
            self._ask(turn, transaction, partition)
        self._complete_if_done(turn, transaction)

    def on_image(self, turn: Turn) -> None:
        """Forget the partitions that were deleted."""
        for transaction in list(self._table.active.values()):
            if transaction.is_prepared:
                for partition in [one for one in transaction.unmarked if not exists(turn.image, one)]:
                    turn.cancel_ask(_key(transaction, partition))
                    self._done(transaction, partition)
                self._complete_if_done(turn, transaction)

    def _ask(self, turn: Turn, transaction: Transaction, partition: TopicPartition) -> None:
        if not exists(turn.image, partition):
            self._done(transaction, partition)
            return
        topic, index = partition
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=transaction.state is State.PREPARE_COMMIT,
            topics=[WritableTxnMarkerTopic(topic, [index])],
            coordinator_epoch=turn.coordinator_epoch,
            transaction_version=transaction.version,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        turn.ask(_key(transaction, partition), PartitionLeader(topic, index), request, self._answered)

    def _answered(self, turn: Turn, key: Key, response: Message) -> None:
        assert isinstance(response, WriteTxnMarkersResponse)
        _, transactional_id, topic, index = key
        transaction = self._table.active.get(transactional_id)
        partition = (topic, int(index))
        if transaction is None or partition not in transaction.unmarked:
            return
        error = _error_of(response, partition)
        if error and error not in NOTHING_TO_END and exists(turn.image, partition):
            turn.set_timer(key, RETRY_MS, self._ask_again)
            return
        self._done(transaction, partition)
        self._complete_if_done(turn, transaction)

    def _ask_again(self, turn: Turn, key: TimerKey) -> None:
        _, transactional_id, topic, index = key
        transaction = self._table.active.get(transactional_id)
        if transaction is not None and (topic, int(index)) in transaction.unmarked:
            self._ask(turn, transaction, (topic, int(index)))
            self._complete_if_done(turn, transaction)

    def _done(self, transaction: Transaction, partition: TopicPartition) -> None:
        del transaction.unmarked[partition]
        self._table.config.counts.markers -= 1

    def _complete_if_done(self, turn: Turn, transaction: Transaction) -> None:
        if not transaction.unmarked:
            self._complete(turn, transaction)


def exists(image: MetadataImage, partition: TopicPartition) -> bool:
    """A partition was checked when it was added, and images do not go back: one that is not there was deleted."""
    topic, index = partition
    return image.partition(topic, index) is not None


def _key(transaction: Transaction, partition: TopicPartition) -> Key:
    return ("marker", transaction.transactional_id, partition[0], str(partition[1]))


def _error_of(response: WriteTxnMarkersResponse, partition: TopicPartition) -> ErrorCode:
    for marker in response.markers:
        for topic in marker.topics:
            for result in topic.partitions:
                if (topic.name, result.partition_index) == partition:
                    return ErrorCode(result.error_code)
    return ErrorCode.UNKNOWN_SERVER_ERROR
