"""Allocates producer ids from blocks that the metadata log grants, so that no id is used twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from penstock.runtime import Future, Runtime


class Block(NamedTuple):
    first: int
    size: int


class ProducerIds:
    """Allocates ids one by one. Requests that arrive while a new block is being fetched wait for it together."""

    def __init__(self, runtime: Runtime, next_block: Callable[[], Awaitable[Block]]) -> None:
        self._runtime = runtime
        self._next_block = next_block
        self._next = 0
        self._end = 0
        self._fetching: Future[None] | None = None

    async def next(self) -> int:
        """Raise KafkaError if no block can be fetched, for all requests that wait for it, so that none waits twice."""
        await self.available()
        self._next += 1
        return self._next - 1

    def take(self) -> int | None:
        """An id, if one is left. For coordinators, which must not wait: their requests await `available` before."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def available(self) -> None:
        """Fetch a block unless ids are left. Raises KafkaError."""
        while self._next == self._end:
            if self._fetching is not None:
                await self._fetching
                continue
            fetching = self._fetching = self._runtime.future()
            try:
                block = await self._next_block()
            except BaseException as error:
                self._fetching = None
                if isinstance(error, Exception):
                    fetching.set_exception(error)
                    fetching.exception()  # mark the exception as retrieved: there may be no other waiter
                else:
                    fetching.cancel()
                raise
            self._fetching = None
            self._next, self._end = block.first, block.first + block.size
            fetching.set_result(None)
