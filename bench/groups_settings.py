"""What both sides of the benchmarks of groups are told: the same delays, intervals and timeouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    initial_delay_ms: int
    """Less than Kafka's 3 s, which would be most of what is measured."""
    heartbeat_interval_ms: int
    """Not the second after which an assignment may be made anew (`group.consumer.assignment.interval.ms`): with the
    same period on both, it would be luck which comes first."""
    session_timeout_ms: int
    settle_s: float
    """How long a broker is left alone before its memory is read."""

    @property
    def properties(self) -> Mapping[str, str]:
        """For the broker, of whichever side."""
        return {
            "group.initial.rebalance.delay.ms": str(self.initial_delay_ms),
            "group.min.session.timeout.ms": str(self.session_timeout_ms),
            "group.consumer.heartbeat.interval.ms": str(self.heartbeat_interval_ms),
            "group.consumer.min.heartbeat.interval.ms": str(self.heartbeat_interval_ms),
            "group.consumer.session.timeout.ms": str(self.session_timeout_ms),
            "group.consumer.min.session.timeout.ms": str(self.session_timeout_ms),
        }


_FULL = Timing(initial_delay_ms=500, heartbeat_interval_ms=800, session_timeout_ms=6000, settle_s=2)
_QUICK = Timing(initial_delay_ms=100, heartbeat_interval_ms=150, session_timeout_ms=1500, settle_s=0.2)


def timing(quick: bool) -> Timing:
    return _QUICK if quick else _FULL
