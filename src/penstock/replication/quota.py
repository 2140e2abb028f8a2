"""A limit on copied bytes per second, measured over sliding windows like Kafka's replication quotas.

Bytes are counted in windows of one second, and the last eleven are kept. The rate is their sum divided by the time
since the oldest began, at least one window. So a burst is paid for afterwards: after copying ten megabytes at once with
a limit of one megabyte per second, nothing is copied for ten seconds.

Pure: the time is an argument. `pause_ms` has no counterpart in Kafka, whose fetchers poll instead.
"""

from __future__ import annotations

from collections import deque

UNLIMITED = 2**63 - 1
"""The default of Kafka's `…replication.throttled.rate`."""

WINDOWS = 11
WINDOW_MS = 1_000.0


class ReplicationQuota:
    """A limit in bytes per second, shared by all users of this object."""

    __slots__ = ("_samples", "_total", "_window_ms", "_windows", "limit_bytes")

    def __init__(self, limit_bytes: int = UNLIMITED, *, windows: int = WINDOWS, window_ms: float = WINDOW_MS) -> None:
        assert windows >= 1
        assert window_ms > 0
        self.limit_bytes = limit_bytes
        """May be changed at run time; the bytes counted so far are kept."""
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """(start time, bytes) of each window, oldest first."""
        self._total = 0.0

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Counts copied bytes, whether or not they were within the limit."""
        self._forget(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0])
        samples[-1][1] += size_bytes
        self._total += size_bytes

    def rate(self, now_ms: float) -> float:
        """The current rate in bytes per second."""
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
            # The rate falls as the oldest window ages, and again when that window is dropped.
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
