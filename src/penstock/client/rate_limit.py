"""Limits the send rate in records and bytes per second, with token buckets that are given the time."""

from __future__ import annotations

from dataclasses import dataclass

BURST_S = 0.1
"""By default, the amount of a tenth of a second may be sent at once."""


class TokenBucket:
    """Fills at a rate, up to a burst. Taking more than it holds puts it into debt, and the taker waits.

    Debt keeps takers in order and admits a single amount larger than the burst; the average rate still holds.
    """

    __slots__ = ("_at_s", "_tokens", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, now_s: float, *, burst: float | None = None) -> None:
        if rate_per_s <= 0:
            raise ValueError(f"a rate of {rate_per_s} per second lets nothing through: use a positive one, or None")
        self.rate_per_s = rate_per_s
        self.burst = max(1.0, rate_per_s * BURST_S if burst is None else burst)
        self._tokens = self.burst
        self._at_s = now_s

    def take(self, amount: float, now_s: float) -> float:
        """Takes `amount` and returns how many seconds to wait before using it."""
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
        # A clock that stands still or goes back changes nothing.
        if now_s > self._at_s:
            self._tokens = min(self.burst, self._tokens + (now_s - self._at_s) * self.rate_per_s)
            self._at_s = now_s


@dataclass(frozen=True)
class RateLimit:
    """The most a producer may send; None means no limit."""

    records_per_s: float | None = None
    bytes_per_s: float | None = None


class RateLimiter:
    """Enforces both limits of a `RateLimit`; the stricter one decides."""

    __slots__ = ("_bytes", "_records")

    def __init__(self, limit: RateLimit, now_s: float) -> None:
        self._records = None if limit.records_per_s is None else TokenBucket(limit.records_per_s, now_s)
        self._bytes = None if limit.bytes_per_s is None else TokenBucket(limit.bytes_per_s, now_s)

    def take(self, size_bytes: int, now_s: float) -> float:
        """Accounts for one record and returns how many seconds to wait before sending it."""
        wait_s = 0.0
        if self._records is not None:
            wait_s = self._records.take(1, now_s)
        if self._bytes is not None:
            wait_s = max(wait_s, self._bytes.take(size_bytes, now_s))
        return wait_s
