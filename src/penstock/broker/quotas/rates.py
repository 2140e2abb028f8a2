"""Rates as Kafka measures them, so that the same quota allows the same here. Pure: the clock is an argument.

`WindowedRate` keeps the sums of the last `count` windows, each of `window_ms`; the newest is still growing. The rate
counts at least `count - 1` full windows, so a client that was quiet may send that much at once. Over the limit, the
throttle time is what it takes for the rate to fall to the limit if nothing more is sent.

`TokenBucket` (KIP-599) refills at the limit and holds at most `count` windows of it. It may go below zero: the debt
is how long it takes to refill.
"""

from __future__ import annotations

from collections import deque
from typing import Final

DEBT_MS_MIN: Final = 0.001
"""Less than that is a rest of rounding."""


class WindowedRate:
    __slots__ = ("_samples", "_total", "count", "window_ms")

    def __init__(self, count: int, window_ms: float) -> None:
        assert count >= 1
        assert window_ms > 0
        self.count = count
        self.window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """[start of the window, sum], oldest first."""
        self._total = 0.0

    def record(self, amount: float, now_ms: float) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self.window_ms:
            self._forget(now_ms)
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self._total += amount

    def per_second(self, now_ms: float) -> float:
        self._forget(now_ms)
        return self._total * 1000 / self._span_ms(now_ms) if self._samples else 0.0

    def throttle_ms(self, limit: float, now_ms: float) -> float:
        """How long until the rate is within the limit (per second), if nothing more is recorded."""
        assert limit > 0
        if self._total * 1000 <= limit * (self.count - 1) * self.window_ms:
            return 0.0  # the shortest span that counts
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        return max(0.0, self._total * 1000 / limit - self._span_ms(now_ms))

    def is_idle(self, now_ms: float) -> bool:
        """Whether nothing was recorded in the windows that count."""
        self._forget(now_ms)
        return not self._samples

    def _span_ms(self, now_ms: float) -> float:
        """The time over which the sums are spread: missing windows count as empty ones."""
        span_ms = now_ms - self._samples[0][0]
        missing = self.count - 1 - int(span_ms / self.window_ms)
        if missing > 0:
            span_ms += missing * self.window_ms
        return span_ms or self.window_ms

    def _forget(self, now_ms: float) -> None:
        samples = self._samples
        kept_ms = self.count * self.window_ms
        while samples and now_ms - samples[0][0] >= kept_ms:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # not a rest of rounding


class TokenBucket:
    __slots__ = ("_refilled_ms", "_tokens", "count", "window_ms")

    def __init__(self, count: int, window_ms: float, limit: float, now_ms: float) -> None:
        self.count = count
        self.window_ms = window_ms
        self._tokens = self._most(limit)
        self._refilled_ms = now_ms

    def take(self, tokens: float, limit: float, now_ms: float) -> None:
        """Take this many tokens, even if that leaves a debt."""
        self._refill(limit, now_ms)
        self._tokens -= tokens

    def debt_ms(self, limit: float, now_ms: float) -> float:
        """How long until the bucket is no longer in debt."""
        self._refill(limit, now_ms)
        debt_ms = -self._tokens * 1000 / limit
        return debt_ms if debt_ms > DEBT_MS_MIN else 0.0

    def is_idle(self, limit: float, now_ms: float) -> bool:
        """Whether the bucket is full, as a new one is."""
        self._refill(limit, now_ms)
        return self._tokens >= self._most(limit)

    def _most(self, limit: float) -> float:
        return limit * self.count * self.window_ms / 1000

    def _refill(self, limit: float, now_ms: float) -> None:
        self._tokens = min(self._most(limit), self._tokens + limit * (now_ms - self._refilled_ms) / 1000)
        self._refilled_ms = now_ms
