"""When this broker last heard from the active controller, and from the followers of its partitions.

A broker that is cut off from the others still believes that it leads. The controller fences it after
`broker.session.timeout.ms` and gives its partitions to others, but cannot tell it so. The broker can find out by
itself: if it has heard neither from the controller for that long nor from a follower that it must wait for, it can
commit nothing and most likely no longer leads. Such a partition is *stranded* (`penstock.replication.Leader`): clients
that wait for a commit are told to look for another leader, instead of waiting for their timeout.

Both conditions are needed. If only the controller is silent, followers still fetch, and the cluster keeps working. If
only a follower is silent, the controller can be asked for a smaller ISR.

Time during which this process was stopped does not count: it could not have heard anyone.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime import Runtime
from penstock.runtime.steady_clock import SteadyClock

FOLLOWER_SILENT_MS = 3_500.0
"""A follower fetches at least every `replica.fetch.wait.max.ms`, and over a new connection after two seconds without a
response. A follower that is silent for longer than both cannot reach this broker."""


class Contact:
    def __init__(self, runtime: Runtime, session_timeout_ms: float) -> None:
        self.session_timeout_ms = session_timeout_ms
        """Can be changed at run time."""
        self._clock = SteadyClock(runtime)
        self._followers_ms: dict[int, float] = {}
        self._controller_ms: float | None = None

    def start(self) -> None:
        self._clock.start()

    def close(self) -> None:
        self._clock.stop()

    def now_ms(self) -> float:
        return self._clock.now_ms()

    # ---- contacts

    def heard_follower(self, broker_id: int) -> None:
        """A follower sent a fetch."""
        self._followers_ms[broker_id] = self._clock.now_ms()

    def expect_followers(self, broker_ids: Iterable[int]) -> None:
        """These brokers should fetch from now on, if they do not already."""
        now_ms = self._clock.now_ms()
        for broker_id in broker_ids:
            self._followers_ms.setdefault(broker_id, now_ms)

    def forget_follower(self, broker_id: int) -> None:
        """The broker follows nothing here any more and need not fetch."""
        self._followers_ms.pop(broker_id, None)

    def heard_controller(self, asked_ms: float) -> None:
        """The controller answered a heartbeat sent at `asked_ms` by this clock, so at that time it knew that this
        broker lives."""
        self._controller_ms = asked_ms

    # ---- conclusions

    @property
    def is_out_of_service(self) -> bool:
        """Whether the controller has most likely fenced this broker."""
        heard_ms = self._controller_ms
        return heard_ms is not None and self._clock.now_ms() - heard_ms > self.session_timeout_ms

    def silent_followers(self, limit_ms: float) -> list[int]:
        """The followers that should fetch but have been silent for this long."""
        now_ms = self._clock.now_ms()
        return [broker_id for broker_id, heard_ms in self._followers_ms.items() if now_ms - heard_ms > limit_ms]
