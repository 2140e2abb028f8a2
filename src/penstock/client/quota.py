"""Stays below a broker's quota. Pure: it is given the bytes sent, the throttle times and the clock.

A broker tells a client nothing until its quota is exceeded; then it delays responses and reports the delay. It computes
the delay from the rate over its window of about eleven seconds, so a client that knows its own rate can compute the
quota from it. From then on the client sends at 90 % of that and is no longer throttled.

With a quota given by the user, the client is never throttled at all. Quotas change: an estimate rises slowly while
nothing is throttled, until the broker throttles again. Rates are in bytes before compression. The estimate is in the
same unit, because it is derived from the rate sent when the broker throttled.
"""

from __future__ import annotations

from collections import deque

from penstock.client.rate_limit import TokenBucket

HIGH = 0.9
"""The share of the quota to use."""
WINDOW_S = 11.0
"""Kafka's quota.window.num × quota.window.size.seconds, with the brokers' defaults."""
SAMPLE_S = 1.0
BURST_S = 1.0
RISE = 1.05
RISE_EVERY_S = 10.0
FORGET_AFTER_RISES = 60
"""After this many rises without throttling the estimate is 18 times the original: assume there is no quota now."""
RATE_MIN_BYTES_PER_S = 1024.0


class QuotaKeeper:
    """Decides how long to wait before sending. A given quota is fixed; otherwise it is estimated."""

    def __init__(self, now_s: float, *, quota_bytes_per_s: float | None = None, high: float = HIGH) -> None:
        assert 0 < high <= 1
        self._high = high
        self._given = quota_bytes_per_s is not None
        self._samples: deque[tuple[float, int]] = deque([(now_s, 0)])
        self._bucket: TokenBucket | None = None
        self._risen_at_s = now_s
        self._rises = 0
        self.quota_bytes_per_s = quota_bytes_per_s
        if quota_bytes_per_s is not None:
            self._limit(quota_bytes_per_s, now_s)

    @property
    def active(self) -> bool:
        """Whether a quota is known."""
        return self._bucket is not None

    def sample(self, total_bytes: int, now_s: float) -> None:
        """Records the total bytes sent so far; called about once a second."""
        if now_s - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append((now_s, total_bytes))
            while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
                self._samples.popleft()
        self._rise(now_s)

    def throttled(self, throttle_s: float, total_bytes: int, now_s: float) -> None:
        """Updates the estimate: the broker delayed a response by `throttle_s` because the rate exceeded the quota."""
        if throttle_s <= 0:
            return
        self._risen_at_s = now_s
        self._rises = 0
        if self._given:
            return
        rate = self._rate(total_bytes, now_s)
        # Kafka: delay = (rate - quota) / quota * window.
        estimate = max(RATE_MIN_BYTES_PER_S, rate * WINDOW_S / (WINDOW_S + throttle_s))
        if self.quota_bytes_per_s is not None:
            # Responses that were already delayed arrive one by one while the rate falls. Lower the estimate one step
            # at a time, or a burst of them would bring the rate to zero.
            estimate = min(self.quota_bytes_per_s, max(estimate, self.quota_bytes_per_s * 0.8))
        self._limit(estimate, now_s)

    def take(self, size_bytes: int, now_s: float) -> float:
        """Accounts for this many bytes and returns how many seconds to wait before sending them."""
        return 0.0 if self._bucket is None else self._bucket.take(size_bytes, now_s)

    def _rate(self, total_bytes: int, now_s: float) -> float:
        since_s, before = self._samples[0]
        return (total_bytes - before) / max(SAMPLE_S, now_s - since_s)

    def _limit(self, quota_bytes_per_s: float, now_s: float) -> None:
        self.quota_bytes_per_s = quota_bytes_per_s
        rate = quota_bytes_per_s * self._high
        if self._bucket is None:
            self._bucket = TokenBucket(rate, now_s, burst=rate * BURST_S)
        else:
            self._bucket.set_rate(rate, now_s, burst=rate * BURST_S)

    def _rise(self, now_s: float) -> None:
        if self._given or self._bucket is None or self.quota_bytes_per_s is None:
            return
        if now_s - self._risen_at_s >= RISE_EVERY_S:
            self._risen_at_s = now_s
            self._rises += 1
            if self._rises > FORGET_AFTER_RISES:
                self._bucket = None
                self.quota_bytes_per_s = None
            else:
                self._limit(self.quota_bytes_per_s * RISE, now_s)
