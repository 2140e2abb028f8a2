"""The host of a shard: calls the shard for each decision, appends its records, and answers once they are committed.

What happens in one turn of the loop:

    submit → the shard decides ─┬─ records ──→ one batch, appended when the turn ends
    timer  → the shard decides ─┤
    image  → the shard decides ─┼─ replies ──→ held until all records written before them are below the high watermark
    answer → the shard decides ─┴─ requests ─→ to other brokers, held in the same way; each answer is a new decision

**Transactional records.** A batch has one producer, so records of another producer go into another batch, in the order
of the decisions. The log refuses a producer or a marker with an outdated epoch. Such a request must not make the batch
of other requests fail, and the shard must not decide something that cannot be written. So a request names the producer
or marker it writes for (`submit(…, claim)`), and the host checks it against the log before it calls the shard. Only
the host writes to the partition, so a batch that passed the check is still valid when it is appended.

While too few replicas are in sync the partition's high watermark does not advance. Requests that must write are refused
(COORDINATOR_NOT_AVAILABLE). Decisions made by timers are still written; their replies wait for the high watermark.

A host lives as long as its shard: LOADING while the log is replayed (`penstock.coordinators.loading`), then ACTIVE,
then CLOSED for good. It closes when another broker leads its partition, and when the state of the shard and its log may
differ: an append fails, a decision is too large for a batch, the shard raises. The next host rebuilds the state from
the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

from penstock.coordinators.clock import Cancellable, Clock, Loop
from penstock.coordinators.loading import Source, load
from penstock.coordinators.shard import (
    CoordinatorEpoch,
    EndMarker,
    Key,
    Producer,
    Recipient,
    Shard,
    Ticket,
    TimerCallback,
    Turn,
    Writer,
)
from penstock.coordinators.timers import Timers
from penstock.coordinators.turn import Ask, HostTurn, Pair
from penstock.metadata import MetadataDelta, MetadataImage
from penstock.wire.codec import Message
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import CONTROL_FLAG, HEADER_SIZE, TRANSACTIONAL_FLAG, build_keyed_batch, end_marker

RELEASED_PER_TURN_MAX = 100
"""Send at most this many answers in one turn of the loop; the rest follow in the next turns."""

S = TypeVar("S", bound=Shard)


class State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class Journal(Protocol):
    """The partition that holds the shard's records, as its leader sees it. Only the host writes to it."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def is_writable(self) -> bool:
        """Whether enough replicas are in sync to commit a record that is appended now."""

    @property
    def batch_bytes_max(self) -> int: ...

    def check(self, writer: Writer) -> None:
        """Raise a KafkaError if the log would refuse a batch of this producer, or this marker."""

    def append(self, batch: bytearray) -> int:
        """Append the batch and return the new end offset of the log. Raises KafkaError."""


class Courier(Protocol):
    """Carries requests to other brokers."""

    def send(self, recipient: Recipient, request: Message, then: Callable[[Message], None]) -> Cancellable:
        """Send the request, and resend it until it is answered or cancelled. Call `then` with the answer."""


class PendingReply:
    """The reply to a request to a shard: available at once, or later."""

    __slots__ = ("_then", "answer", "error", "refused")

    def __init__(self, refused: Callable[[ErrorCode], Message]) -> None:
        self.refused = refused
        """Builds this API's response for an error code."""
        self.answer: Message | None = None
        self.error: Exception | None = None
        """The exception that the shard raised; then there is no answer."""
        self._then: Callable[[PendingReply], None] | None = None

    @property
    def is_settled(self) -> bool:
        return self.answer is not None or self.error is not None

    def then(self, callback: Callable[[PendingReply], None]) -> None:
        """Call back when there is an answer or an error; at once if there is one already."""
        assert self._then is None, "a request has one callback"
        if self.is_settled:
            callback(self)
        else:
            self._then = callback

    def settle(self, answer: Message | None, error: Exception | None = None) -> None:
        assert not self.is_settled, "a request has one answer"
        self.answer = answer
        self.error = error
        if self._then is not None:
            then, self._then = self._then, None
            then(self)

    def refuse(self, code: ErrorCode) -> None:
        self.settle(self.refused(code))


