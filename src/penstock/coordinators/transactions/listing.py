"""DescribeTransactions and ListTransactions (KIP-664; filters by duration, KIP-994, and by pattern, KIP-1152)."""

from __future__ import annotations

from typing import NamedTuple

from penstock.coordinators.groups.consumer.regexes import Pattern, compile_regex
from penstock.coordinators.transactions.states import BY_LABEL, State
from penstock.coordinators.transactions.table import TransactionTable
from penstock.coordinators.transactions.transaction import Transaction, packed_summary
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_transactions import TopicData
from penstock.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.list_transactions import TransactionState as ListedTransaction


def described(transaction: Transaction) -> DescribedTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def not_described(transactional_id: str, code: ErrorCode) -> DescribedTransaction:
    return DescribedTransaction(error_code=code, transactional_id=transactional_id)


class Filter(NamedTuple):
    """The filters of a ListTransactions; empty ones match everything."""

    states: frozenset[State] | None
    producer_ids: frozenset[int]
    duration_ms: int
    """The transaction has been open for longer; −1: any."""
    pattern: Pattern | None

    @classmethod
    def of(cls, request: ListTransactionsRequest) -> Filter:
        """Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
        return cls(
            frozenset(BY_LABEL[name] for name in request.state_filters if name in BY_LABEL)
            if request.state_filters
            else None,
            frozenset(request.producer_id_filters),
            request.duration_filter,
            compile_regex(request.transactional_id_pattern) if request.transactional_id_pattern else None,
        )


def listed(table: TransactionTable, wanted: Filter, wall_ms: int) -> list[ListedTransaction]:
    found: list[ListedTransaction] = []

    def examine(transactional_id: str, producer_id: int, state: State, started_ms: int) -> None:
        if wanted.states is not None and state not in wanted.states:
            return
        if wanted.producer_ids and producer_id not in wanted.producer_ids:
            return
        if wanted.duration_ms >= 0 and wall_ms - started_ms <= wanted.duration_ms:
            return
        if wanted.pattern is not None and wanted.pattern.fullmatch(transactional_id.encode()) is None:
            return
        found.append(ListedTransaction(transactional_id, producer_id, state.label))

    for transaction in table.active.values():
        examine(transaction.transactional_id, transaction.producer_id, transaction.state, transaction.started_ms)
    for transactional_id, packed in table.resting.items():
        examine(transactional_id, *packed_summary(packed))
    return found
