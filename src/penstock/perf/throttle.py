"""Sending at a given rate."""

from __future__ import annotations

__all__ = ["Throttle"]


class Throttle:
    """Decides how many records may be sent by now. A rate of zero or less means no limit.

    Missed sends are caught up, as in Kafka's tool: the rate is that of the whole run. So a stall of the broker shows in
    the latencies of the records after it.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def allowed(self, elapsed_s: float, sent: int, wanted: int) -> int:
        """How many of the next `wanted` records may be sent now."""
        if self.rate <= 0:
            return wanted
        return max(0, min(wanted, int(elapsed_s * self.rate) + 1 - sent))

    def wait_s(self, elapsed_s: float, sent: int) -> float:
        """How long until the next record may be sent."""
        if self.rate <= 0:
            return 0.0
        return max(0.0, sent / self.rate - elapsed_s)
