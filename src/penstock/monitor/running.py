"""The loop of the monitor: collect, derive, write, serve. One thread, and one more for HTTP.

A round never fails as a whole. What cannot be read is missing from the samples; what cannot be written waits. The
cluster may be down when the monitor starts, and may go away and come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.client import ClientError
from penstock.monitor.collector import Collector
from penstock.monitor.derive import lag_records, samples
from penstock.monitor.end_history import EndHistory
from penstock.monitor.exposing import expose
from penstock.monitor.observed import Observed, Place
from penstock.monitor.pace import Part
from penstock.monitor.rollups import Rollups
from penstock.monitor.samples import MetricSample
from penstock.monitor.writer import Writer, problem_of
from penstock.stop_flag import Stop
from penstock.telemetry.samples import Sample, counter, gauge

INTERVAL_S: Final = 10.0
SLOW_INTERVAL_S: Final = 60.0
"""For what changes slowly and costs much: sizes on disk, members of groups."""
PARTIAL_ROLLUPS_S: Final = 300.0
BUDGET: Final = 0.009
"""The share of one core that sampling may use."""
_SHARES: Final = {"shape": 0.2, "ends": 0.25, "groups": 0.25, "disks": 0.08, "members": 0.05, "scrapes": 0.05,
                  "output": 0.12}  # fmt: skip


class Follower(Protocol):
    """Somebody who gets every round: alerts."""

    def take(self, observed: Observed, taken: Sequence[MetricSample], time_ms: int) -> Iterable[Sample]:
        """Looks at a round; returns series for the endpoint."""


@dataclass(kw_only=True)
class Settings:
    interval_s: float = INTERVAL_S
    budget: float = BUDGET
    writes: bool = True
    rollups: bool = True


@dataclass(kw_only=True)
class Totals:
    rounds: int = 0
    samples: int = 0
    failures: int = 0
    cpu_s: float = 0.0


@dataclass
class Monitor:
    """Watches one cluster. `round` does everything once; `run` repeats it."""

    collector: Collector
    writer: Writer | None
    settings: Settings = field(default_factory=Settings)
    say: Callable[[str], object] = print
    followers: Sequence[Follower] = ()
    now_s: Callable[[], float] = time.monotonic
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    cpu_s: Callable[[], float] = time.process_time

    def __post_init__(self) -> None:
        interval, budget = self.settings.interval_s, self.settings.budget
        slow = max(interval, SLOW_INTERVAL_S if interval >= INTERVAL_S else 6 * interval)
        self.parts = {
            name: Part(slow if name in ("disks", "members") else interval, budget * share)
            for name, share in _SHARES.items()
        }
        self.history = EndHistory()
        self.rollups = Rollups()
        self.totals = Totals()
        self.newest: tuple[MetricSample, ...] = ()
        self._exposed: tuple[Sample, ...] = ()
        self._partial_due_s = self.now_s() + PARTIAL_ROLLUPS_S
        self._told: set[str] = set()

    @property
    def observed(self) -> Observed:
        return self.collector.observed

    def run(self, stop: Stop) -> None:
        """Repeats rounds until it is stopped. Rounds begin at fixed times; one that was missed is left out."""
        due_s = self.now_s()
        while not stop.is_set():
            self.round()
            due_s += self.settings.interval_s
            behind_s = self.now_s() - due_s
            if behind_s > 0:
                due_s += self.settings.interval_s * int(behind_s / self.settings.interval_s + 1)
            stop.wait(max(0.0, due_s - self.now_s()))
        self._write(final=True)

    def round(self) -> bool:
        """One sample; False if the cluster could not be reached."""
        began_cpu_s = self.cpu_s()
        self.observed.problems.clear()
        reached = self._collect()
        if reached:
            self._part("output", self._output)
        self.totals.rounds += 1
        self.totals.cpu_s += self.cpu_s() - began_cpu_s
        self._tell(self.observed.problems)
        return reached

    def look(self) -> None:
        """Everything once, whatever it costs and whenever it was last done. Raises ClientError if no broker answers."""
        self.observed.problems.clear()
        self.collector.shape()
        self._disks()
        self._ends()
        self._groups()
        self.collector.members()
        self.collector.scrapes()
        self._output()

    def exposed(self) -> tuple[Sample, ...]:
        """The series for the Prometheus endpoint. May be called from another thread."""
        return self._exposed

    # ---- the parts of a round

    def _collect(self) -> bool:
        collector = self.collector
        try:
            if not self.observed.shape.brokers or self.parts["shape"].is_due(self.now_s()):
                self._part("shape", collector.shape, always=True)
        except ClientError as error:
            self.totals.failures += 1
            self.observed.problems.append(f"the cluster does not answer: {error}")
            self._lost()
            return False
        self._part("disks", self._disks)
        self._part("ends", self._ends)
        self._part("groups", self._groups)
        self._part("members", collector.members)
        self._part("scrapes", collector.scrapes)
        return True

    def _part(self, name: str, work: Callable[[], object], *, always: bool = False) -> None:
        part, now_s = self.parts[name], self.now_s()
        if not always and not part.is_due(now_s):
            return
        began_s = self.cpu_s()
        work()
        part.done(now_s, self.cpu_s() - began_s)

    def _disks(self) -> None:
        self.collector.starts()
        self.collector.disks()

    def _ends(self) -> None:
        self.collector.ends()
        ends = self.observed.ends.value or {}
        places = (((topic, number), end) for topic, row in ends.items() for number, end in enumerate(row))
        self.history.add(self.wall_ms(), places)

    def _groups(self) -> None:
        self.collector.groups()
        self.observed.lag_s = self._lag_s()

    def _lag_s(self) -> dict[str, float]:
        """The age of the oldest unread record of each group; groups for which it is unknown are left out."""
        ends, now_ms = self.observed.ends.value or {}, self.wall_ms()
        found: dict[str, float] = {}
        unknown: dict[str, tuple[Place, int]] = {}
        for name, group in (self.observed.groups.value or {}).items():
            lagging = [place for place, lag in lag_records(group, ends).items() if lag]
            if not lagging:
                if group.committed:
                    found[name] = 0.0
                continue
            times = {place: self.history.time_of(place, group.committed[place]) for place in lagging}
            # Where the history does not reach back, the partition with most unread records is looked at.
            if missing := [place for place, when in times.items() if when is None]:
                worst = max(missing, key=lambda place: ends[place[0]][place[1]] - group.committed[place])
                unknown[name] = (worst, group.committed[worst])
            known = [when for when in times.values() if when is not None]
            if known:
                found[name] = max(0.0, (now_ms - min(known)) / 1000)
        first = self.collector.first_times(dict(unknown.values())) if unknown else {}
        for name, (place, _) in unknown.items():
            if place in first:
                found[name] = max(found.get(name, 0.0), (now_ms - first[place]) / 1000, 0.0)
        return found

    def _output(self) -> None:
        time_ms = self.wall_ms()
        taken = samples(self.observed, time_ms)
        self.newest = tuple(taken)
        self.totals.samples += len(taken)
        extra: list[Sample] = []
        for follower in self.followers:
            extra += follower.take(self.observed, taken, time_ms)
        if self.writer is not None:
            self.writer.add(taken)
            if self.settings.rollups:
                self.writer.add(self.rollups.add(taken))
            self._write()
        self._exposed = (*expose(taken), *extra, *self._own())

    def _write(self, *, final: bool = False) -> None:
        writer, now_s = self.writer, self.now_s()
        if writer is None:
            return
        if self.settings.rollups and (final or now_s >= self._partial_due_s):
            self._partial_due_s = now_s + PARTIAL_ROLLUPS_S
            writer.add(self.rollups.partial(self.wall_ms()))
        try:
            writer.flush(self.wall_ms())
        except ClientError as error:
            self.observed.problems.append(problem_of(error, writer))

    def _lost(self) -> None:
        """The cluster is gone: only that is still known."""
        time_ms = self.wall_ms()
        extra = [sample for one in self.followers for sample in one.take(self.observed, (), time_ms)]
        self._exposed = (*extra, *self._own())

    def _own(self) -> list[Sample]:
        """The monitor's own figures."""
        totals, writer = self.totals, self.writer
        own = [
            counter("penstock_monitor_rounds_total", "Samples of the whole cluster", totals.rounds),
            counter("penstock_monitor_failed_rounds_total", "Samples that failed: no broker answered", totals.failures),
            counter("penstock_monitor_cpu_seconds_total", "CPU time of sampling", round(totals.cpu_s, 3)),
            gauge("penstock_monitor_reached", "1 if the cluster answered", int(bool(self.newest))),
            gauge(
                "penstock_monitor_problems", "What could not be read in the last sample", len(self.observed.problems)
            ),
        ]
        for name, part in self.parts.items():
            text = "Time between two samples of a part; it grows with the cost, to stay within the CPU budget"
            own.append(gauge("penstock_monitor_interval_seconds", text, round(part.interval_s, 1), (("part", name),)))
        if writer is not None:
            own.append(counter("penstock_monitor_written_total", "Records written", writer.written))
            own.append(
                counter("penstock_monitor_dropped_total", "Records dropped, could not be written", writer.dropped)
            )
            own.append(gauge("penstock_monitor_waiting", "Records that wait to be written", writer.waiting))
        return own

    def _tell(self, problems: Sequence[str]) -> None:
        """Says each problem once, and again after it was gone."""
        now = set(problems)
        for problem in dict.fromkeys(problems):
            if problem not in self._told:
                self.say(problem)
        self._told = now
