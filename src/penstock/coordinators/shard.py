"""What a shard is, and what it may ask for. See the package's docstring for how it fits together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.metadata import MetadataDelta, MetadataImage
from penstock.wire.codec import Message


class Ticket(Protocol):
    """Someone who waits for an answer. Opaque to shards: kept while the answer is due, handed to `Turn.reply` once."""


class Turn(Protocol):
    """What one decision may see of the world, and where its effects go."""

    now_ms: float
    """Monotonic and without the time in which this process stood still (SIGSTOP, a long stall): for durations."""
    wall_ms: int
    """The calendar's: for timestamps in records."""
    image: MetadataImage
    """The metadata as this broker knows it."""

    def append(self, key: bytes, value: bytes | None) -> None:
        """Make a change durable; None is a tombstone. The shard has changed its own state already, or does so now."""

    def append_all(self, records: list[tuple[bytes, bytes]]) -> None:
        """Make many changes durable."""

    def reply(self, ticket: Ticket, response: Message) -> None:
        """Answer, as soon as everything appended so far is committed."""

    def set_timer(self, key: TimerKey, delay_ms: float, callback: TimerCallback) -> None:
        """Call back in a turn of its own. A key has one timer: setting it again replaces it (cheaply)."""

    def cancel_timer(self, key: TimerKey) -> None:
        """No error if there is none."""

    def uuid(self) -> bytes:
        """16 random bytes."""


TimerKey = tuple[str, ...]
"""What the timer is for, and for whom."""
TimerCallback = Callable[[Turn, TimerKey], None]
"""Told its key again: thousands of sessions share one function, and need no object each to remember whose they are."""


class Shard(Protocol):
    """The state of one partition of an internal topic."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None) -> None:
        """Take up one record of the log while loading. `producer_id` is -1 outside transactions."""

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A transaction that wrote to this partition has ended: what it wrote takes effect, or is forgotten."""

    def on_loaded(self, turn: Turn) -> None:
        """All of the log has been replayed: set timers, finish what a crash left half done."""

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        """The metadata has changed; `turn.image` is the new one."""

    def on_resigned(self) -> None:
        """The state is about to be thrown away. Tickets need no answer: their host sends it."""
