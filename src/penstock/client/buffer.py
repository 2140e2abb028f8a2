"""The fill level of a producer's buffer, and the pause it calls for. Pure arithmetic.

librdkafka holds the records and enforces the hard limit, but reports its fill level only in its periodic statistics.
So this module counts the bytes going in and out too, record by record.
"""

from __future__ import annotations

HIGH = 0.8
"""Above this share of the buffer, sending slows down."""
PAUSE_MAX_MS = 100.0
"""The longest pause before a record, reached when the buffer is about to overflow."""


PAUSE_WORTH_MS = 2.0
"""Shorter pauses are postponed until they add up to this: a wake-up costs more than such a pause saves."""


class BufferAccount:
    """Bytes that were sent and have neither been stored nor failed yet.

    No lock is needed: CPython switches threads at calls and loops, and these sums contain neither. If another Python
    loses an update, slowing down starts a little early or late, until `settle` corrects the sum.
    """

    __slots__ = ("_owed_ms", "failed_records", "high_bytes", "size_bytes", "total_bytes", "total_records", "used_bytes")

    def __init__(self, size_bytes: int, high: float = HIGH) -> None:
        assert size_bytes > 0
        assert 0 < high <= 1
        self.size_bytes = size_bytes
        self.high_bytes = int(size_bytes * high)
        self.used_bytes = 0
        self.failed_records = 0
        self._owed_ms = 0.0
        self.total_bytes = 0
        self.total_records = 0

    @property
    def available_bytes(self) -> int:
        return max(0, self.size_bytes - self.used_bytes)

    def take(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        self.total_bytes += size_bytes
        self.total_records += 1

    def put_back(self, size_bytes: int) -> None:
        """Undoes `take`: the record was not sent."""
        self.used_bytes -= size_bytes
        self.total_bytes -= size_bytes
        self.total_records -= 1

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes

    def settle(self) -> None:
        """Resets the account: nothing is in flight."""
        self.used_bytes = 0

    def pause_ms(self) -> float:
        """The pause before the next record: zero below the threshold, then longer the fuller the buffer is."""
        over = self.used_bytes - self.high_bytes
        if over < 0:
            return 0.0
        room = self.size_bytes - self.high_bytes
        return PAUSE_MAX_MS * min(1.0, over / room) if room else PAUSE_MAX_MS

    def next_pause_ms(self) -> float:
        """The pause before this record including postponed ones, or 0 if it is postponed too."""
        self._owed_ms += self.pause_ms()
        if self._owed_ms < PAUSE_WORTH_MS:
            return 0.0
        owed_ms, self._owed_ms = self._owed_ms, 0.0
        return owed_ms
