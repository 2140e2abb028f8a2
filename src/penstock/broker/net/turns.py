"""Fair scheduling of connections: clients with little load do not wait for clients with much load.

While the loop keeps up, a connection serves what it has read at once, and this module costs it one comparison. That
may go on for `ROUND_MS` before the loop has to come round and look at its sockets and timers again. Connections that
are not done by then, and all that follow while some wait, queue here. They are not read meanwhile, so that a client
that sends more than is served is slowed down by TCP.

There are two queues. A connection enters the first, and is served briefly (`FRESH_MS`): enough for the one or few
requests of a client that waits for its answers. A connection that has more, or took long, counts as busy for the next
`BUSY_MS` and waits in the second queue. There, connections share the remaining time: each is served for a slice, and
the next is always the one that has used the least time since it entered (start-time fair queueing). An idle connection
accumulates no credit, and the time of a long request is charged after it was served.

So a client with few requests waits for one pass of the loop and for other such clients, but not for clients that
pipeline thousands of requests. The second queue gets at least a quarter of each round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

ROUND_MS = 4.0
"""How long requests are served before the loop looks at its sockets and timers again."""

FRESH_ROUND_MS = 3.0
"""How much of that goes to connections of the first queue, at most, while there are others."""

FRESH_MS = 0.1
"""A connection of the first queue begins no request after this time."""

SLICE_MS = 0.3
"""The same limit for the second queue. The answers of a slice share one write."""

LONG_MS = 1.0
"""A turn in the first queue that takes longer than this, because of a single request, makes a connection busy too."""

FOLLOWER_WEIGHT = 100.0
"""The weight of a follower, in clients: produce requests wait for followers."""

BUSY_MS = 500.0
"""For how long a connection counts as busy, at least."""

BUSY_PER_MS = 400.0
"""A long turn makes it count as busy for so many times its length. So hundreds of connections, each with one long
request at a time, stay in the second queue while each waits for the others."""

BUSY_MS_MAX = 10_000.0


class Turnable(Protocol):
    """The connection."""

    closed: bool
    busy_until_ms: float
    virtual_ms: float
    """The time for which it has been served from the second queue since it entered."""
    weight: float
    """Its weight in the second queue."""

    def take_turn(self, now_ms: float, until_ms: float) -> bool:
        """Serve pending requests, but start none after `until_ms`. Returns whether more remain."""


class Turns:
    __slots__ = (
        "_armed",
        "_busy",
        "_call_soon",
        "_cpu_ms",
        "_fresh",
        "_newest_ms",
        "_now_ms",
        "_number",
        "_virtual_ms",
        "until_ms",
    )

    def __init__(
        self, now_ms: Callable[[], float], cpu_ms: Callable[[], float], call_soon: Callable[..., object]
    ) -> None:
        self._now_ms = now_ms
        self._cpu_ms = cpu_ms
        """CPU time, which connections are charged for; they are not charged for a busy machine."""
        self._call_soon = call_soon
        self._fresh: deque[Turnable] = deque()
        self._busy: list[tuple[float, int, Turnable]] = []
        self._number = 0
        self._virtual_ms = 0.0
        self._newest_ms = 0.0
        self._armed = False
        """A round is due in this pass of the loop."""
        self.until_ms = 0.0
        """Until then connections may serve what they have read at once, without asking."""

    @property
    def waiting(self) -> int:
        return len(self._fresh) + len(self._busy)

    def opens(self, now_ms: float) -> bool:
        """Asked when `until_ms` is over: whether connections may go on, in a new pass of the loop.

        Otherwise the caller has to `queue`.
        """
        if self._armed:
            return False
        self.until_ms = now_ms + ROUND_MS
        self._arm()
        return True

    def queue(self, connection: Turnable, *, more: bool = False) -> None:
        """Serve this connection when it is its turn. It must not be in a queue already.

        `more`: it had a turn just now, which was too short for what it has.
        """
        now_ms = self._now_ms()
        if more:
            connection.busy_until_ms = now_ms + BUSY_MS
        if now_ms < connection.busy_until_ms:
            self._queue_busy(connection)
        else:
            self._fresh.append(connection)
        self.until_ms = 0.0
        self._arm()

    def _queue_busy(self, connection: Turnable) -> None:
        virtual_ms = connection.virtual_ms = max(connection.virtual_ms, self._virtual_ms)
        self._number += 1
        heappush(self._busy, (virtual_ms, self._number, connection))

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._call_soon(self._round)

    def _round(self) -> None:
        self._armed = False
        now_ms = self._now_ms()
        end_ms = now_ms + ROUND_MS
        fresh, busy = self._fresh, self._busy
        fresh_end_ms = now_ms + (FRESH_ROUND_MS if busy else ROUND_MS)
        while fresh and now_ms < fresh_end_ms:
            now_ms = self._serve_fresh(fresh.popleft(), now_ms)
        while busy and now_ms < end_ms:
            now_ms = self._serve_busy(now_ms)
        if fresh or busy:
            self._arm()
        else:
            self._virtual_ms = self._newest_ms
            self.until_ms = now_ms + ROUND_MS

    def _serve_fresh(self, connection: Turnable, now_ms: float) -> float:
        if connection.closed:
            return now_ms
        began_ms = self._cpu_ms()
        more = connection.take_turn(now_ms, now_ms + FRESH_MS)
        now_ms = self._now_ms()
        used_ms = self._cpu_ms() - began_ms
        if more or used_ms > LONG_MS:
            connection.busy_until_ms = now_ms + busy_for_ms(used_ms)
        if more:
            self._queue_busy(connection)
        return now_ms

    def _serve_busy(self, now_ms: float) -> float:
        virtual_ms, _, connection = heappop(self._busy)
        if connection.closed:
            return now_ms
        self._virtual_ms = virtual_ms
        began_ms = self._cpu_ms()
        more = connection.take_turn(now_ms, now_ms + SLICE_MS)
        used_ms = self._cpu_ms() - began_ms
        virtual_ms += used_ms / connection.weight
        connection.virtual_ms = virtual_ms
        self._newest_ms = max(self._newest_ms, virtual_ms)
        now_ms = self._now_ms()
        if more or used_ms > LONG_MS:
            connection.busy_until_ms = now_ms + busy_for_ms(used_ms)
        if more:
            self._queue_busy(connection)
        return now_ms


def busy_for_ms(used_ms: float) -> float:
    """For how long a turn that took this long makes its connection count as busy."""
    return BUSY_MS if used_ms <= LONG_MS else min(BUSY_MS_MAX, max(BUSY_MS, used_ms * BUSY_PER_MS))
