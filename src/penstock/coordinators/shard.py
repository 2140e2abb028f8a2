"""The interfaces of a shard and of the `Turn` that collects its effects. The package docstring gives the overview."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NewType, Protocol

from penstock.metadata import MetadataDelta, MetadataImage
from penstock.wire.codec import Message

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
CoordinatorEpoch = NewType("CoordinatorEpoch", int)
"""The leader epoch of the shard's partition: each new coordinator has a higher one."""
BrokerId = NewType("BrokerId", int)


class RequestInfo(NamedTuple):
    """The client and the API version of a request: what a shard needs besides its body."""

    version: int
    client_id: str
    client_host: str
    """In Kafka's form, with a leading slash: `/127.0.0.1`."""
    may_describe: Callable[[str], bool] | None = None
    """Whether the client may describe a topic; None if everyone may describe all of them."""


class Producer(NamedTuple):
    """A transactional producer."""

    id: ProducerId
    epoch: ProducerEpoch


class EndMarker(NamedTuple):
    """The control record that ends a producer's transaction in this partition."""

    producer: Producer
    committed: bool
    coordinator_epoch: CoordinatorEpoch
    """The epoch of the transaction coordinator that sent the marker."""
    transaction_version: int = 0
    """From 2 on the marker has a newer epoch than the transaction that it ends (KIP-1228)."""


Writer = Producer | EndMarker
"""The producer or marker for which a transactional batch is written. The log refuses one with an outdated epoch."""


class PartitionLeader(NamedTuple):
    """The broker that leads the partition at the time the request is sent."""

    topic: str
    partition: int


Recipient = BrokerId | PartitionLeader


class Ticket(Protocol):
    """Identifies a pending request. Opaque to shards: they keep it until they pass it to `Turn.reply`, once."""


class Turn(Protocol):
    """The inputs of one decision (clocks, metadata), and the methods that record its effects."""

    now_ms: float
    """Monotonic time for durations. It excludes stalls of this process (such as SIGSTOP)."""
    wall_ms: int
    """Wall-clock time: for timestamps in records."""
    image: MetadataImage
    """The metadata as this broker knows it."""
    coordinator_epoch: CoordinatorEpoch

    @property
    def end_offset(self) -> int:
        """The offset of the next record to be appended."""

    def append(self, key: bytes, value: bytes | None) -> None:
        """Append a record that makes a change durable; None is a tombstone. The shard changes its own state itself."""

    def append_all(self, records: list[tuple[bytes, bytes]]) -> None:
        """Append many records."""

    def append_as(self, producer: Producer, records: list[tuple[bytes, bytes]]) -> None:
        """Append records that take effect when the producer's transaction commits. The request must have named the
        producer (`ShardHost.submit`). They form a separate batch, so after a crash the log may have only these records
        or only the plain records of the same decision."""

    def end_transaction(self, marker: EndMarker) -> None:
        """Append the marker that ends a transaction. The request must have named it (`ShardHost.submit`)."""

    def reply(self, ticket: Ticket, response: Message) -> None:
        """Answer, as soon as everything appended so far is committed."""

    def ask(self, key: Key, recipient: Recipient, request: Message, then: AnswerCallback) -> None:
        """Send a request to another broker, as soon as everything appended so far is committed.

        It is resent until it is answered; any answer, even an error, starts a new turn. A key has one request: asking
        again replaces it, and the answer to the former one is ignored. Requests are lost when the coordinator moves:
        the shard must ask again in `on_loaded` whatever its state requires, so the recipient may get a request more
        than once.
        """

    def cancel_ask(self, key: Key) -> None:
        """Cancel the request, if there is one. If it was sent already, the recipient may still have received it."""

    def set_timer(self, key: Key, delay_ms: float, callback: TimerCallback) -> None:
        """Call back in a separate turn. A key has one timer: setting it again replaces it (cheaply)."""

    def cancel_timer(self, key: Key) -> None:
        """Cancel the timer, if there is one."""

    def uuid(self) -> bytes:
        """16 random bytes."""


Key = tuple[str, ...]
"""Identifies a timer or a request: its purpose, and the group or member it belongs to."""
TimerKey = Key
TimerCallback = Callable[[Turn, TimerKey], None]
"""Called with the timer's key, so that thousands of sessions can share one function without an object for each."""
AnswerCallback = Callable[[Turn, Key, Message], None]
"""Called with the request's key and the answer."""


class Shard(Protocol):
    """The state of one partition of an internal topic."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None) -> None:
        """Apply one record of the log while loading. `producer_id` is -1 outside transactions."""

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """End a transaction that wrote to this partition: its records take effect, or are discarded."""

    def on_loaded(self, turn: Turn) -> None:
        """Called after the whole log was replayed: set timers, repeat requests, finish incomplete operations."""

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        """Called when the metadata has changed; `turn.image` is the new image."""

    def on_resigned(self) -> None:
        """Called before the state is discarded. The host answers all pending tickets."""
