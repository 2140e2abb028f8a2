"""How much of a producer's buffer is taken, and when it is time to slow down. Pure arithmetic.

librdkafka holds the records and keeps the hard limit; but it tells how full it is only now and then, in its
statistics. So what goes in and what comes out is counted here too, record by record.
"""

from __future__ import annotations

HIGH = 0.8
"""From this share of the buffer on, sending is slowed down."""
PAUSE_MAX_MS = 100.0
"""The longest pause before a record, when the buffer is about to overflow."""


PAUSE_WORTH_MS = 2.0
"""Shorter pauses are put off until they add up to this: waking up costs more than they save."""


class BufferAccount:
    """Bytes that were sent and have neither arrived nor failed yet.

    No lock: CPython hands the interpreter from thread to thread at calls and loops, and there is none within these
    sums. If another Python should lose one, slowing down begins a little sooner or later, until `settle` sets it right.
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
        """It was not sent after all."""
        self.used_bytes -= size_bytes
        self.total_bytes -= size_bytes
        self.total_records -= 1

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes

    def settle(self) -> None:
        """Nothing is on its way."""
        self.used_bytes = 0

    def pause_ms(self) -> float:
        """How long to wait before the next record: nothing below the mark, and more the fuller the buffer is."""
        over = self.used_bytes - self.high_bytes
        if over < 0:
            return 0.0
        room = self.size_bytes - self.high_bytes
        return PAUSE_MAX_MS * min(1.0, over / room) if room else PAUSE_MAX_MS

    def next_pause_ms(self) -> float:
        """The pause before a record together with those that were put off, or 0 if it is put off too."""
        self._owed_ms += self.pause_ms()
        if self._owed_ms < PAUSE_WORTH_MS:
            return 0.0
        owed_ms, self._owed_ms = self._owed_ms, 0.0
        return owed_ms
