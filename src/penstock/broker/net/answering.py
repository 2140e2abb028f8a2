"""The memory budget for large answers that clients have not read yet, shared by all connections.

A client that requests the metadata of every topic and does not read the answer makes the broker keep that answer in
memory. A connection has at most one such answer at a time. If the budget is used up, the next large answer waits, with
its place among the large requests (`slices.Places`), until others have been read. While one waits, clients that have
read nothing for `limits.ANSWER_SILENCE_MS` are disconnected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from penstock.broker import limits
from penstock.runtime import Future

RELIEF_INTERVAL_MS = 1_000


class Reader(Protocol):
    """The connection."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not read yet."""

    def too_slow(self) -> None:
        """Close the connection: others wait for its memory, and its peer does not read."""


class Held:
    """One answer that is being sent."""

    __slots__ = ("count", "progress_ms", "unsent_bytes")

    def __init__(self, count: int, now_ms: float) -> None:
        self.count = count
        self.unsent_bytes = count
        self.progress_ms = now_ms


class AnswerBudget:
    def __init__(
        self,
        now_ms: Callable[[], float],
        call_later: Callable[..., object],
        new_future: Callable[[], Future[None]],
        most: int = limits.ANSWER_BUDGET_BYTES,
    ) -> None:
        self._now_ms = now_ms
        self._call_later = call_later
        self._new_future = new_future
        self._most = most
        self._held: dict[Reader, Held] = {}
        self._waiting: deque[Future[None]] = deque()
        self._relief_due = False
        self.used = 0

    @property
    def is_short(self) -> bool:
        """Whether answers wait for room."""
        return bool(self._waiting)

    async def take(self, reader: Reader, count: int) -> None:
        """Wait until there is room for an answer of this size. An answer larger than the budget is sent alone."""
        self.give(reader)  # the rest of the previous answer is small enough for the transport's buffer
        while self.used and self.used + count > self._most:
            future = self._new_future()
            self._waiting.append(future)
            self._relieve_later()
            await future
        self.used += count
        self._held[reader] = Held(count, self._now_ms())

    def give(self, reader: Reader) -> None:
        """Release the budget: the answer was sent, or the connection is closed."""
        held = self._held.pop(reader, None)
        if held is None:
            return
        self.used -= held.count
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _relieve_later(self) -> None:
        if not self._relief_due:
            self._relief_due = True
            self._call_later(RELIEF_INTERVAL_MS, self._relieve)

    def _relieve(self) -> None:
        self._relief_due = False
        if not self._waiting:
            return
        now_ms = self._now_ms()
        for reader, held in list(self._held.items()):
            unsent = reader.unsent_bytes
            if not unsent:
                self.give(reader)
            elif unsent < held.unsent_bytes:
                held.unsent_bytes, held.progress_ms = unsent, now_ms
            elif now_ms - held.progress_ms >= limits.ANSWER_SILENCE_MS:
                reader.too_slow()
        self._relieve_later()
