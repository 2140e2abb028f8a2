"""Which transactional batches compaction may remove: batches of aborted transactions, and markers no longer needed.

Compaction stops at the last stable offset, so every transaction it sees is decided. Batches of an aborted transaction
are dropped, and their keys do not supersede other records. A marker stays until no batch of its transaction is left.
The collecting pass and the copying pass each use a new instance of `Transactions`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.log.transactions import AbortedTransaction
from penstock.wire.records import BatchHeader, ControlRecordType, iter_records, parse_control_key

MARKER_BYTES_MAX = 64 << 10


class Transactions:
    """Tracks transactions while the batches of a log are visited in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, bool] = {}
        """Open transactions that will be aborted, by producer; the value tells whether one of its batches was seen."""
        self._committed: dict[int, None] = {}

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._pass(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted[header.producer_id] = True
            return True
        self._committed[header.producer_id] = None
        return False

    def is_unneeded(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a control batch ends a transaction of which no batch is left."""
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
