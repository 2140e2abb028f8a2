"""The outcome of a record that was sent: callbacks, or a result to wait for."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from penstock.client.buffer import BufferAccount
from penstock.client.errors import DeliveryFailed, RequestTimedOut

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

log = logging.getLogger("penstock.client")


class RecordMetadata(NamedTuple):
    """Where a record was stored."""

    topic: str
    partition: int
    offset: int
    """-1 with acks=0: the broker does not say."""
    timestamp_ms: int


Callback = Callable[[RecordMetadata], object]
Errback = Callable[[DeliveryFailed], object]


class Deliveries:
    """State that the deliveries of one producer share: its buffer, and failures not yet reported to the application."""

    __slots__ = ("account", "first_unheard", "listening", "unheard")

    def __init__(self, account: BufferAccount) -> None:
        self.account = account
        self.listening = threading.Lock()
        self.unheard = 0
        self.first_unheard: DeliveryFailed | None = None

    def raise_unheard(self) -> None:
        """Raises if records failed and no callback or caller saw it: they must not pass for stored."""
        with self.listening:
            count, first = self.unheard, self.first_unheard
            self.unheard, self.first_unheard = 0, None
        if count and first is not None:
            failed = DeliveryFailed(f"{count} record{'s were' if count > 1 else ' was'} not stored; the first: {first}")
            failed.code, failed.retriable = first.code, first.retriable
            raise failed

    def forget(self) -> None:
        """Drops unreported failures: the outcome of their transaction says all that matters."""
        with self.listening:
            self.unheard, self.first_unheard = 0, None


class Delivery(msgspec.Struct, gc=False, eq=False):
    """The delivery of one record. librdkafka completes it by calling it, in the producer's thread.

    A listener is added before the outcome is checked, and the outcome is set before listeners are checked; the thread
    that calls a listener removes it first. So each listener is called exactly once, whichever thread is first, and a
    record without listeners needs no lock.

    There is one per record, as many at a time as the buffer holds: a struct that the garbage collector does not track
    costs a third. It cannot form lasting cycles: only listeners may refer back to it, and they are dropped when called.
    """

    topic: str
    size_bytes: int
    _shared: Deliveries
    _message: Message | None = None
    _error: KafkaError | None = None
    _heard: bool = False
    _listeners: deque[tuple[Callback | None, Errback | None]] | None = None

    def add_callback(self, callback: Callable[..., object], *arguments: Any) -> Self:
        """Calls `callback(*arguments, metadata)` when the record is stored; at once if it already is."""
        listener: Callback = callback if not arguments else lambda metadata: callback(*arguments, metadata)
        self._listen(listener, None)
        return self

    def add_errback(self, errback: Callable[..., object], *arguments: Any) -> Self:
        """Calls `errback(*arguments, error)` when the record has failed; at once if it already has."""
        listener: Errback = errback if not arguments else lambda error: errback(*arguments, error)
        self._listen(None, listener)
        return self

    def done(self) -> bool:
        return self._message is not None or self._error is not None

    def succeeded(self) -> bool:
        return self._message is not None

    def failed(self) -> bool:
        return self.exception() is not None

    def exception(self) -> DeliveryFailed | None:
        """The failure; None if the record was stored or is still in flight."""
        return None if self._error is None else self._mark_seen()

    def metadata(self) -> RecordMetadata:
        """Where the record was stored. Call it once `done`; raises DeliveryFailed if it was not stored."""
        if self._error is not None:
            raise self._mark_seen()
        message = self._message
        assert message is not None, "the record is still in flight: check done() first"
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        return RecordMetadata(self.topic, partition, -1 if offset is None else offset, message.timestamp()[1])

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Called by librdkafka for every record, with or without listeners, because it updates the buffer account."""
        self._shared.account.used_bytes -= self.size_bytes
        if error is None:
            self._message = message
        else:
            self._fail(error)
        if self._listeners is not None:
            self._tell()

    def _fail(self, error: KafkaError) -> None:
        shared = self._shared
        with shared.listening:
            shared.account.failed_records += 1
            self._error = error
            shared.unheard += 1
            if shared.first_unheard is None:
                shared.first_unheard = DeliveryFailed.of(self.topic, error)

    def _mark_seen(self) -> DeliveryFailed:
        """Marks the failure as seen by the application, and returns it."""
        assert self._error is not None
        shared = self._shared
        with shared.listening:
            if not self._heard:
                self._heard = True
                shared.unheard = max(0, shared.unheard - 1)
                if not shared.unheard:
                    shared.first_unheard = None
        return DeliveryFailed.of(self.topic, self._error)

    def _listen(self, callback: Callback | None, errback: Errback | None) -> None:
        with self._shared.listening:
            if self._listeners is None:
                self._listeners = deque()
            self._listeners.append((callback, errback))
        if self.done():
            self._tell()

    def _tell(self) -> None:
        assert self._listeners is not None
        while True:
            try:
                callback, errback = self._listeners.popleft()
            except IndexError:
                return
            try:
                if self._error is None:
                    if callback is not None:
                        callback(self.metadata())
                elif errback is not None:
                    errback(self._mark_seen())
            except Exception:
                # This is the producer's thread, where the application could not catch it; other records continue.
                log.exception("a delivery callback for topic %s failed", self.topic)


class SyncDelivery(Delivery, gc=False, eq=False):
    """A delivery with a result that a thread can wait for. It keeps the record alive."""

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Waits until the record is stored. Raises DeliveryFailed, or RequestTimedOut after `timeout_s`.

        Do not call it from a callback: callbacks run in the thread that would complete the delivery.
        """
        if not self.done():
            arrived = threading.Event()
            self._listen(lambda _: arrived.set(), lambda _: arrived.set())
            if not arrived.wait(timeout_s):
                raise RequestTimedOut.for_records(1, timeout_s)
        return self.metadata()
