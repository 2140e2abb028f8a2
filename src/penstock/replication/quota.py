"""How many bytes a second may be copied: a rate over sliding windows, as Kafka's replication quotas have it.

Bytes are counted in windows of a second, of which the last eleven are remembered. The rate is what they hold by the
time since the oldest of them began, at least one window. So a burst is paid for afterwards: who copied ten megabytes at
once, at one megabyte a second, copies nothing for ten seconds.

Pure: the time is an argument. `pause_ms` is what Kafka does without, because its fetchers ask again and again.
"""

from __future__ import annotations

from collections import deque

UNLIMITED = 2**63 - 1
"""The default of Kafka's `…replication.throttled.rate`."""

WINDOWS = 11
WINDOW_MS = 1_000.0


class ReplicationQuota:
    """Bytes a second, for all that shares it."""

    __slots__ = ("_samples", "_total", "_window_ms", "_windows", "limit_bytes")

    def __init__(self, limit_bytes: int = UNLIMITED, *, windows: int = WINDOWS, window_ms: float = WINDOW_MS) -> None:
        assert windows >= 1
        assert window_ms > 0
        self.limit_bytes = limit_bytes
        """Settable at run time; what was counted stays counted."""
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """Oldest first: when it began, and how much it holds."""
        self._total = 0.0

    def record(self, size_bytes: int, now_ms: float) -> None:
        """So much was copied, whether or not it should have been."""
        self._forget(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0])
        samples[-1][1] += size_bytes
        self._total += size_bytes

    def rate(self, now_ms: float) -> float:
        """Bytes a second."""
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        return self._total * 1000 / max(now_ms - self._samples[0][0], self._window_ms)

    def is_exceeded(self, now_ms: float) -> bool:
        return self.limit_bytes < UNLIMITED and self.rate(now_ms) > self.limit_bytes

    def pause_ms(self, now_ms: float) -> float:
        """How long until the rate is within the limit, if nothing more is copied."""
        if not self.is_exceeded(now_ms):
            return 0.0
        kept_ms = self._windows * self._window_ms
        total = self._total
        free_ms = now_ms
        for began_ms, held in self._samples:
            # While a window is the oldest the rate goes down because time passes; then it is forgotten.
            span_ms = total * 1000 / self.limit_bytes if self.limit_bytes else kept_ms
            within_ms = max(began_ms + max(self._window_ms, span_ms), free_ms)
            if within_ms < began_ms + kept_ms:
                return within_ms - now_ms
            free_ms = began_ms + kept_ms
            total -= held
            if not total:
                break
        return free_ms - now_ms

    def _forget(self, now_ms: float) -> None:
        samples = self._samples
        kept_ms = self._windows * self._window_ms
        while samples and now_ms - samples[0][0] >= kept_ms:
            self._total -= samples.popleft()[1]
