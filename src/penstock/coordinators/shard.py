"""What a shard is, and what it may ask for. See the package's docstring for how it fits together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NewType, Protocol

from penstock.metadata import MetadataDelta, MetadataImage
from penstock.wire.codec import Message

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
CoordinatorEpoch = NewType("CoordinatorEpoch", int)
"""The leader epoch of the shard's partition: a coordinator that takes over has a higher one."""
BrokerId = NewType("BrokerId", int)


class RequestInfo(NamedTuple):
    """What a shard must know of a request besides its body: who asks, and in which version of the API."""

    version: int
    client_id: str
    client_host: str
    """As Kafka shows it, with the slash: `/127.0.0.1`."""


class Producer(NamedTuple):
    """Whoever writes in a transaction."""

    id: ProducerId
    epoch: ProducerEpoch


class EndMarker(NamedTuple):
    """The control record that ends a producer's transaction in this partition."""

    producer: Producer
    committed: bool
    coordinator_epoch: CoordinatorEpoch
    """Of the transaction coordinator that sent the marker."""


Writer = Producer | EndMarker
"""In whose name a transactional batch is written. The log refuses one that has been replaced by a newer epoch."""


class PartitionLeader(NamedTuple):
    """Whichever broker leads the partition when the request is sent."""

    topic: str
    partition: int


Recipient = BrokerId | PartitionLeader


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
    coordinator_epoch: CoordinatorEpoch

    @property
    def end_offset(self) -> int:
        """The offset of the record that is appended next."""

    def append(self, key: bytes, value: bytes | None) -> None:
        """Make a change durable; None is a tombstone. The shard has changed its own state already, or does so now."""

    def append_all(self, records: list[tuple[bytes, bytes]]) -> None:
        """Make many changes durable."""

    def append_as(self, producer: Producer, records: list[tuple[bytes, bytes]]) -> None:
        """Write records that take effect when the producer's transaction ends. The request must have named the producer
        (`ShardHost.submit`). They are a batch of their own: after a crash it may be there without the plain records of
        the same decision, or the other way round."""

    def end_transaction(self, marker: EndMarker) -> None:
        """Write the marker that ends a transaction. The request must have named it (`ShardHost.submit`)."""

    def reply(self, ticket: Ticket, response: Message) -> None:
        """Answer, as soon as everything appended so far is committed."""

    def ask(self, key: Key, recipient: Recipient, request: Message, then: AnswerCallback) -> None:
        """Send a request to another broker, as soon as everything appended so far is committed.

        It is sent again until it is answered; the answer, whatever it says, is a turn of its own. A key has one
        request: asking again replaces it, and the answer to the former one is ignored. Requests do not survive a
        coordinator: the shard repeats in `on_loaded` what its state says is still to be asked, so the recipient may
        get a request more than once.
        """

    def cancel_ask(self, key: Key) -> None:
        """No error if there is none. A request that has left may have arrived."""

    def set_timer(self, key: Key, delay_ms: float, callback: TimerCallback) -> None:
        """Call back in a turn of its own. A key has one timer: setting it again replaces it (cheaply)."""

    def cancel_timer(self, key: Key) -> None:
        """No error if there is none."""

    def uuid(self) -> bytes:
        """16 random bytes."""


Key = tuple[str, ...]
"""What a timer or a request is for, and for whom."""
TimerKey = Key
TimerCallback = Callable[[Turn, TimerKey], None]
"""Told its key again: thousands of sessions share one function, and need no object each to remember whose they are."""
AnswerCallback = Callable[[Turn, Key, Message], None]
"""The same, with the answer."""


class Shard(Protocol):
    """The state of one partition of an internal topic."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None) -> None:
        """Take up one record of the log while loading. `producer_id` is -1 outside transactions."""

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A transaction that wrote to this partition has ended: what it wrote takes effect, or is forgotten."""

    def on_loaded(self, turn: Turn) -> None:
        """All of the log has been replayed: set timers, repeat requests, finish what was left half done."""

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        """The metadata has changed; `turn.image` is the new one."""

    def on_resigned(self) -> None:
        """The state is about to be thrown away. Tickets need no answer: their host sends it."""
