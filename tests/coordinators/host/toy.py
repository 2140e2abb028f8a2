"""A small shard and a partition in memory, for tests of what runs shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.coordinators.clock import SteadyClock
from penstock.coordinators.host import Asked, ShardHost
from penstock.coordinators.shard import Ticket, Turn
from penstock.metadata import EMPTY_IMAGE, MetadataDelta
from penstock.sim import SimRuntime
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.heartbeat import HeartbeatResponse
from penstock.wire.messages.sync_group import SyncGroupResponse
from penstock.wire.records import Record, iter_batches, iter_records


def value(text: str) -> SyncGroupResponse:
    """An answer that says something."""
    return SyncGroupResponse(protocol_name=text)


def refused(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def said(asked: Asked) -> Any:
    """What the answer says, or its error code; None if there is none yet."""
    if isinstance(asked.answer, SyncGroupResponse):
        return asked.answer.protocol_name
    return None if asked.answer is None else ErrorCode(asked.answer.error_code)  # type: ignore[attr-defined]


class ToyShard:
    """Keys and values. What a transaction wrote shows when it has ended."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.open: dict[int, list[tuple[bytes, bytes | None]]] = {}
        self.replayed: list[tuple[int, int, int]] = []
        self.parked: list[Ticket] = []
        self.is_loaded = False
        self.is_resigned = False
        self.images = 0
        self.fired: list[tuple[str, float]] = []

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

    @property
    def start_offset(self) -> int:
        return 0

    @property
    def end_offset(self) -> int:
        if self.fixed_end is not None:
            return self.fixed_end
        return sum(header.last_offset_delta + 1 for batch in self.batches for header, _ in iter_batches(batch))

    def append(self, batch: bytes | bytearray) -> int:
        if self.fails is not None:
            raise self.fails
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


class Bench:
    """A host with all that it needs."""

    def __init__(self, runtime: SimRuntime, partition: ToyPartition | None = None) -> None:
        self.runtime = runtime
        self.partition = partition or ToyPartition()
        self.clock = SteadyClock(runtime)
        self.clock.start()
        self.failures: list[Exception] = []
        self.host = self.new_host()

    def new_host(self, loop: Any = None) -> ShardHost[ToyShard]:
        """What the broker does when it begins to lead, or when a host has failed."""
        self.host = ShardHost(
            ToyShard(),
            self.partition,
            loop or self.runtime,
            self.clock,
            lambda: EMPTY_IMAGE,
            lambda host, error: self.failures.append(error),
        )
        self.partition.host = self.host
        return self.host

    @property
    def shard(self) -> ToyShard:
        return self.host.shard

    def ask(self, call: Callable[..., None], *arguments: Any, **named: Any) -> Asked:
        return self.host.submit(lambda turn, ticket: call(turn, ticket, *arguments, **named), refused)

    def put(self, **pairs: str | None) -> Asked:
        return self.ask(self.shard.put, **pairs)

    def get(self, key: str) -> Asked:
        return self.ask(self.shard.get, key)

    async def turn_ends(self) -> None:
        await self.runtime.sleep(0)
        await self.runtime.sleep(0)
