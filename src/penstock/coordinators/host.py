"""The host of a shard: it hands decisions to the shard, writes what they ask for, and answers when that is safe.

What happens in one turn of the loop:

    submit → the shard decides ─┬─ records ──→ one batch, appended when the turn ends
    timer  → the shard decides ─┤
    image  → the shard decides ─┼─ replies ──→ held until the high watermark passes all that was written before them
    answer → the shard decides ─┴─ requests ─→ to other brokers, held in the same way; their answers are decisions

**Transactional records.** A batch has one producer, so what is written for another one is another batch, in the order
of the decisions. The log refuses a producer or a marker that has been replaced by a newer epoch. Such a request must
do no harm to the others, and the shard must not decide something that cannot be written. So a request names whom it
writes for (`submit(…, claim)`), and the host asks the log before it asks the shard: what is refused never reaches the
shard. Nobody else writes to the partition, so what the log has allowed it still allows when the batch is appended.

While too few replicas are in sync the partition's high watermark stands still: requests that must write are refused
(COORDINATOR_NOT_AVAILABLE), and what timers decide meanwhile is written and told to nobody until it may be.

A host lives as long as its shard: LOADING while the log is replayed (`penstock.coordinators.loading`), then ACTIVE,
then CLOSED for good. It closes when its partition is led elsewhere, and when the state of the shard and its log may
differ: an append fails, a decision is too large for a batch, the shard raises. The next host builds the state anew from
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
from penstock.wire.records import CONTROL_FLAG, HEADER_SIZE, TRANSACTIONAL_FLAG, build_keyed_batch

RELEASED_PER_TURN_MAX = 100
"""More answers than this are spread over several turns of the loop."""

S = TypeVar("S", bound=Shard)


class State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class Journal(Protocol):
    """The partition that holds the shard's records, as its leader sees it. Nobody else writes to it."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def is_writable(self) -> bool:
        """Whether what is appended now can be committed soon: enough replicas are in sync."""

    @property
    def batch_bytes_max(self) -> int: ...

    def check(self, writer: Writer) -> None:
        """Raises the KafkaError with which the log would refuse a batch of this producer, or this marker."""

    def append(self, batch: bytearray) -> int:
        """Returns where the log then ends. Raises KafkaError."""


class Courier(Protocol):
    """Carries requests to other brokers."""

    def send(self, recipient: Recipient, request: Message, then: Callable[[Message], None]) -> Cancellable:
        """Send it, again and again until it is answered or cancelled, and call back with the answer."""


