"""A small shard and a partition in memory, for tests of what runs shards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.coordinators.host import PendingReply, ShardHost
from penstock.coordinators.shard import (
    CoordinatorEpoch,
    EndMarker,
    Key,
    PartitionLeader,
    Producer,
    ProducerEpoch,
    ProducerId,
    Recipient,
    Ticket,
    Turn,
    Writer,
)
from penstock.metadata import EMPTY_IMAGE, MetadataDelta
from penstock.runtime.steady_clock import SteadyClock
from penstock.sim import SimRuntime, World
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.heartbeat import HeartbeatResponse
from penstock.wire.messages.sync_group import SyncGroupResponse
from penstock.wire.records import Record, iter_batches, iter_records, read_header


def value(text: str) -> SyncGroupResponse:
    """An answer that says something."""
    return SyncGroupResponse(protocol_name=text)


def refused(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def said(asked: PendingReply) -> Any:
    """What the answer says, or its error code; None if there is none yet."""
    if isinstance(asked.answer, SyncGroupResponse):
        return asked.answer.protocol_name
    return None if asked.answer is None else ErrorCode(asked.answer.error_code)  # type: ignore[attr-defined]


def producer(number: int, epoch: int = 0) -> Producer:
    return Producer(ProducerId(number), ProducerEpoch(epoch))


class ToyShard:
    """Keys and values. What a transaction wrote shows when it has ended; values of `tell:…` are told to another."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.open: dict[int, list[tuple[bytes, bytes | None]]] = {}
        self.replayed: list[tuple[int, int, int]] = []
        self.parked: list[Ticket] = []
        self.is_loaded = False
        self.is_resigned = False
        self.images = 0
        self.fired: list[tuple[str, float]] = []
        self.epoch = -1
        self.answers: list[tuple[Key, str | None]] = []

    # ---- the interface

    def replay(self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None) -> None:
        self.replayed.append((offset, producer_id, producer_epoch))
        if producer_id >= 0:
            self.open.setdefault(producer_id, []).append((key, value))
        else:
            self.set(key, value)

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        for key, value in self.open.pop(producer_id, []):
            if committed:
                self.set(key, value)

    def on_loaded(self, turn: Turn) -> None:
        self.is_loaded = True
        self.epoch = turn.coordinator_epoch
        for key in self.values:
            if key.startswith(b"tell:"):
                self._ask(turn, key)

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None:
        self.images += 1

    def on_resigned(self) -> None:
        self.is_resigned = True

    # ---- requests

    def set(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def put(self, turn: Turn, ticket: Ticket, **pairs: str | None) -> None:
        for key, text in pairs.items():
            data = None if text is None else text.encode()
            self.set(key.encode(), data)
            turn.append(key.encode(), data)
        turn.reply(ticket, value("done"))

    def get(self, turn: Turn, ticket: Ticket, key: str) -> None:
        turn.reply(ticket, value(self.values.get(key.encode(), b"-").decode()))

    def park(self, turn: Turn, ticket: Ticket) -> None:
        self.parked.append(ticket)

    def unpark(self, turn: Turn, ticket: Ticket) -> None:
        for parked in self.parked:
            turn.reply(parked, value("released"))
        self.parked.clear()
        turn.reply(ticket, value("done"))

    def put_as(self, turn: Turn, ticket: Ticket, writer: Producer, **pairs: str) -> None:
        """In a transaction: nobody sees it before the marker. `plain` is written outside of it."""
        records = [(key.encode(), text.encode()) for key, text in pairs.items() if key != "plain"]
        self.open.setdefault(writer.id, []).extend(records)
        turn.append_as(writer, records)
        if "plain" in pairs:
            self.set(b"plain", pairs["plain"].encode())
            turn.append(b"plain", pairs["plain"].encode())
        turn.reply(ticket, value("done"))

    def end(self, turn: Turn, ticket: Ticket, marker: EndMarker) -> None:
        self.replay_end_marker(marker.producer.id, marker.producer.epoch, marker.committed)
        turn.end_transaction(marker)
        turn.reply(ticket, value("done"))

    def tell(self, turn: Turn, ticket: Ticket, name: str, text: str) -> None:
        """Note what is to be told, and tell it when that is safe."""
        key = f"tell:{name}".encode()
        self.set(key, text.encode())
        turn.append(key, text.encode())
        self._ask(turn, key)
        turn.reply(ticket, value("noted"))

    def forget(self, turn: Turn, ticket: Ticket, name: str) -> None:
        key = f"tell:{name}".encode()
        self.set(key, None)
        turn.append(key, None)
        turn.cancel_ask((name,))
        turn.reply(ticket, value("forgotten"))

    def _ask(self, turn: Turn, key: bytes) -> None:
        name = key.decode().removeprefix("tell:")
        turn.ask((name,), PartitionLeader("t", 0), value(self.values[key].decode()), self._told)

    def _told(self, turn: Turn, key: Key, answer: Message) -> None:
        assert isinstance(answer, SyncGroupResponse)
        self.answers.append((key, answer.protocol_name))
        stored = f"tell:{key[0]}".encode()
        self.set(stored, None)
        turn.append(stored, None)

    def break_down(self, turn: Turn, ticket: Ticket) -> None:
        self.set(b"half", b"applied")
        turn.append(b"half", b"applied")
        raise RuntimeError("a bug")

    def timer(self, turn: Turn, ticket: Ticket, name: str, delay_ms: float) -> None:
        turn.set_timer((name,), delay_ms, lambda later, _: self.fired.append((name, later.now_ms)))
        turn.reply(ticket, value("done"))


class ToyPartition:
    """A log whose high watermark moves when the test says so, unless `commits_at_once`."""

    def __init__(self, *, commits_at_once: bool = True) -> None:
        self.commits_at_once = commits_at_once
        self.high_watermark = 0
        self.batch_bytes_max = 10_000
        self.is_writable = True
        self.batches: list[bytes] = []
        self.host: ShardHost[ToyShard] | None = None
        self.fails: KafkaError | None = None
        self.reads = 0
        self.fixed_end: int | None = None
        """Where it ends, whatever batches it has."""
        self.leader_epoch = 1
        self.epochs: dict[int, int] = {}
        """Of producers, as they stand in the log."""

    @property
    def start_offset(self) -> int:
        return 0

    @property
    def end_offset(self) -> int:
        if self.fixed_end is not None:
            return self.fixed_end
        return sum(header.last_offset_delta + 1 for batch in self.batches for header, _ in iter_batches(batch))

    def check(self, writer: Writer) -> None:
        known = writer.producer if isinstance(writer, EndMarker) else writer
        if known.epoch < self.epochs.get(known.id, -1):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)

    def append(self, batch: bytes | bytearray) -> int:
        if self.fails is not None:
            raise self.fails
        header = read_header(batch)
        if header.producer_id >= 0:
            self.check(producer(header.producer_id, header.producer_epoch))
            self.epochs[header.producer_id] = header.producer_epoch
        stamped = self.end_offset.to_bytes(8, "big") + bytes(batch[8:])
        self.batches.append(stamped)
        if self.commits_at_once:
            self.commit()
        return self.end_offset

    def commit(self) -> None:
        self.high_watermark = self.end_offset
        if self.host is not None:
            self.host.on_high_watermark()

    async def read(self, offset: int, end_offset: int) -> bytes:
        self.reads += 1
        return b"".join(self.batches)

    def keys(self) -> list[list[str]]:
        """What each batch holds."""
        return [[(record.key or b"").decode() for record in self.records(batch)] for batch in self.batches]

    def records(self, batch: bytes) -> list[Record]:
        return list(iter_records(batch))


