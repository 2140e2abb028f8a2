"""The host of a shard: it hands decisions to the shard, writes what they ask for, and answers when that is safe.

What happens in one turn of the loop:

    submit → the shard decides ─┬─ records ──→ one batch, appended when the turn ends
    timer  → the shard decides ─┤
    image  → the shard decides ─┴─ replies ──→ held until the high watermark passes all that was written before them

While too few replicas are in sync the partition's high watermark stands still: requests that must write are refused
(COORDINATOR_NOT_AVAILABLE), and what timers decide meanwhile is written and told to nobody until it may be.

A host lives as long as its shard: LOADING while the log is replayed (`penstock.coordinators.loading`), then ACTIVE,
then CLOSED for good. It closes when its partition is led elsewhere, when an append fails, and when the shard raises
what it should not: its state can then no longer be trusted, and the next host builds it anew from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import chain
from typing import Generic, Protocol, TypeVar

from penstock.coordinators.clock import Cancellable, Loop, SteadyClock
from penstock.coordinators.loading import Source, load
from penstock.coordinators.shard import Shard, Ticket, TimerCallback, TimerKey, Turn
from penstock.coordinators.timers import Timers
from penstock.metadata import MetadataDelta, MetadataImage
from penstock.wire.codec import Message
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import HEADER_SIZE, build_keyed_batch

RECORD_OVERHEAD_BYTES_MAX = 32
"""What a record takes in a batch besides its key and value, at most."""
RELEASED_PER_TURN_MAX = 100
"""More answers than this are spread over several turns of the loop."""

Pair = tuple[bytes, bytes | None]
"""The key and value of a record."""

S = TypeVar("S", bound=Shard)


class State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class Journal(Protocol):
    """The partition that holds the shard's records, as its leader sees it. Nobody else writes to it."""

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def is_writable(self) -> bool:
        """Whether what is appended now can be committed soon: enough replicas are in sync."""

    @property
    def batch_bytes_max(self) -> int: ...

    def append(self, batch: bytearray) -> int:
        """Returns where the log then ends. Raises KafkaError."""


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


class _HostTurn:
    """One decision. The object is used again for the next: shards do not keep it."""

    __slots__ = ("_timers", "_uuid", "bytes", "image", "is_open", "now_ms", "records", "replies", "wall_ms")

    def __init__(self, timers: Timers, uuid: Callable[[], bytes], image: MetadataImage) -> None:
        self._timers = timers
        self._uuid = uuid
        self.image = image
        self.now_ms = 0.0
        self.wall_ms = 0
        self.is_open = False
        self.records: list[Pair] = []
        self.bytes = 0
        self.replies: list[tuple[Ticket, Message]] = []

    def begin(self, now_ms: float, wall_ms: int, image: MetadataImage) -> None:
        assert not self.is_open, "decisions are made one after another"
        self.is_open = True
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.image = image
        self.records = []
        self.bytes = 0
        self.replies = []

    def append(self, key: bytes, value: bytes | None) -> None:
        assert self.is_open, "a turn is over when the decision is made"
        self.records.append((key, value))
        self.bytes += len(key) + (0 if value is None else len(value)) + RECORD_OVERHEAD_BYTES_MAX

    def append_all(self, records: list[tuple[bytes, bytes]]) -> None:
        assert self.is_open, "a turn is over when the decision is made"
        self.records += records
        self.bytes += sum(map(len, chain.from_iterable(records))) + len(records) * RECORD_OVERHEAD_BYTES_MAX

    def reply(self, ticket: Ticket, response: Message) -> None:
        assert self.is_open, "a turn is over when the decision is made"
        self.replies.append((ticket, response))

    def set_timer(self, key: TimerKey, delay_ms: float, callback: TimerCallback) -> None:
        assert self.is_open, "a turn is over when the decision is made"
        self._timers.set(key, delay_ms, callback, self.now_ms)

    def cancel_timer(self, key: TimerKey) -> None:
        self._timers.cancel(key)

    def uuid(self) -> bytes:
        return self._uuid()


class ShardHost(Generic[S]):
    """Runs one shard for as long as this broker leads its partition. `on_failure` is told why it closed by itself."""

    def __init__(
        self,
        shard: S,
        journal: Journal,
        loop: Loop,
        clock: SteadyClock,
        image: Callable[[], MetadataImage],
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
        self._on_failure = on_failure
        self._timers = Timers(loop, clock, self._time_has_come)
        self._turn = _HostTurn(self._timers, loop.uuid, image())
        self._waiting: dict[Asked, None] = {}
        """Those who have no answer yet."""
        self._held: deque[tuple[int, Asked, Message, float]] = deque()
        """Answers, with the high watermark that they wait for, and since when."""
        self._pending: list[Pair] = []
        self._pending_bytes = 0
        self._end = 0
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
        self._end = self._journal.end_offset
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
        self._timers.clear()
        for timer in (self._flush_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._flush_timer = self._write_timer = None
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

    def submit(self, call: Callable[[Turn, Ticket], None], refused: Callable[[ErrorCode], Message]) -> Asked:
        """Let the shard decide. The answer comes when all that the decision saw is safe, often at once."""
        asked = Asked(refused)
        if self.state is not State.ACTIVE:
            loading = self.state is State.LOADING
            asked.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)
            return asked
        self._waiting[asked] = None
        turn = self._begin()
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

    def on_image(self, delta: MetadataDelta) -> None:
        """The metadata has changed."""
        if self.state is State.ACTIVE:
            self._decide(lambda turn: self.shard.on_image(turn, delta))

    def decide(self, call: Callable[[Turn], None]) -> None:
        """A decision that nobody asked for."""
        if self.state is State.ACTIVE:
            self._decide(call)

    def _time_has_come(self, callback: TimerCallback, key: TimerKey) -> None:
        self._decide(lambda turn: callback(turn, key))

    def _begin(self) -> _HostTurn:
        turn = self._turn
        turn.begin(self._clock.now_ms(), self._loop.wall_ms(), self._image())
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

    def _take(self, turn: _HostTurn, asked: Asked | None = None) -> None:
        """Queue what the decision wants written and said, behind all that was decided before it."""
        records, replies = turn.records, turn.replies
        if records:
            size_max = self._journal.batch_bytes_max - HEADER_SIZE
            if turn.bytes > size_max:
                self._refuse_as_too_large(turn.bytes, size_max, asked)
                return
            # Nobody is answered in between: who is may ask for more, and that would be written before this.
            if self._pending_bytes + turn.bytes > size_max and not self._append_pending():
                return
            self._pending += records
            self._pending_bytes += turn.bytes
            self._end += len(records)
            if self._flush_timer is None:
                self._flush_later()
        for ticket, response in replies:
            assert isinstance(ticket, Asked)
            self._held.append((self._end, ticket, response, turn.now_ms))
        if self._held:
            self._release()

    def _refuse_as_too_large(self, size: int, size_max: int, asked: Asked | None) -> None:
        """Who is told to try again would do this to the others again and again."""
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
        self._is_appending = True
        try:
            end = self._journal.append(build_keyed_batch(records, timestamp=self._loop.wall_ms(), codec=self.codec))
            if end != self._end:
                raise AssertionError(f"someone else writes to this partition: it ends at {end}, not at {self._end}")
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
        if self._held and not self._is_appending:
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
