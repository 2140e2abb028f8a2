"""Progress of a running performance test: Kafka's lines, and a chart on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.perf.plot import plot, short

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

TICK_S = 0.5
POINTS_MAX = 480
"""When there are so many, two become one: a test may run for days."""
CHART_LINES = 5
LABEL_COLUMNS = 24


class Series:
    """Points over time, in bounded memory: the whole run, ever more coarsely."""

    def __init__(self, *, largest: bool) -> None:
        self.points: list[float] = []
        self._largest = largest
        """Of two points that become one: the larger, or their mean."""
        self._step = 1
        self._waiting: list[float] = []

    def add(self, value: float) -> None:
        self._waiting.append(value)
        if len(self._waiting) < self._step:
            return
        self.points.append(self._one(self._waiting))
        self._waiting = []
        if len(self.points) >= POINTS_MAX:
            self.points = [self._one(self.points[index : index + 2]) for index in range(0, len(self.points), 2)]
            self._step *= 2

    def _one(self, values: list[float]) -> float:
        return max(values) if self._largest else sum(values) / len(values)


class Screen:
    """As a context manager, around the test. `say` is for lines of the result."""

    def __init__(self, title: str, *, chart: bool, latency: bool = True) -> None:
        self.throughput = Series(largest=False)
        self.latency_ms = Series(largest=True)
        self._title = title
        self._with_latency = latency
        self._drawn = chart and sys.stderr.isatty()
        self._live: Live | None = None
        self._console: Console | None = None

    def __enter__(self) -> Self:
        if self._drawn:
            from rich.console import Console
            from rich.live import Live

            self._console = Console(stderr=True)
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def point(self, records_per_s: float, p99_ms: float = 0.0) -> None:
        """How it went since the last point."""
        self.throughput.add(records_per_s)
        self.latency_ms.add(p99_ms)
        if self._live is not None and self._console is not None:
            from rich.text import Text

            self._live.update(Text("\n".join(self.picture(self._console.width))), refresh=True)

    def picture(self, columns: int) -> list[str]:
        width = max(10, columns - LABEL_COLUMNS)
        now = self.throughput.points[-1] if self.throughput.points else 0.0
        lines = [f"{self._title}: {short(now)} records/s"]
        lines += plot(self.throughput.points, width=width, height=CHART_LINES, unit="records/s")
        if self._with_latency:
            lines += plot(self.latency_ms.points, width=width, height=CHART_LINES, unit="ms p99")
        return lines

    def say(self, line: str) -> None:
        if self._live is not None and self._console is not None and sys.stdout.isatty():
            # The same terminal: the line goes above the chart.
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
