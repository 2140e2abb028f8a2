"""One decision of a shard as its host sees it: the records to append, their producer, and the replies to send."""

from __future__ import annotations

from itertools import chain
from typing import Protocol

from penstock.coordinators.clock import Cancellable
from penstock.coordinators.shard import (
    AnswerCallback,
    CoordinatorEpoch,
    EndMarker,
    Key,
    Producer,
    Recipient,
    Ticket,
    TimerCallback,
    Writer,
)
from penstock.coordinators.timers import Timers
from penstock.metadata import MetadataImage
from penstock.wire.codec import Message
from penstock.wire.records import end_marker

RECORD_OVERHEAD_BYTES_MAX = 32
"""Upper bound of a record's size in a batch, not counting its key and value."""

Pair = tuple[bytes, bytes | None]
"""The key and value of a record."""


class Ask:
    """A request to another broker: sent when the records of its decision are committed, then awaiting its answer."""

    __slots__ = ("key", "recipient", "request", "sent", "then")

    def __init__(self, key: Key, recipient: Recipient, request: Message, then: AnswerCallback) -> None:
        self.key = key
        self.recipient = recipient
        self.request = request
        self.then = then
        self.sent: Cancellable | None = None


Run = tuple[Writer | None, list[Pair], int]
"""Consecutive records of one writer (None: outside transactions), and their total size in bytes."""


class TurnHost(Protocol):
    """The methods of the host that a turn calls."""

    decided_end: int
    timers: Timers

    def cancel_ask(self, key: Key) -> None: ...
    def uuid(self) -> bytes: ...


OVER = "a turn was used after its decision was complete"


class HostTurn:
    """One decision. The object is reused for the next one, so shards must not keep it."""

    __slots__ = (
        "_host",
        "asks",
        "bytes",
        "claim",
        "coordinator_epoch",
        "image",
        "is_open",
        "now_ms",
        "records",
        "replies",
        "runs",
        "wall_ms",
        "writer",
    )

    def __init__(self, host: TurnHost, coordinator_epoch: CoordinatorEpoch, image: MetadataImage) -> None:
        self._host = host
        self.coordinator_epoch = coordinator_epoch
        self.image = image
        self.now_ms = 0.0
        self.wall_ms = 0
        self.is_open = False
        self.claim: Writer | None = None
        """The producer or marker for which this decision may write transactional records."""
        self.runs: tuple[Run, ...] = ()
        """Earlier records of this decision, by other writers than that of `records`."""
        self.writer: Writer | None = None
        """Of `records`."""
        self.records: list[Pair] = []
        self.bytes = 0
        self.replies: list[tuple[Ticket, Message]] = []
        self.asks: tuple[Ask, ...] = ()

    def begin(self, now_ms: float, wall_ms: int, image: MetadataImage, claim: Writer | None) -> None:
        assert not self.is_open, "a decision was started inside another one"
        self.is_open = True
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.image = image
        self.claim = claim
        self.runs = ()
        self.writer = None
        self.records = []
        self.bytes = 0
        self.replies = []
        self.asks = ()

    @property
    def end_offset(self) -> int:
        return self._host.decided_end + sum(len(records) for _, records, _ in self.runs) + len(self.records)

    def append(self, key: bytes, value: bytes | None) -> None:
        assert self.is_open, OVER
        if self.writer is not None:
            self._write_as(None)
        self.records.append((key, value))
        self.bytes += len(key) + (0 if value is None else len(value)) + RECORD_OVERHEAD_BYTES_MAX

    def append_all(self, records: list[tuple[bytes, bytes]]) -> None:
        assert self.is_open, OVER
        if self.writer is not None and records:
            self._write_as(None)
        self._add(records)

    def append_as(self, producer: Producer, records: list[tuple[bytes, bytes]]) -> None:
        assert self.is_open, OVER
        assert producer == self.claim, "only what the log was asked about may be written"
        if self.writer != producer and records:
            self._write_as(producer)
        self._add(records)

    def end_transaction(self, marker: EndMarker) -> None:
        assert self.is_open, OVER
        assert marker == self.claim, "only what the log was asked about may be written"
        self._write_as(marker)
        self._add([end_marker(marker.committed, marker.coordinator_epoch)])

    def _add(self, records: list[tuple[bytes, bytes]]) -> None:
        self.records += records
        self.bytes += sum(map(len, chain.from_iterable(records))) + len(records) * RECORD_OVERHEAD_BYTES_MAX

    def _write_as(self, writer: Writer | None) -> None:
        if self.records:
            self.runs += ((self.writer, self.records, self.bytes),)
            self.records, self.bytes = [], 0
        self.writer = writer

    def reply(self, ticket: Ticket, response: Message) -> None:
        assert self.is_open, OVER
        self.replies.append((ticket, response))

    def ask(self, key: Key, recipient: Recipient, request: Message, then: AnswerCallback) -> None:
        assert self.is_open, OVER
        self.cancel_ask(key)
        self.asks += (Ask(key, recipient, request, then),)

    def cancel_ask(self, key: Key) -> None:
        assert self.is_open, OVER
        self.asks = tuple(ask for ask in self.asks if ask.key != key)
        self._host.cancel_ask(key)

    def set_timer(self, key: Key, delay_ms: float, callback: TimerCallback) -> None:
        assert self.is_open, OVER
        self._host.timers.set(key, delay_ms, callback, self.now_ms)

    def cancel_timer(self, key: Key) -> None:
        self._host.timers.cancel(key)

    def uuid(self) -> bytes:
        return self._host.uuid()
