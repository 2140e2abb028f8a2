"""`python -m penstock.sim.fuzz`: runs many rounds on all cores, or replays a stored one. `make fuzz` runs this."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import SystemRandom
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from penstock.sim.fuzz.minimise import StoredRound, minimise
from penstock.sim.fuzz.rounds import ROUND_CASES, Report, draw_round, nodes_of, run_cases, run_round

ROUNDS_PER_PROCESS = 100
SHOWN = 5

console = Console()


def main(
    cases: Annotated[int, typer.Option(help="How many cases, over all rounds.")] = 100_000,
    first: Annotated[int, typer.Option(help="The first round; by default a random one, which is printed.")] = -1,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one per core.")] = 0,
    keep: Annotated[Path, typer.Option(help="Where to write the cases of a failure.")] = Path(".simulation"),
    replay: Annotated[Path | None, typer.Option(help="Send the stored cases of a failure instead.")] = None,
) -> None:
    """Send invalid and odd requests to simulated clusters, and check that other clients are not affected."""
    if replay is not None:
        stored = StoredRound.from_json(replay.read_bytes())
        failure = run_cases(stored.seed, stored.cases, stored.nodes).failure
        console.print(failure or "all is well", highlight=False)
        raise typer.Exit(1 if failure else 0)
    first = first if first >= 0 else SystemRandom().randrange(1 << 40)
    rounds = range(first, first + -(-cases // ROUND_CASES))
    console.print(f"rounds {first} … (again: --first {first})")
    began_s = time.monotonic()
    seen: Counter[str] = Counter()
    done, cpu_s, failed = 0, 0.0, []
    processes = jobs or os.cpu_count() or 1
    # Replace the processes now and then, because not all memory freed by a round is returned. (Not with
    # `max_tasks_per_child`: Python 3.11's executor can hang with it.)
    portion = ROUNDS_PER_PROCESS * processes
    with Progress(console=console) as progress:
        bar = progress.add_task("rounds", total=len(rounds))
        for begin in range(0, len(rounds), portion):
            some = rounds[begin : begin + portion]
            with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
                for number, (report, took_s) in zip(some, pool.map(run_round, some), strict=True):
                    progress.advance(bar)
                    done, cpu_s, seen = done + report.cases, cpu_s + took_s, seen + report.seen
                    if report.failure:
                        failed.append((number, report))
    console.print(
        f"{done} cases in {len(rounds)} rounds, {time.monotonic() - began_s:.0f} s, {cpu_s:.0f} s of CPU "
        f"({done / max(cpu_s, 0.001):.0f} cases per second of a core): {len(failed)} rounds failed"
    )
    for what, count in sorted(seen.items()):
        console.print(f"  {what}: {count}", highlight=False)
    for number, report in failed[:SHOWN]:
        _tell(number, report, keep)
    raise typer.Exit(1 if failed else 0)


def _tell(number: int, report: Report, keep: Path) -> None:
    """Minimises a failing round, prints it and saves it."""
    console.print(f"[red]round {number}[/]: {report.failure}", highlight=False, soft_wrap=True)
    drawn = draw_round(str(number), ROUND_CASES, nodes_of(number))[: report.cases]
    with console.status("minimising the round"):
        stored = minimise(StoredRound(str(number), nodes_of(number), drawn), report.failure)
    for case in stored.cases:
        console.print(f"  node {case.node} port {case.port}: {case.data.hex()}", highlight=False, soft_wrap=True)
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / f"fuzz-{number}.json"
    path.write_bytes(stored.to_json())
    console.print(f"replay: python -m penstock.sim.fuzz --replay {path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
