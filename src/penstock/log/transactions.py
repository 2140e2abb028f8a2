"""The transactions of a log: which are open, and how far a reader of committed records may read.

A transaction of a producer begins with its first transactional batch and ends with a *marker*: a control batch that
says whether it was committed or aborted. The *last stable offset* is the end of what a `read_committed` reader may
see. It is the high watermark, or the first offset of the first transaction whose marker is missing or not yet below the
high watermark. A marker above the high watermark may still be lost with its leader.

`Transactions` keeps that in constant time per batch. Transactions are queued in the order of their first offsets. A
transaction leaves the queue when its marker is below the high watermark and no earlier one is left; then the next one
is the first unstable one. The log does not know the high watermark: callers pass it as `upto`. Because a new
transaction begins at the end of the log, the last stable offset moves back only if the high watermark does.

An aborted transaction must also be known to readers: they receive its records, together with the list of aborted
transactions (`penstock.log.aborted`). `Transactions.aborted` collects them until the writer has put them there.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

NO_OFFSET = -1
SWEEP_MIN = 1024
"""Queued transactions that are kept without looking whether some behind the first could be dropped."""


class AbortedTransaction(NamedTuple):
    """The range of an aborted transaction: from its first batch to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int = NO_OFFSET
    """The first offset of the first transaction that was open after it, or the end of the log if there was none."""


class Transaction:
    __slots__ = ("first_offset", "marker_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.marker_offset = NO_OFFSET
        """NO_OFFSET while it is open."""

    def is_stable(self, upto: int) -> bool:
        return NO_OFFSET < self.marker_offset < upto


class Transactions:
    """The transactions of one log that are open, or whose markers are not known to be below the high watermark."""

    __slots__ = ("_open", "_queue", "_sweep_at", "aborted")

    def __init__(self) -> None:
        self._open: OrderedDict[int, Transaction] = OrderedDict()
        """By producer, in the order of their first offsets."""
        self._queue: deque[Transaction] = deque()
        """In the order of their first offsets, with those that have ended but are not stable."""
        self._sweep_at = SWEEP_MIN
        self.aborted: list[AbortedTransaction] = []
        """Aborted transactions that are not in the index yet."""

    def __len__(self) -> int:
        """The number of open transactions."""
        return len(self._open)

    def begin(self, producer_id: int, first_offset: int) -> None:
        assert producer_id not in self._open
        assert not self._queue or self._queue[-1].first_offset < first_offset, "transactions begin in ascending order"
        transaction = self._open[producer_id] = Transaction(producer_id, first_offset)
        self._queue.append(transaction)

    def end(self, producer_id: int, marker_offset: int, committed: bool) -> None:
        """The marker of an open transaction was appended."""
        transaction = self._open.pop(producer_id)
        transaction.marker_offset = marker_offset
        if not committed:
            following = next(iter(self._open.values()), None)
            stable = marker_offset + 1 if following is None else following.first_offset
            self.aborted.append(AbortedTransaction(producer_id, transaction.first_offset, marker_offset, stable))

    def first_unstable_offset(self, upto: int) -> int:
        """The first offset of the first transaction without a marker below `upto`; NO_OFFSET if there is none."""
        queue = self._queue
        while queue:
            marker_offset = queue[0].marker_offset
            if marker_offset < 0 or marker_offset >= upto:
                if len(queue) > self._sweep_at:
                    self._sweep(upto)
                return queue[0].first_offset
            queue.popleft()
        return NO_OFFSET

    def last_stable_offset(self, upto: int, start_offset: int) -> int:
        """The end of what may be read as committed, of a log that starts at `start_offset`. Records of an open
        transaction may have been deleted at the start."""
        unstable = self.first_unstable_offset(upto)
        return upto if unstable < 0 or unstable >= upto else max(unstable, start_offset)

    def _sweep(self, upto: int) -> None:
        """Drop stable transactions behind one that stays open for long: the queue must not grow as long as it does."""
        kept = [transaction for transaction in self._queue if not transaction.is_stable(upto)]
        self._queue.clear()
        self._queue.extend(kept)
        self._sweep_at = max(SWEEP_MIN, 2 * len(kept))

    def carry_over(self, before: Transactions, from_offset: int) -> None:
        """After the state was built again from a snapshot at `from_offset`: add those that ended before it and are not
        stable, which no snapshot has."""
        ended = [one for one in before._queue if NO_OFFSET < one.marker_offset < from_offset]
        if ended:
            self._queue = deque(sorted([*ended, *self._queue], key=lambda one: one.first_offset))

    def oldest_open(self) -> int | None:
        """The producer whose transaction is open for longest."""
        return next(iter(self._open), None)

    def take_aborted(self) -> list[AbortedTransaction]:
        """Aborted transactions since the last call."""
        taken, self.aborted = self.aborted, []
        return taken
