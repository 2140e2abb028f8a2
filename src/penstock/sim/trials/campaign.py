"""Many seeds on all cores: whole clusters and the pure Raft core, with a progress bar and a summary."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from time import monotonic
from typing import Any, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from penstock.sim.raft.chaos import run_chaos, run_storm
from penstock.sim.raft.kafka import run_kafka
from penstock.sim.trials.generators import generate
from penstock.sim.trials.running import run_trial
from penstock.sim.trials.trial import Outcome

__all__ = ["RAFT_CHUNK", "Campaign", "run_campaign", "run_raft_seed"]

RAFT_CHUNK = 50
STORM_EVERY, KAFKA_EVERY = 50, 10
SEEDS_PER_PROCESS = 200
"""A process is replaced after this many worlds: cycles that outlive a world are collected only between seeds."""


class Work(NamedTuple):
    """The work given to a process at a time."""

    function: Any
    arguments: tuple[int, ...]
    seeds: int
    """The number of seeds."""


@dataclass
class Campaign:
    """The sum of the results of many seeds."""

    trials: int = 0
    raft: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    raft_seen: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    commits: int = 0
    virtual_ms: float = 0.0
    failed: list[Outcome] = field(default_factory=list)
    raft_failed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.trials += 1
        self.seen += outcome.seen
        self.faults += outcome.faults
        self.acknowledged += outcome.acknowledged
        self.commits += outcome.commits
        self.virtual_ms += outcome.virtual_ms
        if outcome.failure:
            self.failed.append(outcome)

    def add_raft(self, count: int, seen: Counter[str], failed: list[tuple[int, str]]) -> None:
        self.raft += count
        self.raft_seen += seen
        self.raft_failed += failed


def run_raft_seed(seed: int) -> Counter[str]:
    """Mostly all faults at once; every tenth seed a scenario of Kafka's; every fiftieth a storm of power failures."""
    if seed % STORM_EVERY == 0:
        return run_storm(seed).seen
    if seed % KAFKA_EVERY == 0:
        return run_kafka(seed // KAFKA_EVERY).seen
    return run_chaos(seed).seen


def run_campaign(
    first: int, trials: int, raft: int, *, jobs: int, minutes: float = 0.0, quiet: bool = False
) -> Campaign:
    """Runs seeds `first`, `first` + 1, …: `trials` whole clusters, and `raft` quorums of the pure core.

    With `minutes`, it runs fewer of both if time is short.
    """
    campaign = Campaign()
    until_s = monotonic() + minutes * 60 if minutes else float("inf")
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[bad]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=quiet) as progress:
        bars = {
            _trial: progress.add_task("whole clusters", total=trials, bad="", visible=trials > 0),
            _raft: progress.add_task("raft core", total=raft, bad="", visible=raft > 0),
        }

        def done(function: Any, count: int, result: Any) -> None:
            if function is _trial:
                campaign.add(result)
                bad = len(campaign.failed)
            else:
                campaign.add_raft(count, *result)
                bad = len(campaign.raft_failed)
            progress.update(bars[function], advance=count, bad=f"{bad} failed" if bad else "")

        work = _work(first, trials, raft)
        # Replace processes now and then (see SEEDS_PER_PROCESS), but not with the executor's `max_tasks_per_child`: in
        # Python 3.11 it can hang.
        while monotonic() < until_s and (some := list(islice(work, SEEDS_PER_PROCESS * jobs))):
            with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_prepare_process) as pool:
                _run_some(pool, some, jobs, until_s, done)
    return campaign


def _run_some(
    pool: ProcessPoolExecutor,
    some: list[Work],
    jobs: int,
    until_s: float,
    done: Callable[[Any, int, Any], None],
) -> None:
    """Runs the work and calls `done` for each part; starts no more after `until_s`."""
    waiting = iter(some)
    running: dict[Future[Any], Work] = {}
    while True:
        while monotonic() < until_s and len(running) < 2 * jobs and (work := next(waiting, None)) is not None:
            running[pool.submit(work.function, *work.arguments)] = work
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            work = running.pop(future)
            done(work.function, work.seeds, future.result())


def _work(first: int, trials: int, raft: int) -> Iterator[Work]:
    """Both kinds, mixed, so that both progress bars end at about the same time."""
    chunks = [(start, min(RAFT_CHUNK, first + raft - start)) for start in range(first, first + raft, RAFT_CHUNK)]
    ratio = len(chunks) / trials if trials else 0.0
    given = 0
    for number in range(trials):
        yield Work(_trial, (first + number,), 1)
        while given < len(chunks) and given < (number + 1) * ratio:
            yield Work(_raft, chunks[given], chunks[given][1])
            given += 1
    for chunk in chunks[given:]:
        yield Work(_raft, chunk, chunk[1])


def _trial(seed: int) -> Outcome:
    outcome = run_trial(generate(seed))
    gc.collect()
    return outcome


def _prepare_process() -> None:
    """Excludes all imported objects from garbage collection: they live as long as the process."""
    gc.freeze()


def _raft(first: int, count: int) -> tuple[Counter[str], list[tuple[int, str]]]:
    return raft_seeds(range(first, first + count))


def raft_seeds(seeds: Iterable[int]) -> tuple[Counter[str], list[tuple[int, str]]]:
    """The events of these seeds, and the failures."""
    seen: Counter[str] = Counter()
    failed = []
    for seed in seeds:
        try:
            seen += run_raft_seed(seed)
        except Exception as error:
            failed.append((seed, f"{type(error).__name__}: {error}"))
    return seen, failed
