"""Which transactional batches compaction may take: those of aborted transactions, and markers that nothing needs.

Compaction never reaches beyond the last stable offset, so every transaction it meets is decided. Batches of an aborted
one are dropped, and their keys do not supersede anything. A marker stays until no batch of its transaction is left.
The same class goes with the pass that collects keys and, anew, with the pass that copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.wire.records import BatchHeader, ControlRecordType, iter_records, parse_control_key

MARKER_BYTES_MAX = 64 << 10


class AbortedTransaction(NamedTuple):
    """From its first batch to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Transactions:
    """Walks along with the batches of a log, in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, bool] = {}
        """Transactions under way that will be aborted, by producer: whether a batch of it was met."""
        self._committed: dict[int, None] = {}

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to a transaction that was aborted."""
        self._pass(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted[header.producer_id] = True
            return True
        self._committed[header.producer_id] = None
        return False

    def is_unneeded(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a control batch ends a transaction of which nothing is left."""
        self._pass(header.last_offset)
        if not header.records_count:
            return True
        kind = _kind_of(batch)
        if kind == ControlRecordType.ABORT:
            return not self._aborted.pop(header.producer_id, False)
        if kind == ControlRecordType.COMMIT:
            return self._committed.pop(header.producer_id, self) is self
        return False

    def _pass(self, offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            self._aborted.setdefault(self._ahead.popleft().producer_id, False)


def _kind_of(batch: memoryview) -> int:
    for record in iter_records(batch, max_decompressed_bytes=MARKER_BYTES_MAX, verify_crc=False):
        return parse_control_key(record.key)
    return -1
