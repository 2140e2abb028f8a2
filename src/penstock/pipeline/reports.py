"""Spark's reports about the queries of a run, taken into its status as they come."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.pipeline.status import RunStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

LAST_REPORTS_TIMEOUT_S = 10.0


class Reports:
    """Takes Spark's reports into the status."""

    def __init__(self, status: RunStatus) -> None:
        self._status = status
        self._ended = 0
        self._condition = threading.Condition()
        self._listener: StreamingQueryListener | None = None

    def listen(self, session: SparkSession) -> None:
        """From now on; the listener is made here, because its base class is pyspark's."""
        from pyspark.sql.streaming.listener import StreamingQueryListener

        reports = self

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event) -> None:  # type: ignore[no-untyped-def]
                """The run knows."""

            def onQueryProgress(self, event) -> None:  # type: ignore[no-untyped-def]
                reports.add(event.progress.name, json.loads(event.progress.json))

            def onQueryIdle(self, event) -> None:  # type: ignore[no-untyped-def]
                """Nothing new."""

            def onQueryTerminated(self, event) -> None:  # type: ignore[no-untyped-def]
                reports.end()

        self._listener = Listener()
        session.streams.addListener(self._listener)

    def leave(self, session: SparkSession) -> None:
        """No report is taken any more."""
        if self._listener is not None:
            with suppress(Exception):  # Spark is gone
                session.streams.removeListener(self._listener)
            self._listener = None

    def add(self, name: str | None, progress: Mapping[str, object]) -> None:
        figures = self._status.queries.get(name or "")
        if figures is not None:
            figures.add(progress)

    def end(self) -> None:
        with self._condition:
            self._ended += 1
            self._condition.notify_all()

    def forget_end(self) -> None:
        """One query ended that is started again."""
        with self._condition:
            self._ended -= 1

    def wait_for_ends(self, count: int) -> None:
        """Spark's reports come on a thread of their own, the last ones after the queries have ended."""
        with self._condition:
            self._condition.wait_for(lambda: self._ended >= count, LAST_REPORTS_TIMEOUT_S)
