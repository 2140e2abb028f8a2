"""Runs a pipeline in a thread while this one shows its progress and listens for Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.keys import keys_not_echoed
from penstock.cli.output import note
from penstock.stop_flag import StopFlag, stop_on_signals

if TYPE_CHECKING:
    from rich.live import Live

    from penstock.pipeline.model import Pipeline
    from penstock.pipeline.status import RunStatus

REFRESH_S = 0.25
LINE_EVERY_S = 10.0


def run_watched(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    metrics: tuple[str, int] | None = None,
    live: bool | None = None,
) -> RunStatus:
    """Runs a pipeline until it is done or Ctrl-C; PipelineError as `run_pipeline` raises it.

    `live` draws a table that moves, by default on a terminal only; otherwise there is a line now and then.
    """
    from penstock.pipeline.running import QueryFailed, run_pipeline
    from penstock.pipeline.status import log_path

    stop = StopFlag()
    watch = _Watch(sys.stderr.isatty() if live is None else live, stop)
    log = log_path(pipeline.checkpoint)

    def work() -> RunStatus:
        return run_pipeline(pipeline, master=master, stop=stop, metrics=metrics, on_status=watch.take, log=log)

    # Not in this thread: Spark would take over its Ctrl-C, and this one has to draw.
    worker = _Worker(work)
    with stop_on_signals(stop), keys_not_echoed(), watch:
        worker.start()
        while not worker.ended(REFRESH_S):
            watch.draw()
    try:
        return worker.result()
    except QueryFailed:
        if log is not None and log.exists():
            note(f"what Spark wrote meanwhile is in {log}")
        raise


class _Watch:
    """What a person sees of a run: a table that moves, or a line now and then."""

    def __init__(self, live: bool, stop: StopFlag) -> None:
        self._live = live
        self._stop = stop
        self._status: RunStatus | None = None
        self._display: Live | None = None
        self._told_s = 0.0
        self._told = ("", "")

    def take(self, status: RunStatus) -> None:
        self._status = status

    def __enter__(self) -> _Watch:
        if self._live:
            from rich.console import Console
            from rich.live import Live

            self._display = Live(console=Console(stderr=True), auto_refresh=False)
            self._display.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.draw(last=True)
        if self._display is not None:
            self._display.stop()

    def draw(self, *, last: bool = False) -> None:
        if self._status is None:
            return
        status = self._shown(self._status)
        if self._display is not None:
            from penstock.cli.pipeline_view import StatusView

            self._display.update(StatusView(status), refresh=True)
        elif last or self._is_new(status) or time.monotonic() - self._told_s > LINE_EVERY_S:
            from penstock.cli.pipeline_view import line_of

            if not last or self._is_new(status):
                note(line_of(status))
            self._told_s = time.monotonic()
            self._told = (status.state, status.doing)

    def _is_new(self, status: RunStatus) -> bool:
        return (status.state, status.doing) != self._told

    def _shown(self, status: RunStatus) -> RunStatus:
        """Ctrl-C shows at once, though the run may be waiting for Spark to start and learns of it later."""
        if self._stop.is_set() and status.state in ("starting", "running"):
            return replace(status, state="stopping", doing="")
        return status


class _Worker:
    """A function in a thread, with its result or its error."""

    def __init__(self, work: Callable[[], RunStatus]) -> None:
        self._work = work
        self._result: RunStatus | None = None
        self._error: BaseException | None = None
        # A second Ctrl-C does not wait for it: nothing is half written, and Spark's JVM ends with this process.
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ended(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> RunStatus:
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
