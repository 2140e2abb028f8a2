"""Where snapshots are shown: a screen that moves, or lines for a pipe and for a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live

from penstock.demo.drawing import clock_time, euros
from penstock.demo.snapshot import Snapshot
from penstock.demo.view import render

LINE_EVERY_S: Final = 2.0


class Screen(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...


class LiveScreen:
    """The terminal's second screen; the first one is as it was when this ends."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(render(snapshot, self._console.width, self._console.height), refresh=True)


class LineScreen:
    """A line every two seconds."""

    def __init__(self, file: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._next_s = float("-inf")
        self._notice = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.notice != self._notice:
            self._notice = snapshot.notice
            if snapshot.notice:
                print(snapshot.notice, file=self._file, flush=True)
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LINE_EVERY_S
        lags = [stage.lag for stage in snapshot.stages if stage.lag is not None]
        outcome = snapshot.outcome
        print(
            f"{clock_time(snapshot.elapsed_s)}  {snapshot.shop_time:%a %H:%M}  sent {snapshot.sent.total:,}"
            f"  processed {outcome.processed:,}  dead-lettered {outcome.dead_lettered:,}  late {outcome.late:,}"
            f"  duplicates {outcome.duplicates:,}  lag {f'{max(lags):,}' if lags else '–'}"
            f"  revenue {euros(snapshot.results.revenue_cents)}  ({snapshot.doing})",
            file=self._file,
            flush=True,
        )
