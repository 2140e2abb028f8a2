"""`follow`: a line for each batch, a clean stop at Ctrl-C, and the error of a query that failed."""

from __future__ import annotations

import io
import os
import signal
import threading
from typing import TYPE_CHECKING, cast

import pytest

from penstock.pipeline.following import follow

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Query:
    """A streaming query that reports one more batch each time it is asked, and then calls `at_the_end`."""

    name = "hello"

    def __init__(self, batches: int, error: Exception | None = None) -> None:
        self._batches = batches
        self._error = error
        self.isActive = True
        self.recentProgress: list[dict[str, object]] = []
        self.is_stopped = False

    def report(self) -> None:
        number = len(self.recentProgress)
        self.recentProgress.append(
            {"batchId": number, "numInputRows": 50 + number, "durationMs": {"addBatch": 1, "triggerExecution": 1234}}
        )

    def stop(self) -> None:
        self.is_stopped = True
        self.isActive = False

    def awaitTermination(self) -> None:
        if self._error is not None:
            raise self._error


def followed(query: Query, **words: object) -> str:
    out = io.StringIO()
    follow(cast("StreamingQuery", query), out=out, **words)  # type: ignore[arg-type]
    return out.getvalue()


def test_each_batch_is_a_line_and_an_end_is_said() -> None:
    query = Query(2)
    query.report()
    query.report()
    query.isActive = False
    assert followed(query).splitlines() == [
        "hello: starting; Ctrl-C stops it",
        "hello: batch 0: 50 records in 1.2 s",
        "hello: batch 1: 51 records in 1.2 s",
        "hello: ended after batch 1",
    ]


def test_ctrl_c_stops_the_query_and_raises_nothing() -> None:
    query = Query(1)
    before = signal.getsignal(signal.SIGINT)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert followed(query).endswith("hello: stopped; it resumes from its checkpoint\n")
    assert query.is_stopped
    assert signal.getsignal(signal.SIGINT) is before


def test_a_failed_query_raises_its_error() -> None:
    query = Query(0, ValueError("the disk is full"))
    query.isActive = False
    with pytest.raises(ValueError, match="the disk is full"):
        followed(query)


def test_another_stop_can_take_the_place_of_the_signals() -> None:
    stop = threading.Event()
    stop.set()
    query = Query(0)
    followed(query, stop=stop)
    assert query.is_stopped
