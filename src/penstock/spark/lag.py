"""How far streaming queries are behind the ends of the logs they read.

    listener = LagListener(on_lag=print)
    spark.streams.addListener(listener)
    ...
    listener.prometheus_text()

After each trigger Spark reports where each source was, and the source reports where the logs ended (`latestOffset`).
The differences, over the partitions of a source, are what Spark's own Kafka source puts into its metrics under the
names minOffsetsBehindLatest, avgOffsetsBehindLatest and maxOffsetsBehindLatest; sources in Python have no such place.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.client import TopicPartition
from penstock.spark.offsets import OURS, positions_of
from penstock.telemetry.exposition import exposition
from penstock.telemetry.samples import Sample, gauge

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_BEHIND: Final[tuple[tuple[str, str, Callable[[Lag], float]], ...]] = (
    ("min", "of the partition that is least behind", lambda lag: lag.smallest),
    ("avg", "the average over partitions", lambda lag: lag.average),
    ("max", "of the partition that is most behind", lambda lag: lag.largest),
    ("sum", "of all partitions together", lambda lag: lag.total),
)


@dataclass(frozen=True)
class Lag:
    """Of one source of one query, at the end of one trigger."""

    query_id: str
    query_name: str | None
    batch_id: int
    source: int
    """Which of the query's sources, counted from 0."""
    offsets_behind: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.offsets_behind.values())

    @property
    def smallest(self) -> int:
        return min(self.offsets_behind.values(), default=0)

    @property
    def average(self) -> float:
        return self.total / len(self.offsets_behind) if self.offsets_behind else 0.0

    @property
    def largest(self) -> int:
        return max(self.offsets_behind.values(), default=0)


def lags_of(progress: StreamingQueryProgress) -> list[Lag]:
    """The lag of each penstock source of a query; sources of other kinds are left out."""
    found: list[Lag] = []
    for index, source in enumerate(progress.sources):
        behind = offsets_behind(source.endOffset, source.latestOffset)
        if behind is not None:
            found.append(Lag(str(progress.id), progress.name, progress.batchId, index, behind))
    return found


def offsets_behind(end_offset: str | None, latest_offset: str | None) -> dict[TopicPartition, int] | None:
    """By partition, from the two offsets of a source's progress; None where the source is of another kind."""
    end, latest = _read(end_offset), _read(latest_offset)
    if end is None or latest is None or OURS not in end:
        return None
    ends = positions_of({name: value for name, value in end.items() if name != OURS})
    return {key: max(0, position - ends.get(key, 0)) for key, position in positions_of(latest).items()}


class LagListener(StreamingQueryListener):
    """Keeps the last lag of each source of each running query, and tells whoever asked to be told."""

    def __init__(self, on_lag: Callable[[Lag], None] | None = None) -> None:
        super().__init__()
        self._on_lag = on_lag
        self._lags: dict[tuple[str, int], Lag] = {}
        # Spark calls a listener on a thread of its own.
        self._lock = threading.Lock()

    def lags(self) -> list[Lag]:
        """Of the queries that run."""
        with self._lock:
            return list(self._lags.values())

    def samples(self) -> Iterator[Sample]:
        """The same as samples, for `penstock.telemetry`."""
        lags = self.lags()
        for name, which, value_of in _BEHIND:
            for lag in lags:
                labels = (("query", lag.query_name or ""), ("query_id", lag.query_id), ("source", str(lag.source)))
                text = f"Offsets behind the log's end, {which}."
                yield gauge(f"penstock_spark_lag_offsets_{name}", text, value_of(lag), labels)

    def prometheus_text(self) -> str:
        """The same in Prometheus' text format."""
        return exposition(self.samples())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for lag in lags_of(event.progress):
            with self._lock:
                self._lags[lag.query_id, lag.source] = lag
            if self._on_lag is not None:
                self._on_lag(lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._lags = {key: lag for key, lag in self._lags.items() if key[0] != str(event.id)}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known of it yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new since its last progress."""


def _read(text: str | None) -> dict[str, object] | None:
    try:
        read = json.loads(text) if text else None
    except ValueError:
        return None
    return read if isinstance(read, dict) else None
