"""The memory budget for incomplete requests, shared by all connections of a service.

A connection starts with a small buffer. Larger buffers are taken from this budget, for a whole frame at a time: a frame
of 20 MB is read past its first bytes only once 20 MB are free. So no incomplete frame waits for memory that another
incomplete frame holds, and the buffers never exceed the budget. Buffers are mapped lazily
(`penstock.runtime.memory`), so a length that a peer declares and does not send takes budget, but no memory.

Those who have to wait are served in the order in which they came, large frames (`LARGE_FRAME_BYTES`) in a line of
their own. Large frames leave an eighth of the budget to others, so that ordinary requests go on while a few peers ask
for much. And one frame at a time, of whatever size, is let in although the budget is used up: room for the largest
frame is kept for that. It ends the wait where what is held will not be given back soon.

While someone waits, idle buffers are given back at once. A peer that stops in the middle of a request is then closed
after `limits.RECEIVE_STALL_MS`, and one that goes on so slowly that no request is finished after
`limits.REQUEST_SILENCE_MS`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from penstock.broker import limits

LENGTH_BYTES = 4
LARGE_FRAME_BYTES = 1024 * 1024
RELIEF_INTERVAL_MS = 1_000


class Receiver(Protocol):
    """The connection."""

    closed: bool
    active_ms: float
    """When bytes arrived last."""
    progress_ms: float
    """When it last finished a request, as far as it was noted while memory was short."""

    @property
    def mid_request(self) -> bool:
        """Part of a request has arrived and nothing but the peer holds up the rest."""

    def memory_granted(self) -> None:
        """The requested bytes have been granted."""

    def shrink(self) -> None:
        """Release the buffer if it is empty."""

    def overdue(self) -> None:
        """Close the connection: others wait for its memory, and it does not finish its request."""


class ReceiveBudget:
    def __init__(
        self,
        now_ms: Callable[[], float],
        call_soon: Callable[..., object],
        call_later: Callable[..., object],
    ) -> None:
        self._now_ms = now_ms
        self._call_soon = call_soon
        self._call_later = call_later
        self._ordinary_bytes_max = 0
        self._large_bytes_max = 0
        self._holders: dict[Receiver, float] = {}
        """Receivers that hold memory, and since when, oldest first."""
        self._lines: tuple[OrderedDict[Receiver, int], ...] = (OrderedDict(), OrderedDict())
        """Waiting receivers and the bytes they need: for ordinary frames, and for large ones."""
        self._favoured: Receiver | None = None
        """The receiver that was admitted beyond the budget."""
        self._short_since_ms = 0.0
        self._relief_due = False
        self.used = 0
        self.short = False
        """Whether receivers wait: buffers that are not needed must be released at once."""

    def configure(self, budget_bytes: int, frame_bytes_max: int) -> None:
        """A budget of less than two of the largest frames counts as two."""
        frame_bytes_max += LENGTH_BYTES
        budget_bytes = max(budget_bytes, 2 * frame_bytes_max)
        self._ordinary_bytes_max = budget_bytes - frame_bytes_max
        self._large_bytes_max = self._ordinary_bytes_max - budget_bytes // 8
        self._serve_waiting()

    def take(self, receiver: Receiver, count: int) -> bool:
        """Ask for `count` bytes. False: wait for `memory_granted`, and ask for nothing else until then."""
        line = self._lines[count > LARGE_FRAME_BYTES]
        if not line and self._grant(receiver, count):
            return True
        line[receiver] = count
        if not self.short:
            self.short = True
            self._short_since_ms = self._now_ms()
            self._call_soon(self._reclaim)
            self._relieve_later()
        return False

    def reserve(self, count: int) -> bool:
        """Take memory that a connection holds as long as it is open (TLS). False: there is none."""
        if self.used + count > self._large_bytes_max:
            return False
        self.used += count
        return True

    def unreserve(self, count: int) -> None:
        self.used -= count
        if self.short:
            self._call_soon(self._serve_waiting)

    def give(self, receiver: Receiver, count: int, left: int) -> None:
        """Give back `count` bytes; `left` is what it still holds."""
        self.used -= count
        assert self.used >= 0, "more was given back than was taken"
        if not left:
            self._holders.pop(receiver, None)
        if self.used <= self._large_bytes_max or (receiver is self._favoured and not left):
            self._favoured = None
        if self.short:
            self._call_soon(self._serve_waiting)

    def leave(self, receiver: Receiver, count: int) -> None:
        """The connection is closed: release the `count` bytes that it held."""
        for line in self._lines:
            line.pop(receiver, None)
        self.give(receiver, count, 0)

    def _grant(self, receiver: Receiver, count: int) -> bool:
        most = self._large_bytes_max if count > LARGE_FRAME_BYTES else self._ordinary_bytes_max
        if self.used + count > most:
            if self._favoured is not None and self._favoured is not receiver:
                return False
            self._favoured = receiver
        self.used += count
        self._holders.pop(receiver, None)
        self._holders[receiver] = self._now_ms()
        return True

    def _serve_waiting(self) -> None:
        for line in self._lines:
            while line:
                receiver, count = next(iter(line.items()))
                if not self._grant(receiver, count):
                    break
                del line[receiver]
                self._call_soon(receiver.memory_granted)
        self.short = any(self._lines)

    def _reclaim(self) -> None:
        for receiver in list(self._holders):
            receiver.shrink()

    def _relieve_later(self) -> None:
        if not self._relief_due:
            self._relief_due = True
            self._call_later(RELIEF_INTERVAL_MS, self._relieve)

    def _relieve(self) -> None:
        """Close connections that hold memory without progress."""
        self._relief_due = False
        if not self.short:
            return
        now_ms = self._now_ms()
        for receiver, since_ms in list(self._holders.items()):
            since_ms = max(since_ms, self._short_since_ms, receiver.progress_ms)
            stalled = receiver.mid_request and now_ms - max(since_ms, receiver.active_ms) >= limits.RECEIVE_STALL_MS
            if stalled or now_ms - since_ms >= limits.REQUEST_SILENCE_MS:
                receiver.overdue()
        self._relieve_later()
