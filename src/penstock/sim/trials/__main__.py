"""`python -m penstock.sim.trials`: runs seeds, or replays a schedule. `make sim` runs this."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import SystemRandom
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from penstock.sim.trials.campaign import Campaign, run_campaign
from penstock.sim.trials.coverage import MUST_HAPPEN, missing
from penstock.sim.trials.generators import generate
from penstock.sim.trials.running import run_trial
from penstock.sim.trials.schedule import Schedule
from penstock.sim.trials.shrink import shrink
from penstock.sim.trials.trial import Outcome

ENOUGH_FOR_COVERAGE = 100
"""With fewer seeds, an event that did not happen proves nothing."""
SHRINK_MAX = 3
"""The number of failures to shrink; the others are only listed."""

console = Console()


def main(
    seeds: Annotated[int, typer.Option(help="Whole clusters to simulate.")] = 100,
    raft: Annotated[int, typer.Option(help="Quorums of the pure Raft core to simulate.")] = 0,
    first: Annotated[int, typer.Option(help="The first seed; by default a random one, which is printed.")] = -1,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one per core.")] = 0,
    minutes: Annotated[float, typer.Option(help="Stop after this long, even if seeds are left; 0 for no limit.")] = 0.0,
    keep: Annotated[Path, typer.Option(help="Where to write the schedules of failures.")] = Path(".simulation"),
    replay: Annotated[Path | None, typer.Option(help="Replay one stored schedule instead.")] = None,
    show: Annotated[int, typer.Option(help="Print the schedule of this seed instead.")] = -1,
) -> None:
    """Simulate whole clusters under faults, and report what happened."""
    if replay is not None:
        raise typer.Exit(_replay(Schedule.from_json(replay.read_bytes())))
    if show >= 0:
        console.print_json(generate(show).to_json().decode())
        return
    first = first if first >= 0 else SystemRandom().randrange(1 << 40)
    console.print(f"seeds {first} … (again: --first {first})")
    campaign = run_campaign(first, seeds, raft, jobs=jobs or os.cpu_count() or 1, minutes=minutes)
    _tell(campaign)
    for outcome in campaign.failed[:SHRINK_MAX]:
        _keep(outcome, keep)
    for outcome in campaign.failed[SHRINK_MAX:]:
        console.print(f"[red]seed {outcome.seed}[/]: {outcome.failure}", highlight=False)
    for seed, failure in campaign.raft_failed:
        console.print(f"[red]raft seed {seed}[/]: {failure}", highlight=False)
    never = missing(campaign.seen) if campaign.trials >= ENOUGH_FOR_COVERAGE else []
    if never:
        console.print(f"[red]never happened, so it was not tested:[/] {', '.join(never)}")
    raise typer.Exit(1 if campaign.failed or campaign.raft_failed or never else 0)


def _replay(schedule: Schedule) -> int:
    for fault in schedule.faults:
        console.print(str(fault), highlight=False)
    outcome = run_trial(schedule)
    console.print(f"[red]{outcome.failure}[/]" if outcome.failure else "all promises held")
    return 1 if outcome.failure else 0


def _tell(campaign: Campaign) -> None:
    if campaign.trials:
        hours = campaign.virtual_ms / 3_600_000
        console.print(
            f"{campaign.trials} whole clusters, {hours:.1f} virtual hours: {campaign.acknowledged} records and "
            f"{campaign.commits} commits acknowledged, {len(campaign.failed)} failed"
        )
        console.print(_table("what happened", campaign.seen, MUST_HAPPEN))
        console.print(_table("faults", campaign.faults))
    if campaign.raft:
        console.print(f"{campaign.raft} quorums of the pure core: {len(campaign.raft_failed)} failed")
        console.print(_table("what happened", campaign.raft_seen))


def _table(title: str, counts: Counter[str], first: tuple[str, ...] = ()) -> Table:
    table = Table(title, "times")
    for name in (*first, *sorted(name for name in counts if name not in first)):
        table.add_row(name, str(counts[name]))
    return table


def _keep(outcome: Outcome, directory: Path) -> None:
    """Shrinks a failure, prints it, and saves it."""
    console.print(f"[red]seed {outcome.seed}[/]: {outcome.failure}", highlight=False)
    schedule = replace(generate(outcome.seed), faults=outcome.applied)
    with console.status("shrinking") as status:
        schedule = shrink(
            schedule, outcome.failure, report=lambda smaller: status.update(f"shrinking: {len(smaller.faults)} faults")
        )
    for fault in schedule.faults:
        console.print(f"  {fault}", highlight=False)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{outcome.seed}.json"
    path.write_bytes(replace(schedule, found=outcome.failure.split("\n", 1)[0]).to_json())
    console.print(f"replay: python -m penstock.sim.trials --replay {path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
