"""Everything the view shows, at one moment; taken by the runner, drawn by the view."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.demo.accounts import Outcome, Sent
from penstock.demo.drawing import Rates
from penstock.demo.generator import TOPIC_OF
from penstock.demo.pipelines import Stage
from penstock.demo.results import Results


@dataclass(frozen=True, slots=True)
class TopicLine:
    topic: str
    sent: int
    per_s: float
    history: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    address: str
    elapsed_s: float
    seconds: float | None
    """How long events will have been sent at the end; None while that is not known."""
    shop_time: datetime
    engine: str
    doing: str
    topics: Sequence[TopicLine]
    stages: Sequence[Stage]
    lag_history: Sequence[float]
    sent: Sent
    outcome: Outcome
    results: Results
    notice: str = ""
    """Something a viewer should know, such as why Spark does not run."""

    @property
    def under_way(self) -> int:
        """Events that were sent and are in no result yet."""
        return max(0, self.sent.total - self.outcome.total)


class History:
    """What snapshots need to remember from one to the next."""

    def __init__(self, seconds_kept: int = 120) -> None:
        self._rates = {kind: Rates(seconds_kept) for kind in TOPIC_OF}
        self._lags: deque[float] = deque(maxlen=seconds_kept)
        self._last_lag_s = float("-inf")

    def add(self, now_s: float, sent: Sent, stages: Sequence[Stage]) -> None:
        for kind, rates in self._rates.items():
            rates.add(now_s, sent.by_kind[kind])
        if now_s - self._last_lag_s >= 1:
            self._last_lag_s = now_s
            # While nobody reads, everything is behind.
            self._lags.append(max((stage.lag for stage in stages if stage.lag is not None), default=sent.total))

    def topics(self, sent: Sent) -> list[TopicLine]:
        return [
            TopicLine(TOPIC_OF[kind], sent.by_kind[kind], rates.latest, rates.values)
            for kind, rates in self._rates.items()
        ]

    @property
    def lags(self) -> list[float]:
        return list(self._lags)
