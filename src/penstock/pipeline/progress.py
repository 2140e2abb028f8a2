"""What Spark reports about its queries, as figures. Pure: `add` takes a progress as Spark writes it in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.pipeline.planning import OUT_METRIC

_EPOCH_WATERMARK = "1970-01-01T00:00:00.000Z"
"""What Spark says as long as a query with a watermark has seen no record."""


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
    rows_written: int = 0
    bad: int = 0
    """Records that did not parse; they are in `rows_read`."""
    late: int = 0
    """Rows that came after the watermark had passed them."""
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
        """One more report; those of empty triggers have the number of the batch before them."""
        number = _whole(progress.get("batchId"))
        rows = _whole(progress.get("numInputRows"))
        self.state = "running"
        if self.batch is None or number > self.batch or (rows and number == self.batch):
            self.batches += 1
        self.batch = number
        self.updated = str(progress.get("timestamp", ""))
        self.rows_read += rows
        if rows:
            self.rows_per_second = _real(progress.get("processedRowsPerSecond"))
            self.batch_ms = _whole(progress.get("batchDuration")) or _duration_ms(progress)
        self._add_observed(_mapping(progress.get("observedMetrics")))
        operators = _mappings(progress.get("stateOperators"))
        self.state_rows = sum(_whole(one.get("numRowsTotal")) for one in operators)
        self.state_bytes = sum(_state_bytes(one) for one in operators)
        self.late += sum(_whole(one.get("numRowsDroppedByWatermark")) for one in operators)
        watermark = str(_mapping(progress.get("eventTime")).get("watermark", ""))
        if watermark and watermark != _EPOCH_WATERMARK:
            self.watermark = watermark
        behind = [lag for lag in map(lag_of, _mappings(progress.get("sources"))) if lag is not None]
        if behind:
            self.lag = sum(behind)

    def _add_observed(self, observed: Mapping[str, object]) -> None:
        for name, values in observed.items():
            if name == OUT_METRIC:
                self.rows_written += _whole(_mapping(values).get("rows"))
            elif name.startswith("source."):
                self.bad += _whole(_mapping(values).get("bad"))


def lag_of(source: Mapping[str, object]) -> int | None:
    """Records between the end of a batch and the ends of the logs; None for sources that do not tell."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, position - end.get(place, 0)) for place, position in latest.items())


def _offsets(value: object) -> dict[tuple[str, str], int] | None:
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
                if isinstance(position, int) and str(partition).isdigit():
                    found[str(topic), str(partition)] = position
    return found


def _state_bytes(operator: Mapping[str, object]) -> int:
    """What is kept, in memory and in RocksDB's files."""
    custom = _mapping(operator.get("customMetrics"))
    return max(_whole(operator.get("memoryUsedBytes")), _whole(custom.get("rocksdbSstFileSize")))


def _duration_ms(progress: Mapping[str, object]) -> int:
    return _whole(_mapping(progress.get("durationMs")).get("triggerExecution"))


def seconds_since(timestamp: str, now: datetime) -> float | None:
    """How long ago a report was made."""
    try:
        return max(0.0, (now - datetime.fromisoformat(timestamp)).total_seconds())
    except ValueError:
        return None


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value == value else 0


def _real(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value == value else 0.0


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Mapping[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
