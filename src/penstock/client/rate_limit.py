"""A limit on how much is sent, in records and in bytes a second: token buckets that are told the time."""

from __future__ import annotations

from dataclasses import dataclass

BURST_S = 0.1
"""Unless told otherwise, what a tenth of a second allows may go at once."""


class TokenBucket:
    """Fills at a rate, up to a burst. More may be taken than is there: then the bucket owes, and the taker waits.

    Owing keeps takers in order and lets one through that is larger than the burst; the rate holds over time.
    """

    __slots__ = ("_at_s", "_tokens", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, now_s: float, *, burst: float | None = None) -> None:
        if rate_per_s <= 0:
            raise ValueError(f"a rate of {rate_per_s} a second lets nothing through: give a positive one, or None")
        self.rate_per_s = rate_per_s
        self.burst = max(1.0, rate_per_s * BURST_S if burst is None else burst)
        self._tokens = self.burst
        self._at_s = now_s

    def take(self, amount: float, now_s: float) -> float:
        """Takes that much and says how many seconds to wait before using it."""
        self._fill(now_s)
        self._tokens -= amount
        return -self._tokens / self.rate_per_s if self._tokens < 0 else 0.0

    def set_rate(self, rate_per_s: float, now_s: float, *, burst: float | None = None) -> None:
        assert rate_per_s > 0
        self._fill(now_s)
        self.rate_per_s = rate_per_s
        self.burst = max(1.0, rate_per_s * BURST_S if burst is None else burst)
        self._tokens = min(self._tokens, self.burst)

    def _fill(self, now_s: float) -> None:
        # A clock that stands still or steps back fills nothing, and takes nothing away.
        if now_s > self._at_s:
            self._tokens = min(self.burst, self._tokens + (now_s - self._at_s) * self.rate_per_s)
            self._at_s = now_s


@dataclass(frozen=True)
class RateLimit:
    """What a producer may send; None is no limit."""

    records_per_s: float | None = None
    bytes_per_s: float | None = None


class RateLimiter:
    """Both limits of a `RateLimit`; the stricter one decides."""

    __slots__ = ("_bytes", "_records")

    def __init__(self, limit: RateLimit, now_s: float) -> None:
        self._records = None if limit.records_per_s is None else TokenBucket(limit.records_per_s, now_s)
        self._bytes = None if limit.bytes_per_s is None else TokenBucket(limit.bytes_per_s, now_s)

    def take(self, size_bytes: int, now_s: float) -> float:
        """Takes one record of that size and says how many seconds to wait before sending it."""
        wait_s = 0.0
        if self._records is not None:
            wait_s = self._records.take(1, now_s)
        if self._bytes is not None:
            wait_s = max(wait_s, self._bytes.take(size_bytes, now_s))
        return wait_s
