"""Going at a given rate."""

from __future__ import annotations

__all__ = ["Throttle"]


class Throttle:
    """How many records may be sent by now. A rate of zero or less is no limit.

    What was missed is caught up with, as Kafka's tool does: the rate is that of the whole run. So a stall of the broker
    shows in the latencies of what follows it.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def allowed(self, elapsed_s: float, sent: int, wanted: int) -> int:
        """Of the `wanted` records that come next, how many may go now."""
        if self.rate <= 0:
            return wanted
        return max(0, min(wanted, int(elapsed_s * self.rate) + 1 - sent))

    def wait_s(self, elapsed_s: float, sent: int) -> float:
        """How long until the next record may go."""
        if self.rate <= 0:
            return 0.0
        return max(0.0, sent / self.rate - elapsed_s)
