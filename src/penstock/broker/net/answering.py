"""The memory that large answers take until their clients have read them: one budget for all connections.

A client that asks for the metadata of every topic and does not read the answer costs the broker that answer, and a
connection has at most one such answer under way. Beyond the budget the next large answer waits, with its place among
the large requests (`slices.Places`), until others have been read. While one waits, clients that have taken nothing for
`limits.ANSWER_SILENCE_MS` are closed.
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
        """What its peer has not taken yet."""

    def too_slow(self) -> None:
        """It holds what others wait for, and does not read: close it."""


class Held:
    """One answer that is under way."""

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
        """Answers wait for room."""
        return bool(self._waiting)

    async def take(self, reader: Reader, count: int) -> None:
        """Wait until there is room for an answer of this size. An answer beyond the whole budget goes alone."""
        self.give(reader)  # what is left of the one before is no more than the transport sends by itself
        while self.used and self.used + count > self._most:
            future = self._new_future()
            self._waiting.append(future)
            self._relieve_later()
            await future
        self.used += count
        self._held[reader] = Held(count, self._now_ms())

    def give(self, reader: Reader) -> None:
        """Its answer has left, or it has."""
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
