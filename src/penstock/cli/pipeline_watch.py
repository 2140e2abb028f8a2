"""Runs a pipeline in a thread while this one shows its progress and listens for Ctrl-C."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.keys import keys_not_echoed
from penstock.cli.output import note
from penstock.cli.pipeline_work import Worker
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
    worker = Worker(work)
    with stop_on_signals(stop), keys_not_echoed(), watch:
        worker.start()
        while not worker.ended(REFRESH_S):
            watch.draw()
            if (status := watch.abandoned()) is not None:
                return status
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
        self._began_s = time.monotonic()

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
        elif last or self._is_new() or time.monotonic() - self._told_s > LINE_EVERY_S:
            from penstock.cli.pipeline_view import line_of

            if not last or self._is_new():
                note(line_of(status))
            self._told_s = time.monotonic()
            self._told = self._step()

    def _is_new(self) -> bool:
        return self._step() != self._told

    def _step(self) -> tuple[str, str]:
        """Where the run is, without figures that change all the time."""
        assert self._status is not None
        is_stopping = self._stop.is_set() and self._status.state in ("starting", "running")
        return ("stopping", "") if is_stopping else (self._status.state, self._status.doing)

    def abandoned(self) -> RunStatus | None:
        """After Ctrl-C while Spark's JVM starts: the status of a run that is not waited for.

        Nothing was read or written yet, and the JVM ends with this process.
        """
        from penstock.pipeline.running import STARTING_SPARK
        from penstock.pipeline.status import status_path, write_status

        if not self._stop.is_set() or self._status is None or self._status.doing != STARTING_SPARK:
            return None
        queries = {name: replace(query, state="stopped") for name, query in self._status.queries.items()}
        self._status = replace(self._status, state="stopped", doing="", queries=queries)
        path = status_path(self._status.checkpoint)
        if path is not None:
            with suppress(OSError):
                write_status(path, self._status)
        return self._status

    def _shown(self, status: RunStatus) -> RunStatus:
        """Ctrl-C shows at once, though the run learns of it later; and a start that takes long says why."""
        from penstock.spark.slow_start import notice_now

        if self._stop.is_set() and status.state in ("starting", "running"):
            return replace(status, state="stopping", doing="")
        if status.state == "starting" and (why := notice_now(time.monotonic() - self._began_s)):
            return replace(status, doing=f"{status.doing}; {why}")
        return status
