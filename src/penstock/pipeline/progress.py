"""What Spark reports about its queries, as figures. Pure: a report is a progress as Spark writes it in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from typing import Self

from penstock.pipeline.planning import OUT_METRIC

_EPOCH_WATERMARK = "1970-01-01T00:00:00.000Z"
"""What Spark says as long as a query with a watermark has seen no record."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a query, read leniently: a field that is not there, or is something else, counts as nothing."""

    batch: int
    ran: bool
    """Whether there was a batch; a query that finds nothing to do reports too, under the number of the next one."""
    rows: int
    rows_per_second: float
    took_ms: int
    timestamp: str
    watermark: str
    late: int
    duplicates: int
    state_rows: int
    state_bytes: int
    positions: Mapping[tuple[str, int], int]
    """How far it read, by topic and partition."""
    lag: int | None
    rows_by_topics: Mapping[str, int]
    """Records of this batch by the topics of their source, such as `orders` or `clicks,orders`."""
    observed: Mapping[str, Mapping[str, object]]

    @classmethod
    def read(cls, progress: Mapping[str, object]) -> Self:
        durations = _mapping(progress.get("durationMs"))
        operators = _mappings(progress.get("stateOperators"))
        sources = _mappings(progress.get("sources"))
        rows = _whole(progress.get("numInputRows"))
        watermark = str(_mapping(progress.get("eventTime")).get("watermark", ""))
        behind = [lag for lag in map(lag_of, sources) if lag is not None]
        return cls(
            batch=_whole(progress.get("batchId")),
            ran="addBatch" in durations or rows > 0,
            rows=rows,
            rows_per_second=_real(progress.get("processedRowsPerSecond")),
            took_ms=_whole(progress.get("batchDuration")) or _whole(durations.get("triggerExecution")),
            timestamp=str(progress.get("timestamp", "")),
            watermark="" if watermark == _EPOCH_WATERMARK else watermark,
            late=sum(_whole(one.get("numRowsDroppedByWatermark")) for one in operators),
            duplicates=sum(
                _whole(_mapping(one.get("customMetrics")).get("numDroppedDuplicateRows")) for one in operators
            ),
            state_rows=sum(_whole(one.get("numRowsTotal")) for one in operators),
            state_bytes=sum(_state_bytes(one) for one in operators),
            positions={place: at for one in sources for place, at in (_offsets(one.get("endOffset")) or {}).items()},
            lag=sum(behind) if behind else None,
            rows_by_topics={
                _topics(one): _whole(one.get("numInputRows")) for one in sources if _whole(one.get("numInputRows"))
            },
            observed={name: _mapping(one) for name, one in _mapping(progress.get("observedMetrics")).items()},
        )


@dataclass
class QueryFigures:
    """One query of a run."""

    name: str
    writes: str
    state: str = "starting"
    """starting, running, finished, stopped or failed."""
    batch: int | None = None
    """The number of the last batch, which goes on counting over restarts."""
    batches: int = 0
    rows_read: int = 0
    read_by_topics: dict[str, int] = field(default_factory=dict)
    """The same by the topics of each source."""
    rows_written: int = 0
    bad: int = 0
    """Records that did not parse; they are in `rows_read`."""
    late: int = 0
    """Rows that came after the watermark had passed them, at least: Spark counts what an aggregation drops after it has
    put together the rows of each of its tasks that belong to the same group."""
    rows_per_second: float = 0.0
    """Of the last batch that had any."""
    lag: int | None = None
    """Records between where the last batch ended and the ends of the logs then."""
    state_rows: int = 0
    state_bytes: int = 0
    batch_ms: int = 0
    """How long the last batch took."""
    watermark: str = ""
    updated: str = ""
    error: str = ""

    def add(self, progress: Mapping[str, object]) -> None:
        """One more report."""
        report = Report.read(progress)
        self.state = "running"
        if report.ran:
            self.batches += 1
            self.batch = report.batch
        self.updated = report.timestamp
        self.rows_read += report.rows
        for topics, rows in report.rows_by_topics.items():
            self.read_by_topics[topics] = self.read_by_topics.get(topics, 0) + rows
        if report.rows:
            self.rows_per_second = report.rows_per_second
            self.batch_ms = report.took_ms
        for name, values in report.observed.items():
            if name == OUT_METRIC:
                self.rows_written += _whole(values.get("rows"))
            elif name.startswith("source."):
                self.bad += _whole(values.get("bad"))
        self.state_rows, self.state_bytes = report.state_rows, report.state_bytes
        self.late += report.late
        self.watermark = report.watermark or self.watermark
        self.lag = self.lag if report.lag is None else report.lag


def records_read(queries: Iterable[QueryFigures]) -> int:
    """How many records a run read, each counted once however many queries read it."""
    read: dict[str, int] = {}
    for query in queries:
        for topics, rows in query.read_by_topics.items():
            read[topics] = max(rows, read.get(topics, 0))
    return sum(read.values())


def lag_of(source: Mapping[str, object]) -> int | None:
    """Records between the end of a batch and the ends of the logs; None for sources that do not tell."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, position - end.get(place, 0)) for place, position in latest.items())


def _offsets(value: object) -> dict[tuple[str, int], int] | None:
    """`{"orders": {"0": 5}}` by topic and partition; Spark shows it as JSON, or as text of JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict):
        return None
    found = {}
    for topic, partitions in value.items():
        if isinstance(partitions, dict):
            for partition, position in partitions.items():
                if isinstance(position, int) and str(partition).isdecimal():
                    found[str(topic), int(partition)] = position
    return found


def _topics(source: Mapping[str, object]) -> str:
    return ",".join(sorted({topic for topic, _ in _offsets(source.get("endOffset")) or {}}))


def _state_bytes(operator: Mapping[str, object]) -> int:
    """What is kept, in memory and in RocksDB's files."""
    custom = _mapping(operator.get("customMetrics"))
    return max(_whole(operator.get("memoryUsedBytes")), _whole(custom.get("rocksdbSstFileSize")))


def seconds_since(timestamp: str, now: datetime) -> float | None:
    """How long ago a report was made."""
    try:
        return max(0.0, (now - datetime.fromisoformat(timestamp)).total_seconds())
    except ValueError:
        return None


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else 0


def _real(value: object) -> float:
    return float(value) if isinstance(value, int | float) and isfinite(value) else 0.0


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Mapping[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