class ShardHost(Generic[S]):
    """Runs one shard while this broker leads its partition. `on_failure` gets the error if the host closes itself."""

    def __init__(
        self,
        shard: S,
        journal: Journal,
        loop: Loop,
        clock: Clock,
        image: Callable[[], MetadataImage],
        courier: Courier,
        on_failure: Callable[[ShardHost[S], Exception], None],
    ) -> None:
        self.shard = shard
        self.state = State.LOADING
        self.has_served = False
        """Whether loading has completed. If so, loading again after a failure may help."""
        self.codec = Codec.NONE
        self.linger_ms = -1.0
        """How long records are collected into one batch. 0 or less: until the turn of the loop ends."""
        self.write_timeout_ms = 5_000.0
        """How long an answer waits for the high watermark before the request fails."""
        self._journal = journal
        self._loop = loop
        self._clock = clock
        self._image = image
        self._courier = courier
        self._on_failure = on_failure
        self.timers = Timers(loop, clock, self._time_has_come)
        self._turn = HostTurn(self, CoordinatorEpoch(journal.leader_epoch), image())
        self._waiting: dict[PendingReply, None] = {}
        """Requests without an answer yet."""
        self._held: deque[tuple[int, PendingReply, Message, float]] = deque()
        """Answers, each with the high watermark that it waits for, and since when it waits."""
        self._asks: dict[Key, Ask] = {}
        """Requests to other brokers that have no answer yet."""
        self._outbox: deque[tuple[int, Ask]] = deque()
        """Requests not sent yet, each with the high watermark that it waits for."""
        self._pending: list[Pair] = []
        self._pending_bytes = 0
        self._pending_writer: Writer | None = None
        self.decided_end = 0
        """The end offset of the log after all pending records are written."""
        self._flush_timer: Cancellable | None = None
        self._write_timer: Cancellable | None = None
        self._is_releasing = False
        self._is_appending = False
        self.on_written: Callable[[list[Pair]], None] | None = None
        """Called with the records of each batch, for metrics."""

    @property
    def is_loading(self) -> bool:
        return self.state is State.LOADING

    @property
    def is_active(self) -> bool:
        return self.state is State.ACTIVE

    @property
    def is_writable(self) -> bool:
        """Whether requests that must write can be served now. If not, they are refused at once."""
        return self.state is not State.ACTIVE or self._journal.is_writable

    def unavailable(self, refused: Callable[[ErrorCode], Message]) -> PendingReply:
        """Refuse a write because too few replicas are in sync; the client retries. Reads are still served."""
        pending_reply = PendingReply(refused)
        pending_reply.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return pending_reply

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # ---- life

    async def load(self, source: Source) -> None:
        """Replay the log, then serve."""
        try:
            await load(self.shard, source, self._loop, lambda: self.state is State.LOADING)
        except Exception as error:
            if self.state is State.LOADING:
                self._fail(error)
            return
        if self.state is State.LOADING:
            self.loaded()

    def loaded(self) -> None:
        """Start to serve: the whole log has been replayed."""
        assert self.state is State.LOADING
        self.state = State.ACTIVE
        self.decided_end = self._journal.end_offset
        assert self._journal.high_watermark <= self.decided_end, "the high watermark is at most the log's end"
        self._decide(self.shard.on_loaded)
        self.has_served = self.state is State.ACTIVE

    def close(self) -> None:
        """Write and answer what has been decided. Answer all other requests with NOT_COORDINATOR."""
        if self.state is State.ACTIVE:
            self.flush()
        self.resign()

    def resign(self) -> None:
        """Stop at once and discard records that are not written yet."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self.timers.clear()
        for timer in (self._flush_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._flush_timer = self._write_timer = None
        for key in list(self._asks):
            self.cancel_ask(key)
        self._outbox.clear()
        self._pending = []
        self._held.clear()
        waiting, self._waiting = self._waiting, {}
        self.shard.on_resigned()
        for pending_reply in waiting:
            pending_reply.refuse(ErrorCode.NOT_COORDINATOR)

    def _fail(self, error: Exception) -> None:
        self.resign()
        self._on_failure(self, error)

    # ---- decisions

    def submit(
        self,
        call: Callable[[Turn, Ticket], None],
        refused: Callable[[ErrorCode], Message],
        claim: Writer | None = None,
    ) -> PendingReply:
        """Let the shard decide. The answer is sent when all records that the decision depends on are committed, which
        is often at once.

        `claim`: the producer or marker for which the decision writes. If the log refuses it, the request is refused.
        """
        pending_reply = PendingReply(refused)
        code = ErrorCode.NONE
        if claim is not None and self.state is State.ACTIVE:
            code = self._refusal_of(claim)
        if self.state is not State.ACTIVE:
            loading = self.state is State.LOADING
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR
        if code:
            pending_reply.refuse(code)
            return pending_reply
        self._waiting[pending_reply] = None
        turn = self._begin(claim)
        try:
            call(turn, pending_reply)
        except Exception as error:
            turn.is_open = False
            del self._waiting[pending_reply]
            self._fail(error)
            pending_reply.settle(None, error)
            return pending_reply
        turn.is_open = False
        self._take(turn, pending_reply)
        return pending_reply

    def _refusal_of(self, claim: Writer) -> ErrorCode:
        # The check needs all earlier transactional records in the log. Appending them may send answers, and clients
        # may react to those with further requests.
        while self.state is State.ACTIVE and self._pending_writer is not None:
            self.flush()
        try:
            self._journal.check(claim)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def on_image(self, delta: MetadataDelta) -> None:
        """Tell the shard that the metadata has changed."""
        if self.state is State.ACTIVE:
            self._decide(lambda turn: self.shard.on_image(turn, delta))

    def decide(self, call: Callable[[Turn], None]) -> None:
        """Let the shard decide without a request: for timers, metadata changes and answers of other brokers."""
        if self.state is State.ACTIVE:
            self._decide(call)

    def _time_has_come(self, callback: TimerCallback, key: Key) -> None:
        self._decide(lambda turn: callback(turn, key))

    def _begin(self, claim: Writer | None = None) -> HostTurn:
        turn = self._turn
        turn.begin(self._clock.now_ms(), self._loop.wall_ms(), self._image(), claim)
        return turn

    def _decide(self, call: Callable[[Turn], None]) -> None:
        turn = self._begin()
        try:
            call(turn)
        except Exception as error:
            turn.is_open = False
            self._fail(error)
            return
        turn.is_open = False
        self._take(turn)

    def _take(self, turn: HostTurn, pending_reply: PendingReply | None = None) -> None:
        """Queue the records, replies and requests of the decision, after those of earlier decisions."""
        if turn.records:
            size_max = self._journal.batch_bytes_max - HEADER_SIZE
            size = max([turn.bytes, *(size for _, _, size in turn.runs)]) if turn.runs else turn.bytes
            if size > size_max:
                self._refuse_as_too_large(size, size_max, pending_reply)
                return
            for writer, records, size in turn.runs:
                if not self._queue(writer, records, size, size_max):
                    return
            if not self._queue(turn.writer, turn.records, turn.bytes, size_max):
                return
            if self._flush_timer is None:
                self._flush_later()
        for ticket, response in turn.replies:
            assert isinstance(ticket, PendingReply)
            self._held.append((self.decided_end, ticket, response, turn.now_ms))
        for ask in turn.asks:
            self._asks[ask.key] = ask
            self._outbox.append((self.decided_end, ask))
        if self._held or self._outbox:
            self._release()

    def _queue(self, writer: Writer | None, records: list[Pair], size: int, size_max: int) -> bool:
        """Add records to the pending batch; if they do not fit into it, append it first. False: the host has failed."""
        if self._pending_bytes:
            joins = writer == self._pending_writer and not isinstance(writer, EndMarker)
            # Send no answers here: a client could react with a request whose records would be written before these.
            if not (joins and self._pending_bytes + size <= size_max) and not self._append_pending():
                return False
        self._pending += records
        self._pending_bytes += size
        self._pending_writer = writer
        self.decided_end += len(records)
        return True

    def _refuse_as_too_large(self, size: int, size_max: int, pending_reply: PendingReply | None) -> None:
        """Reply with a non-retriable error: each retry would reload the shard for all its clients."""
        if pending_reply is not None:
            del self._waiting[pending_reply]
        text = f"the records of one request take {size} bytes, but a batch of the topic may have at most {size_max}"
        self._fail(KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, text))
        if pending_reply is not None:
            pending_reply.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    # ---- writing

    def _flush_later(self) -> None:
        if self.linger_ms > 0:
            self._flush_timer = self._loop.call_later(self.linger_ms, self.flush)
        else:
            self._flush_timer = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Append the records of this turn as one batch, and send the answers that are safe."""
        if self._append_pending():
            self._release()

    def _append_pending(self) -> bool:
        """False: the host has failed."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if not self._pending:
            return self.state is not State.CLOSED
        records, self._pending, self._pending_bytes = self._pending, [], 0
        writer, self._pending_writer = self._pending_writer, None
        self._is_appending = True
        try:
            if writer is None:
                batch = build_keyed_batch(records, timestamp=self._loop.wall_ms(), codec=self.codec)
            else:
                batch = _transactional_batch(writer, records, self._loop.wall_ms(), self.codec)
            end = self._journal.append(batch)
            if end != self.decided_end:
                raise AssertionError(f"another writer appended: the log ends at {end}, not at {self.decided_end}")
        except Exception as error:
            self._is_appending = False
            self._fail(error)
            return False
        self._is_appending = False
        if self.on_written is not None:
            self.on_written(records)
        return True

    # ---- answering

    def on_high_watermark(self) -> None:
        """The high watermark has advanced: send the answers that waited for it."""
        if (self._held or self._outbox) and not self._is_appending:
            self._release()

    def _release(self) -> None:
        """Send the answers that are safe. This can be called recursively: a client may react with a new request."""
        if self._is_releasing:
            return
        self._is_releasing = True
        held = self._held
        released = 0
        try:
            while held and held[0][0] <= self._journal.high_watermark:
                if released == RELEASED_PER_TURN_MAX:
                    self._loop.call_soon(self.on_high_watermark)
                    break
                _, pending_reply, answer, _ = held.popleft()
                if pending_reply in self._waiting:
                    del self._waiting[pending_reply]
                    pending_reply.settle(answer)
                    released += 1
        finally:
            self._is_releasing = False
        if self._outbox:
            self._send_committed()
        if held and self._write_timer is None:
            self._await_write()

    def _await_write(self) -> None:
        waited_ms = self._clock.now_ms() - self._held[0][3]
        self._write_timer = self._loop.call_later(max(0.0, self.write_timeout_ms - waited_ms), self._give_up)

    def _give_up(self) -> None:
        """Time out answers that waited too long: clients are told to retry. The decisions themselves stay in force."""
        self._write_timer = None
        now_ms = self._clock.now_ms()
        while self._held and now_ms - self._held[0][3] >= self.write_timeout_ms:
            _, pending_reply, _, _ = self._held.popleft()
            if pending_reply in self._waiting:
                del self._waiting[pending_reply]
                pending_reply.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._held:
            self._await_write()

    # ---- requests to other brokers

    def _send_committed(self) -> None:
        outbox = self._outbox
        while outbox and outbox[0][0] <= self._journal.high_watermark:
            _, ask = outbox.popleft()
            if self._asks.get(ask.key) is ask:
                ask.sent = self._courier.send(ask.recipient, ask.request, partial(self._answered, ask))

    def _answered(self, ask: Ask, response: Message) -> None:
        if self._asks.get(ask.key) is ask:
            del self._asks[ask.key]
            self._decide(lambda turn: ask.then(turn, ask.key, response))

    def uuid(self) -> bytes:
        return self._loop.uuid()

    def cancel_ask(self, key: Key) -> None:
        ask = self._asks.pop(key, None)
        if ask is not None and ask.sent is not None:
            ask.sent.cancel()


def marker_batch(marker: EndMarker, wall_ms: int) -> bytearray:
    """The control batch that ends a transaction."""
    records: list[Pair] = [end_marker(marker.committed, marker.coordinator_epoch)]
    return _transactional_batch(marker, records, wall_ms, Codec.NONE)


def _transactional_batch(writer: Writer, records: list[Pair], wall_ms: int, codec: Codec) -> bytearray:
    producer, flags = writer, TRANSACTIONAL_FLAG
    if isinstance(writer, EndMarker):
        producer, flags, codec = writer.producer, TRANSACTIONAL_FLAG | CONTROL_FLAG, Codec.NONE
    assert isinstance(producer, Producer)
    return build_keyed_batch(
        records, timestamp=wall_ms, codec=codec, flags=flags, producer_id=producer.id, producer_epoch=producer.epoch
    )
