"""All transactional ids of a shard: at rest as packed bytes, in use as objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.coordinators.shard import Turn
from penstock.coordinators.transactions.config import TransactionConfig
from penstock.coordinators.transactions.records import key_of, value_of
from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.transaction import Transaction, unpacked
from penstock.metadata import TRANSACTION_VERSION
from penstock.wire.errors import ErrorCode, KafkaError

ProducerIdSource = Callable[[], int | None]
"""A new producer id, or None if the broker has none left at the moment and is fetching more."""


class TransactionTable:
    """Shared by the modules of the shard. Every change of a transaction ends with `write`."""

    def __init__(self, config: TransactionConfig, take_producer_id: ProducerIdSource) -> None:
        self.config = config
        self._take_producer_id = take_producer_id
        self.resting: dict[str, bytes] = {}
        """Transactional id → `Transaction.packed`."""
        self.active: dict[str, Transaction] = {}
        """Transactions that are open or being ended."""

    def __len__(self) -> int:
        return len(self.resting) + len(self.active)

    def find(self, transactional_id: str) -> Transaction | None:
        """A transaction at rest is a copy: it must be written if it is changed."""
        transaction = self.active.get(transactional_id)
        if transaction is not None:
            return transaction
        packed = self.resting.get(transactional_id)
        return None if packed is None else unpacked(transactional_id, packed)

    def all(self) -> Iterator[Transaction]:
        yield from self.active.values()
        for transactional_id, packed in self.resting.items():
            yield unpacked(transactional_id, packed)

    def new_producer_id(self) -> int:
        producer_id = self._take_producer_id()
        if producer_id is None:
            # As in Kafka while a block of ids is being fetched. Clients retry.
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids are left until a block is granted"
            )
        return producer_id

    # -- changes -----------------------------------------------------------------------------------------------------

    def write(self, turn: Turn, transaction: Transaction) -> None:
        """Append the transaction's record, and keep the transaction."""
        flexible = turn.image.features.get(TRANSACTION_VERSION, 0) >= 1
        turn.append(key_of(transaction.transactional_id), value_of(transaction, flexible=flexible))
        self.put(transaction)

    def remove(self, turn: Turn, transactional_id: str) -> None:
        turn.append(key_of(transactional_id), None)
        self.forget(transactional_id)

    def put(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        counts = self.config.counts
        before = self.active.pop(transactional_id, None)
        if before is None and transactional_id not in self.resting:
            counts.ids += 1
        if transaction.is_resting:
            self.resting[transactional_id] = transaction.packed()
        else:
            self.resting.pop(transactional_id, None)
            self.active[transactional_id] = transaction

    def forget(self, transactional_id: str) -> None:
        known = self.active.pop(transactional_id, None) or self.resting.pop(transactional_id, None)
        if known is not None:
            self.config.counts.ids -= 1

    def clear(self) -> None:
        """The shard is discarded: it no longer counts."""
        counts = self.config.counts
        counts.ids -= len(self)
        counts.open -= sum(transaction.state is State.ONGOING for transaction in self.active.values())
        counts.markers -= sum(len(transaction.unmarked) for transaction in self.active.values())
        self.active.clear()
        self.resting.clear()
