"""Runs long work in slices, so that it does not block the event loop.

`Slices` is for the broker's own chores. `RequestSlices` is for requests, of which there may be any number at once: a
request that has taken longer than a slice continues only when it gets one of a few places (`Places`). So however many
large requests there are, a pass of the loop spends only a few slices on them, and memory holds few incomplete answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from penstock.runtime import Future, Runtime

SLICE_MS = 5.0
REQUEST_SLICE_MS = 1.5
PLACES = 4
STEPS_BETWEEN_LOOKS = 32
"""Steps of a generator (of about a microsecond) between two looks at the clock."""

RUN = 64
"""Elements that are processed between two looks at the clock."""

T = TypeVar("T")


def runs_of(elements: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split the elements into runs. Call `await slices.breathe()` after each."""
    if len(elements) <= RUN:
        yield elements
        return
    for start in range(0, len(elements), RUN):
        yield elements[start : start + RUN]


def at_once(work: Generator[None, None, T]) -> T:
    """Run a generator made for slices without a pause, because it is short. Returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


class Slices:
    """The slices of one piece of work: call `await breathe()` after each part."""

    __slots__ = ("_began_ms", "_runtime")

    slice_ms = SLICE_MS

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._began_ms = runtime.now_ms()

    async def breathe(self) -> None:
        """Yield to the event loop if this work has run for a slice."""
        if self._runtime.now_ms() - self._began_ms > self.slice_ms:
            await self._pause()
            self._began_ms = self._runtime.now_ms()

    async def drive(self, work: Generator[None, None, T], *, steps_between_looks: int = STEPS_BETWEEN_LOOKS) -> T:
        """Run a generator to its end, and return its result."""
        steps = 0
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            steps += 1
            if steps % steps_between_looks == 0:
                await self.breathe()

    async def _pause(self) -> None:
        await self._runtime.sleep(0)


class Places:
    """The few large requests that may be worked on at the same time. Others wait in the order in which they came."""

    __slots__ = ("_free", "_new_future", "_retries", "_waiting")

    def __init__(self, new_future: Callable[[], Future[None]]) -> None:
        self._new_future = new_future
        self._free = PLACES
        self._waiting: deque[Future[None]] = deque()
        self._retries: dict[Callable[[], object], None] = {}

    @property
    def full(self) -> bool:
        return self._free == 0

    async def take(self) -> None:
        if self._free:
            self._free -= 1
            return
        future = self._new_future()
        self._waiting.append(future)
        await future

    def give(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
        retries, self._retries = self._retries, {}
        for retry in retries:
            retry()

    def when_free(self, retry: Callable[[], object]) -> None:
        """Call `retry` once when a place is free. Another request may have taken the place by then."""
        self._retries[retry] = None


class RequestSlices(Slices):
    """The slices of one request; a context manager that releases its place at the end."""

    __slots__ = ("_has_place", "_places", "_took")

    slice_ms = REQUEST_SLICE_MS

    def __init__(self, runtime: Runtime, places: Places, took: Callable[[float], None] | None = None) -> None:
        """`took` is told how many milliseconds each slice took, if somebody counts the time of the client."""
        super().__init__(runtime)
        self._places = places
        self._took = took
        self._has_place = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_place:
            self._has_place = False
            self._places.give()

    async def begin(self) -> None:
        """Take a place before the work starts, because it will take more than a slice."""
        if not self._has_place:
            await self._places.take()
            self._has_place = True
            self._began_ms = self._runtime.now_ms()

    async def _pause(self) -> None:
        if self._took is not None:
            self._took(self._runtime.now_ms() - self._began_ms)
        if self._has_place:
            await super()._pause()
        else:
            await self.begin()


async def in_slices(slices: RequestSlices, work: Generator[None, None, T]) -> T:
    """Run the possibly long work of one request, and return its result."""
    with slices:
        return await slices.drive(work)
