"""Skipping records that were processed before.

    handle = Idempotent(charge_card, id_of=header("payment-id"))
    Processor(consumer, handle).run()

At-least-once delivery repeats records: after a crash, after a rebalance, and when the producer sent one twice.
The ids of processed records are remembered, up to a limit, and a record with a known id is skipped. An id is
remembered after the handler has returned, so a crash between the two repeats the work. To rule that out, keep ids and
results in one transaction: `first_time` of the stores in `penstock.client.stores`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from penstock.client.errors import ClientError

if TYPE_CHECKING:
    from confluent_kafka import Message

CAPACITY: Final = 100_000

T = TypeVar("T")


class ProcessedIds(Protocol):
    """A store of processed ids: in memory (`RecentIds`), or in `penstock.client.stores`."""

    def seen(self, record_id: str) -> bool: ...

    def remember(self, record_id: str) -> None: ...


class RecentIds:
    """The most recently used ids, in memory. Pure."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self.capacity = capacity
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def seen(self, record_id: str) -> bool:
        if record_id not in self._ids:
            return False
        self._ids.move_to_end(record_id)
        return True

    def remember(self, record_id: str) -> None:
        self._ids[record_id] = None
        self._ids.move_to_end(record_id)
        if len(self._ids) > self.capacity:
            self._ids.popitem(last=False)


def place(message: Message) -> str:
    """The record's topic, partition and offset as an id. It does not recognise a copy that was written again."""
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"


def header(name: str) -> Callable[[Message], str]:
    """Takes the id from a header set by the producer, so that copies of a record are recognised too."""

    def of(message: Message) -> str:
        headers = message.headers() or []
        pairs = headers.items() if isinstance(headers, dict) else headers
        for key, value in pairs:
            if key == name and value is not None:
                return value if isinstance(value, str) else value.decode(errors="surrogateescape")
        raise ClientError(f"{place(message)} has no header {name}, which should hold its id")

    return of


class Idempotent(Generic[T]):
    """A handler that skips records processed before, and returns None for them. Thread-safe."""

    def __init__(
        self,
        handler: Callable[[Message], T],
        ids: ProcessedIds | None = None,
        *,
        id_of: Callable[[Message], str] = place,
    ) -> None:
        self._handler = handler
        self._ids: ProcessedIds = RecentIds() if ids is None else ids
        self._id_of = id_of
        self._lock = threading.Condition()
        self._in_work: set[str] = set()
        self.skipped = 0

    def __call__(self, message: Message) -> T | None:
        record_id = self._id_of(message)
        with self._lock:
            # The copy in progress may still fail, so wait for its outcome.
            self._lock.wait_for(lambda: record_id not in self._in_work)
            if self._ids.seen(record_id):
                self.skipped += 1
                return None
            self._in_work.add(record_id)
        try:
            result = self._handler(message)
            with self._lock:
                self._ids.remember(record_id)
            return result
        finally:
            with self._lock:
                self._in_work.remove(record_id)
                self._lock.notify_all()


class AsyncIdempotent(Generic[T]):
    """The same for coroutine functions. Ids that are not kept in memory are looked up in a thread."""

    def __init__(
        self,
        handler: Callable[[Message], Awaitable[T]],
        ids: ProcessedIds | None = None,
        *,
        id_of: Callable[[Message], str] = place,
    ) -> None:
        self._handler = handler
        self._ids: ProcessedIds = RecentIds() if ids is None else ids
        self._id_of = id_of
        self._in_work: dict[str, asyncio.Event] = {}
        self.skipped = 0

    async def __call__(self, message: Message) -> T | None:
        record_id = self._id_of(message)
        while (other := self._in_work.get(record_id)) is not None:
            await other.wait()
        ended = self._in_work[record_id] = asyncio.Event()
        try:
            if await self._ask(self._ids.seen, record_id):
                self.skipped += 1
                return None
            result = await self._handler(message)
            await self._ask(self._ids.remember, record_id)
            return result
        finally:
            del self._in_work[record_id]
            ended.set()

    async def _ask(self, question: Callable[[str], bool | None], record_id: str) -> bool | None:
        if isinstance(self._ids, RecentIds):
            return question(record_id)
        return await asyncio.to_thread(question, record_id)
