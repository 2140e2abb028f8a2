"""The settings of transactions, and counters for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from penstock.config.tables import View, fresh, replace
from penstock.config.transaction_table import Transactions
from penstock.wire.errors import ErrorCode

__all__ = ["TransactionConfig", "TransactionCounts", "replace"]


def _ignore(duration_ms: float) -> None:
    pass


class TransactionCounts:
    """Counts over all shards of a broker."""

    __slots__ = ("aborted", "committed", "errors", "fenced", "ids", "markers", "on_ended", "open", "timed_out")

    def __init__(self) -> None:
        self.ids = 0
        """Transactional ids, at rest or in use."""
        self.open = 0
        """Transactions in state Ongoing."""
        self.markers = 0
        """Markers that are not acknowledged yet."""
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0
        """Transactions that were aborted because they exceeded their timeout."""
        self.fenced = 0
        """Transactions that were aborted because another producer took the transactional id over."""
        self.errors: Counter[ErrorCode] = Counter()
        """Refused requests."""
        self.on_ended: Callable[[float], None] = _ignore
        """Called with the duration of each transaction that has ended, in milliseconds."""


class TransactionConfig(Transactions, View):
    """The settings of all transactions of a broker; `TransactionConfig.part_of` takes them from the broker's."""

    counts: TransactionCounts = fresh(TransactionCounts)
    batch_bytes_max: int = 1_048_588
    """`max.message.bytes` of the topic: a record must not be larger."""
