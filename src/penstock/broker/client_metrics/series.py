"""The values that clients pushed, as they are exported: by metric, client id and the metric's own attributes.

Clients with one client id share series: sums are added up, of gauges the last one is shown. The number of series is
limited, for each client id and in all; what exceeds that is counted. A series that was not pushed for a while is
dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Final

from penstock.broker.client_metrics.otlp import Point, Temporality
from penstock.telemetry.samples import Labels, Sample, gauge

SERIES_MAX: Final = 10_000
SERIES_PER_CLIENT_MAX: Final = 500
LABEL_LENGTH_MAX: Final = 128
STALE_MS_MIN: Final = 600_000
STALE_INTERVALS: Final = 3
PREFIX: Final = "kafka_client_"
KAFKAS_PREFIX: Final = "org.apache.kafka."
HELP: Final = "Pushed by clients (KIP-714)"

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9._-]{0,199}")
_KEY = re.compile(r"[a-zA-Z][a-zA-Z0-9._-]{0,63}")
_OTHER = re.compile(r"[.-]")


class _Series:
    __slots__ = ("stale_ms", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.stale_ms = 0.0


class ClientSeries:
    def __init__(self) -> None:
        self._series: dict[tuple[str, Labels], _Series] = {}
        self._per_client: dict[str, int] = {}
        self.dropped = 0
        """Values that were not taken: invalid, or beyond a limit."""

    def __len__(self) -> int:
        return len(self._series)

    def take(self, client_id: str, points: Iterable[Point], interval_ms: int, now_ms: float) -> None:
        client_id = client_id[:LABEL_LENGTH_MAX]
        stale_ms = now_ms + max(STALE_MS_MIN, STALE_INTERVALS * interval_ms)
        for point in points:
            series = self._of(client_id, point)
            if series is None:
                self.dropped += 1
                continue
            series.value = series.value + point.value if point.temporality is Temporality.DELTA else point.value
            series.stale_ms = stale_ms

    def _of(self, client_id: str, point: Point) -> _Series | None:
        if not _NAME.fullmatch(point.name) or not isfinite(point.value):
            return None
        name = PREFIX + _OTHER.sub("_", point.name.removeprefix(KAFKAS_PREFIX)).lower()
        labels: dict[str, str] = {"client_id": client_id}
        for key, value in point.attributes:
            if not _KEY.fullmatch(key):
                return None
            labels.setdefault(_OTHER.sub("_", key).lower(), value[:LABEL_LENGTH_MAX])
        key_ = (name, tuple(labels.items()))
        series = self._series.get(key_)
        if series is None:
            count = self._per_client.get(client_id, 0)
            if count >= SERIES_PER_CLIENT_MAX or len(self._series) >= SERIES_MAX:
                return None
            self._per_client[client_id] = count + 1
            series = self._series[key_] = _Series()
        return series

    def forget_stale(self, now_ms: float) -> None:
        stale = [key for key, series in self._series.items() if series.stale_ms <= now_ms]
        for key in stale:
            del self._series[key]
            client_id = key[1][0][1]
            self._per_client[client_id] -= 1
            if not self._per_client[client_id]:
                del self._per_client[client_id]

    def samples(self, now_ms: float) -> Iterator[Sample]:
        self.forget_stale(now_ms)
        for (name, labels), series in sorted(self._series.items(), key=lambda item: item[0]):
            yield gauge(name, HELP, series.value, labels)
