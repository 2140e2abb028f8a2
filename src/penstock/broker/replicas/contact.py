"""Whom this broker has heard from lately: the active controller, and those who follow what it leads.

A broker that is cut off from the others goes on believing that it leads. The controller takes it out of service after
`broker.session.timeout.ms` and gives its partitions to others, but nobody can tell it so. It can find out by itself: a
leader that has heard neither from the controller for that long nor from a follower that it must wait for can commit
nothing, and most likely leads no longer. Such a partition is *stranded* (`penstock.replication.Leader`): clients that
wait for a commit are sent to look for another leader, instead of waiting until their time is up.

Both conditions are needed. Without a controller alone a cluster goes on as it is: its followers still fetch. Without a
follower alone the controller can be asked for a smaller ISR.

Time in which this process stood still does not count: nobody could be heard then.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime import Runtime
from penstock.runtime.steady_clock import SteadyClock

FOLLOWER_SILENT_MS = 3_500.0
"""A follower asks again at least every `replica.fetch.wait.max.ms`, and over a new connection after two seconds without
an answer. One that is silent for longer than both does not reach this broker."""


class Contact:
    def __init__(self, runtime: Runtime, session_timeout_ms: float) -> None:
        self.session_timeout_ms = session_timeout_ms
        """Settable at run time."""
        self._clock = SteadyClock(runtime)
        self._followers_ms: dict[int, float] = {}
        self._controller_ms: float | None = None

    def start(self) -> None:
        self._clock.start()

    def close(self) -> None:
        self._clock.stop()

    def now_ms(self) -> float:
        return self._clock.now_ms()

    # ---- who was heard

    def heard_follower(self, broker_id: int) -> None:
        """It has sent a fetch."""
        self._followers_ms[broker_id] = self._clock.now_ms()

    def expect_followers(self, broker_ids: Iterable[int]) -> None:
        """They are to fetch from now on, if they do not already."""
        now_ms = self._clock.now_ms()
        for broker_id in broker_ids:
            self._followers_ms.setdefault(broker_id, now_ms)

    def forget_follower(self, broker_id: int) -> None:
        """It follows nothing here any more, and need not be heard."""
        self._followers_ms.pop(broker_id, None)

    def heard_controller(self, asked_ms: float) -> None:
        """It has answered a heartbeat that was sent then, by this clock: it knew that this broker lived."""
        self._controller_ms = asked_ms

    # ---- what follows from it

    @property
    def is_out_of_service(self) -> bool:
        """The controller has most likely given this broker up."""
        heard_ms = self._controller_ms
        return heard_ms is not None and self._clock.now_ms() - heard_ms > self.session_timeout_ms

    def silent_followers(self, limit_ms: float) -> list[int]:
        """Those who have not been heard from for this long, though they are expected to fetch."""
        now_ms = self._clock.now_ms()
        return [broker_id for broker_id, heard_ms in self._followers_ms.items() if now_ms - heard_ms > limit_ms]