class Letter:
    """A request to another broker that has left."""

    def __init__(self, recipient: Recipient, request: Message, then: Callable[[Message], None]) -> None:
        self.recipient = recipient
        self.request = request
        self.answer = then
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ToyCourier:
    """Keeps what is sent, until the test answers it."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []

    def send(self, recipient: Recipient, request: Message, then: Callable[[Message], None]) -> Letter:
        self.letters.append(Letter(recipient, request, then))
        return self.letters[-1]

    def texts(self) -> list[str | None]:
        return [letter.request.protocol_name for letter in self.letters]  # type: ignore[attr-defined]


class Bench:
    """A host with all that it needs."""

    def __init__(self, runtime: SimRuntime, partition: ToyPartition | None = None) -> None:
        self.runtime = runtime
        self.partition = partition or ToyPartition()
        self.clock = SteadyClock(runtime)
        self.clock.start()
        self.failures: list[Exception] = []
        self.courier = ToyCourier()
        self.host = self.new_host()

    def new_host(self, loop: Any = None) -> ShardHost[ToyShard]:
        """What the broker does when it begins to lead, or when a host has failed."""
        self.host = ShardHost(
            ToyShard(),
            self.partition,
            loop or self.runtime,
            self.clock,
            lambda: EMPTY_IMAGE,
            self.courier,
            lambda host, error: self.failures.append(error),
        )
        self.partition.host = self.host
        return self.host

    @property
    def shard(self) -> ToyShard:
        return self.host.shard

    def ask(self, call: Callable[..., None], *arguments: Any, **named: Any) -> PendingReply:
        return self.host.submit(lambda turn, ticket: call(turn, ticket, *arguments, **named), refused)

    def put(self, **pairs: str | None) -> PendingReply:
        return self.ask(self.shard.put, **pairs)

    def put_as(self, writer: Producer, **pairs: str) -> PendingReply:
        return self.host.submit(lambda turn, ticket: self.shard.put_as(turn, ticket, writer, **pairs), refused, writer)

    def end(self, writer: Producer, *, committed: bool) -> PendingReply:
        marker = EndMarker(writer, committed, CoordinatorEpoch(7))
        return self.host.submit(lambda turn, ticket: self.shard.end(turn, ticket, marker), refused, marker)

    def get(self, key: str) -> PendingReply:
        return self.ask(self.shard.get, key)

    async def turn_ends(self) -> None:
        await self.runtime.sleep(0)
        await self.runtime.sleep(0)


def on_a_bench(**options: Any) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Run the test with a host that has been loaded."""

    def decorate(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        @functools.wraps(scenario)
        def test() -> None:
            async def main(runtime: SimRuntime) -> None:
                bench = Bench(runtime, ToyPartition(**options))
                bench.host.loaded()
                await scenario(bench)

            with World(0) as world:
                world.execute(main)

        del test.__wrapped__  # type: ignore[attr-defined]
        return test

    return decorate
