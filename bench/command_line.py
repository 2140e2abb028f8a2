"""What the commands of the benchmark share: options, one run at a time, an orderly end, progress and reports."""

from __future__ import annotations

import argparse
import fcntl
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bench import chart, processes, profiling, report
from bench.model import Case, Outcome, Side
from bench.runner import WORK, Bench, Options
from support import apache_kafka

_BUSY_LOAD = 0.7
_WIDTH = 120


def parser(description: str, *, pairs: int) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--pairs", type=int, default=pairs, metavar="N", help=f"samples of a side (default {pairs})")
    options.add_argument("--quick", action="store_true", help="one pair and an eighth of the volume: a look, no result")
    options.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    options.add_argument("--no-penstock", action="store_true", help="leave Penstock out")
    options.add_argument(
        "--penstock",
        metavar="COMMAND",
        default=shlex.join([sys.executable, "-m", "penstock"]),
        help="the penstock to measure, if not that of this Python",
    )
    options.add_argument("--results", type=Path, metavar="DIR", help="where results go (default bench/results)")
    options.add_argument("--profile", action="store_true", help="profile Penstock in each case under load, afterwards")
    return options


def run(cases: Sequence[Case], given: argparse.Namespace, kind: type[Bench] = Bench) -> None:
    """Measures the cases one after another, and tells each result as soon as it is there."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    directory: Path = given.results or (report.QUICK_RESULTS if given.quick else report.RESULTS)
    processes.raise_descriptor_limit()
    _warn_if_busy(console)
    outcomes: list[Outcome] = []
    with only_run(), orderly_end(), kind(_options(given, console)) as bench:
        console.print(f"client: {bench.client_kind}, librdkafka {bench.client.librdkafka_version}", highlight=False)
        with _progress(console) as progress:
            rounds = 1 + bench.options.pairs
            steps = [len(bench.sides(case)) * (rounds + case.warmup_samples) + given.profile for case in cases]
            task = progress.add_task("", total=sum(steps))
            for number, case in enumerate(cases):
                outcome = bench.run(case, partial(_advance, progress, task, case))
                outcomes.append(outcome)
                report.write_outcome(outcome, bench, directory)
                report.print_outcome(console, outcome)
                if given.profile and Side.PENSTOCK in bench.sides(case):
                    progress.update(task, description=f"{case.name}: profiling")
                    _profile(console, bench, case, directory)
                progress.update(task, completed=sum(steps[: number + 1]))
    report.print_targets(console, outcomes)
    picture = chart.draw(directory)
    told = f"every sample is in {_relative(directory)}/*.json"
    console.print(f"{told}, the picture in {_relative(picture)}" if picture else told, highlight=False)


@contextmanager
def only_run() -> Iterator[None]:
    """Two runs at once would measure each other."""
    path = Path(tempfile.gettempdir()) / "penstock-bench.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another benchmark runs on this machine; wait until it has ended")
        # What a run that was killed left behind: its servers died with it, its files did not.
        for leftover in WORK.glob("run-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


@contextmanager
def orderly_end() -> Iterator[None]:
    """A polite signal ends the run as Ctrl-C does: brokers are stopped and directories removed on the way out."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _options(given: argparse.Namespace, console: Console) -> Options:
    sides = list(Side)
    if given.no_penstock:
        sides.remove(Side.PENSTOCK)
    if given.no_kafka:
        sides.remove(Side.KAFKA)
    elif reason := _kafka_missing(console):
        console.print(f"[yellow]{reason}[/yellow]\nThe rest runs without it.", highlight=False)
        sides.remove(Side.KAFKA)
    pairs = 1 if given.quick else given.pairs
    return Options(penstock=shlex.split(given.penstock), sides=sides, pairs=pairs, quick=given.quick)


def _kafka_missing(console: Console) -> str | None:
    with console.status("looking for Apache Kafka, or fetching it"):
        return apache_kafka.available()


def _warn_if_busy(console: Console) -> None:
    load = os.getloadavg()[0]
    if load > _BUSY_LOAD:
        console.print(
            f"[yellow]The machine is busy (load {load:.1f}): figures are rough, take ratios with care.[/yellow]"
        )


def _profile(console: Console, bench: Bench, case: Case, directory: Path) -> None:
    try:
        path = profiling.profile(bench, case, directory)
    except profiling.ProfileFailed as reason:
        console.print(f"no profile: {reason}", highlight=False)
    else:
        console.print(f"profile: {_relative(path)}", highlight=False)


def _advance(progress: Progress, task: TaskID, case: Case, step: str) -> None:
    progress.update(task, advance=1, description=f"{case.name}: {step}")


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(), console=console, transient=True,
    )  # fmt: skip


def _relative(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
