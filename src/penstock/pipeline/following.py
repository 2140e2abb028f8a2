"""Waits for streaming queries in a script, shows their progress, and stops them at Ctrl-C.

Spark's `awaitTermination` waits in silence. At Ctrl-C it prints the tracebacks of a call to the JVM that was
interrupted halfway, and leaves the query running until the process ends.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from penstock.pipeline.progress import Report
from penstock.stop_flag import Stop, StopFlag, stop_on_signals

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S = 0.3


def follow(query: StreamingQuery, *, stop: Stop | None = None, out: TextIO | None = None) -> None:
    """Returns when the query has ended, and raises its error if it failed. Prints a line for each batch.

    Ctrl-C and SIGTERM stop the query; a second Ctrl-C does not wait for it. What a batch has committed stays, and the
    query resumes after it when it is started again. `stop` takes the place of the signals, for use outside the main
    thread; lines go to `out`, by default standard error.
    """
    out = out or sys.stderr
    name = query.name or "query"
    print(f"{name}: starting; Ctrl-C stops it", file=out, flush=True)
    if stop is not None:
        _follow(query, name, stop, out)
        return
    with stop_on_signals(StopFlag()) as interrupted:
        _follow(query, name, interrupted, out)


def _follow(query: StreamingQuery, name: str, stop: Stop, out: TextIO) -> None:
    told = -1
    while True:
        # Asked before its progress: a query that has ended reports nothing new afterwards.
        ended = not query.isActive
        for report in (Report.read(dict(progress)) for progress in query.recentProgress):
            if report.ran and report.batch > told:
                told = report.batch
                print(f"{name}: {_line(report)}", file=out, flush=True)
        if ended or stop.wait(LOOK_EVERY_S):
            break
    if ended:
        query.awaitTermination()  # raises the query's error
        print(f"{name}: ended after batch {told}" if told >= 0 else f"{name}: ended", file=out, flush=True)
        return
    with suppress(Exception):  # it ended by itself meanwhile, or Spark is gone
        query.stop()
    print(f"{name}: stopped; it resumes from its checkpoint", file=out, flush=True)


def _line(report: Report) -> str:
    lag = "" if report.lag is None else f", lag {report.lag:,}"
    return f"batch {report.batch}: {report.rows:,} records in {report.took_ms / 1000:.1f} s{lag}"