class Asked:
    """A request to a shard: it has its answer already, or gets it later."""

    __slots__ = ("_then", "answer", "error", "refused")

    def __init__(self, refused: Callable[[ErrorCode], Message]) -> None:
        self.refused = refused
        """The answer that tells of an error, in the place where this API has it."""
        self.answer: Message | None = None
        self.error: Exception | None = None
        """The shard raised: there is no answer."""
        self._then: Callable[[Asked], None] | None = None

    @property
    def is_settled(self) -> bool:
        return self.answer is not None or self.error is not None

    def then(self, callback: Callable[[Asked], None]) -> None:
        """Call back once there is an answer or an error: at once if it is there."""
        assert self._then is None, "one waits for an answer"
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
    """Runs one shard for as long as this broker leads its partition. `on_failure` is told why it closed by itself."""

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
        """It was loaded: if it fails now, loading it again may help."""
        self.codec = Codec.NONE
        self.linger_ms = -1.0
        """How long records wait for company; up to 0, until the turn of the loop is over."""
        self.write_timeout_ms = 5_000.0
        """After so long an answer that waits for the high watermark is given up."""
        self._journal = journal
        self._loop = loop
        self._clock = clock
        self._image = image
        self._courier = courier
        self._on_failure = on_failure
        self.timers = Timers(loop, clock, self._time_has_come)
        self._turn = HostTurn(self, CoordinatorEpoch(journal.leader_epoch), image())
        self._waiting: dict[Asked, None] = {}
        """Those who have no answer yet."""
        self._held: deque[tuple[int, Asked, Message, float]] = deque()
        """Answers, with the high watermark that they wait for, and since when."""
        self._asks: dict[Key, Ask] = {}
        """Requests to other brokers that have no answer yet."""
        self._outbox: deque[tuple[int, Ask]] = deque()
        """Those that have not left, with the high watermark that they wait for."""
        self._pending: list[Pair] = []
        self._pending_bytes = 0
        self._pending_writer: Writer | None = None
        self.decided_end = 0
        """Where the log ends once all that is pending is written."""
        self._flush_timer: Cancellable | None = None
        self._write_timer: Cancellable | None = None
        self._is_releasing = False
        self._is_appending = False
        self.on_written: Callable[[list[Pair]], None] | None = None
        """Told what each batch holds, for those who count."""

    @property
    def is_loading(self) -> bool:
        return self.state is State.LOADING

    @property
    def is_active(self) -> bool:
        return self.state is State.ACTIVE

    @property
    def is_writable(self) -> bool:
        """False: who asks for something that must be written need not wait for it."""
        return self.state is not State.ACTIVE or self._journal.is_writable

    def unavailable(self, refused: Callable[[ErrorCode], Message]) -> Asked:
        """Too few replicas are in sync: ask again. What is known stays known, and is still told."""
        asked = Asked(refused)
        asked.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return asked

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
        """The shard has all that the log has."""
        assert self.state is State.LOADING
        self.state = State.ACTIVE
        self.decided_end = self._journal.end_offset
        assert self._journal.high_watermark <= self.decided_end, "what is committed is in the log"
        self._decide(self.shard.on_loaded)
        self.has_served = self.state is State.ACTIVE

    def close(self) -> None:
        """Write and answer what has been decided; whoever waits for more is sent to look for the coordinator again."""
        if self.state is State.ACTIVE:
            self.flush()
        self.resign()

    def resign(self) -> None:
        """Stop at once: what is not written is forgotten."""
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
        for asked in waiting:
            asked.refuse(ErrorCode.NOT_COORDINATOR)

    def _fail(self, error: Exception) -> None:
        self.resign()
        self._on_failure(self, error)

    # ---- decisions

    def submit(
        self,
        call: Callable[[Turn, Ticket], None],
        refused: Callable[[ErrorCode], Message],
        claim: Writer | None = None,
    ) -> Asked:
        """Let the shard decide. The answer comes when all that the decision saw is safe, often at once.

        `claim`: the producer or marker in whose name the decision writes. If the log refuses it, so is the request.
        """
        asked = Asked(refused)
        code = ErrorCode.NONE
        if claim is not None and self.state is State.ACTIVE:
            code = self._refusal_of(claim)
        if self.state is not State.ACTIVE:
            loading = self.state is State.LOADING
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR
        if code:
            asked.refuse(code)
            return asked
        self._waiting[asked] = None
        turn = self._begin(claim)
        try:
            call(turn, asked)
        except Exception as error:
            turn.is_open = False
            del self._waiting[asked]
            self._fail(error)
            asked.settle(None, error)
            return asked
        turn.is_open = False
        self._take(turn, asked)
        return asked

    def _refusal_of(self, claim: Writer) -> ErrorCode:
        # The log must have heard of what transactions wrote so far. Answers may leave, and bring the next request.
        while self.state is State.ACTIVE and self._pending_writer is not None:
            self.flush()
        try:
            self._journal.check(claim)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def on_image(self, delta: MetadataDelta) -> None:
        """The metadata has changed."""
        if self.state is State.ACTIVE:
            self._decide(lambda turn: self.shard.on_image(turn, delta))

    def decide(self, call: Callable[[Turn], None]) -> None:
        """A decision that nobody asked for."""
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

    def _take(self, turn: HostTurn, asked: Asked | None = None) -> None:
        """Queue what the decision wants written and said, behind all that was decided before it."""
        if turn.records:
            size_max = self._journal.batch_bytes_max - HEADER_SIZE
            size = max([turn.bytes, *(size for _, _, size in turn.runs)]) if turn.runs else turn.bytes
            if size > size_max:
                self._refuse_as_too_large(size, size_max, asked)
                return
            for writer, records, size in turn.runs:
                if not self._queue(writer, records, size, size_max):
                    return
            if not self._queue(turn.writer, turn.records, turn.bytes, size_max):
                return
            if self._flush_timer is None:
                self._flush_later()
        for ticket, response in turn.replies:
            assert isinstance(ticket, Asked)
            self._held.append((self.decided_end, ticket, response, turn.now_ms))
        for ask in turn.asks:
            self._asks[ask.key] = ask
            self._outbox.append((self.decided_end, ask))
        if self._held or self._outbox:
            self._release()

    def _queue(self, writer: Writer | None, records: list[Pair], size: int, size_max: int) -> bool:
        """Add to the pending batch, or write that first if they do not go together. False: the host has failed."""
        if self._pending_bytes:
            joins = writer == self._pending_writer and not isinstance(writer, EndMarker)
            # Nobody is answered in between: who is may ask for more, and that would be written before this.
            if not (joins and self._pending_bytes + size <= size_max) and not self._append_pending():
                return False
        self._pending += records
        self._pending_bytes += size
        self._pending_writer = writer
        self.decided_end += len(records)
        return True

    def _refuse_as_too_large(self, size: int, size_max: int, asked: Asked | None) -> None:
        """Reply with a non-retriable error: each retry would reload the shard for everyone."""
        if asked is not None:
            del self._waiting[asked]
        text = f"one decision takes {size} bytes, where the topic's batches may have {size_max}"
        self._fail(KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, text))
        if asked is not None:
            asked.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    # ---- writing

    def _flush_later(self) -> None:
        if self.linger_ms > 0:
            self._flush_timer = self._loop.call_later(self.linger_ms, self.flush)
        else:
            self._flush_timer = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Append what this turn has decided, as one batch, and answer."""
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
                raise AssertionError(f"someone else writes here: the log ends at {end}, not at {self.decided_end}")
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
        """It has moved: answer those who waited for it."""
        if (self._held or self._outbox) and not self._is_appending:
            self._release()

    def _release(self) -> None:
        """Send the answers that are safe. Who gets one may at once ask for more, so this can come in upon itself."""
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
                _, asked, answer, _ = held.popleft()
                if asked in self._waiting:
                    del self._waiting[asked]
                    asked.settle(answer)
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
        """What was decided stays decided; those who asked are told to ask again."""
        self._write_timer = None
        now_ms = self._clock.now_ms()
        while self._held and now_ms - self._held[0][3] >= self.write_timeout_ms:
            _, asked, _, _ = self._held.popleft()
            if asked in self._waiting:
                del self._waiting[asked]
                asked.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
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


def _transactional_batch(writer: Writer, records: list[Pair], wall_ms: int, codec: Codec) -> bytearray:
    producer, flags = writer, TRANSACTIONAL_FLAG
    if isinstance(writer, EndMarker):
        producer, flags, codec = writer.producer, TRANSACTIONAL_FLAG | CONTROL_FLAG, Codec.NONE
    assert isinstance(producer, Producer)
    return build_keyed_batch(
        records, timestamp=wall_ms, codec=codec, flags=flags, producer_id=producer.id, producer_epoch=producer.epoch
    )
