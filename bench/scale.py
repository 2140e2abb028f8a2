"""`python -m bench.scale`: the real controller, planner and coordinator code at sizes that no test cluster has.

1 K, 10 K, 100 K and a million partitions (ten to a topic, three replicas, 100 brokers in ten racks), plans for one
broker more and one less there, and 10, 100, 1,000 and 10,000 consumer groups of twenty members. Prints the numbers
beside their targets, draws how they grow, and writes both to `bench/results/scale/`. Takes some minutes and, at the
largest sizes, up to two gigabytes; `--partitions` and `--groups` choose others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import scale_controller, scale_groups, scale_plans

RESULTS = Path(__file__).parent / "results" / "scale"
PARTITIONS = (1_000, 10_000, 100_000, 1_000_000)
GROUPS = (10, 100, 1_000, 10_000)

Measured = dict[str, float]

CONTROLLER_ROWS = (
    ("topics", "topics", "{:,.0f}", None),
    ("image_mb", "memory of the metadata, MB", "{:,.0f}", None),
    ("peak_mb", "most memory of the process, with a snapshot beside it, MB", "{:,.0f}", ("1,000,000", 4_000)),
    ("snapshot_mb", "snapshot, MB", "{:,.1f}", None),
    ("snapshot_write_s", "writing it, s", "{:,.2f}", None),
    ("snapshot_load_s", "loading it, s", "{:,.2f}", ("1,000,000", 60)),
    ("failure_partitions", "a broker fails: partitions that it holds", "{:,.0f}", None),
    ("failure_elections", "… that need another leader", "{:,.0f}", None),
    ("failure_decided_s", "… decided after, s", "{:,.3f}", ("1,000,000", 5)),
    ("failure_encoded_s", "… encoded for the log, s", "{:,.3f}", None),
    ("failure_followed_s", "… taken in by a broker, s", "{:,.3f}", None),
    ("failure_us_per_partition", "… for each partition, µs", "{:,.0f}", None),
    ("create_us_per_partition", "creating a partition, µs", "{:,.0f}", None),
    ("one_topic_ms", "one topic of ten partitions more, ms", "{:,.2f}", None),
    ("isr_change_us", "an ISR change, µs", "{:,.0f}", None),
    ("move_us", "beginning to move a partition, µs", "{:,.0f}", None),
    ("list_moves_ms", "listing 1,000 moves, ms", "{:,.2f}", None),
)
PLAN_ROWS = (
    ("fourth_replicas", "a fourth broker beside three: replicas to move", "{:,.0f}", None),
    ("fourth_s", "… planned in, s of processor time", "{:,.2f}", ("1,000,000", 60)),
    ("added_replicas", "one broker more beside 100: replicas to move", "{:,.0f}", None),
    ("added_s", "… planned in, s of processor time", "{:,.2f}", ("1,000,000", 60)),
    ("drained_replicas", "one of 100 is drained: replicas to move", "{:,.0f}", None),
    ("drained_s", "… planned in, s of processor time", "{:,.2f}", ("1,000,000", 60)),
    ("plan_peak_mb", "most memory of the process, with the cluster's model, MB", "{:,.0f}", None),
)
GROUP_ROWS = (
    ("members", "members", "{:,.0f}", None),
    ("member_kb", "memory of a member, with two offsets and its client here, KB", "{:,.1f}", None),
    ("join_us", "a member joins, µs", "{:,.0f}", None),
    ("heartbeats_to_settle", "heartbeats for each member until all have their partitions", "{:,.1f}", None),
    ("heartbeat_us", "a heartbeat at rest, µs", "{:,.1f}", None),
    ("commit_us", "a commit of two offsets, µs", "{:,.0f}", None),
)
Rows = Sequence[tuple[str, str, str, tuple[str, float] | None]]
MEASURES = {
    "controller": (scale_controller.measure, "partitions", CONTROLLER_ROWS),
    "plans": (scale_plans.measure, "partitions", PLAN_ROWS),
    "groups": (scale_groups.measure, "groups", GROUP_ROWS),
}
"""What is measured, with what its sizes count and its numbers mean."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--partitions", default=",".join(map(str, PARTITIONS)), help="sizes, with commas between")
    parser.add_argument("--groups", default=",".join(map(str, GROUPS)), help="numbers of groups, with commas between")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the numbers and the picture go")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        what, size = given.measure
        print(json.dumps(MEASURES[what][0](int(size), lambda step: print(step, file=sys.stderr, flush=True))))
        return
    wanted = {"partitions": given.partitions, "groups": given.groups}
    sizes = {what: [int(size) for size in wanted[name].split(",") if size] for what, (_, name, _) in MEASURES.items()}
    console = Console()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("", total=sum(map(len, sizes.values())))
        results: dict[str, list[Measured]] = {what: [] for what in MEASURES}
        for what, (_, name, _) in MEASURES.items():
            for size in sizes[what]:
                say = partial(say_step, progress, task, f"{size:,} {name}: ")
                results[what].append(in_own_process(what, size, say))
                progress.advance(task)
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for what, (_, name, rows) in MEASURES.items():
        if results[what]:
            console.print(table(name, results[what], rows))
    picture = draw(results, given.results)
    console.print(f"numbers: {given.results / 'results.json'}; picture: {picture}", highlight=False)


def say_step(progress: Progress, task: TaskID, told: str, step: str) -> None:
    progress.update(task, description=told + step)


def in_own_process(what: str, size: int, said: Callable[[str], None]) -> Measured:
    """So that memory is that of this size alone."""
    command = [sys.executable, "-m", "bench.scale", "--measure", what, str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            said(line.strip())
        output = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{''.join(lines)}")
    measured: Measured = json.loads(output)
    return measured


def table(name: str, results: Sequence[Measured], rows: Rows) -> Table:
    shown = Table(title=f"by the number of {name}")
    shown.add_column("")
    for result in results:
        shown.add_column(f"{result[name]:,.0f}", justify="right")
    shown.add_column("target", justify="right")
    for key, title, form, target in rows:
        wanted = "" if target is None else f"≤ {target[1]:,} at {target[0]}"
        shown.add_row(title, *(form.format(result[key]) for result in results), wanted)
    return shown


def draw(results: dict[str, list[Measured]], directory: Path) -> Path:
    """How the times and the memory grow, both axes logarithmic: a straight line of slope one is proportional."""
    import matplotlib as mpl
    from matplotlib import pyplot

    mpl.use("Agg")
    figure, (times, memory) = pyplot.subplots(1, 2, figsize=(10, 4.2))
    found = results["controller"]
    sizes = [result["partitions"] for result in found]
    for key, title in (
        ("snapshot_load_s", "load a snapshot"),
        ("snapshot_write_s", "write a snapshot"),
        ("failure_decided_s", "decide a broker's failure"),
        ("failure_followed_s", "follow that decision"),
    ):
        times.plot(sizes, [result[key] for result in found], "o-", label=title)
    times.plot(sizes, [result["one_topic_ms"] / 1000 for result in found], "s--", label="create one topic")
    plans = results["plans"]
    for key, title in (("fourth_s", "plan a fourth broker"), ("added_s", "plan broker 101")):
        times.plot([result["partitions"] for result in plans], [result[key] for result in plans], "^:", label=title)
    times.set_ylabel("seconds")
    for key, title in (("image_mb", "metadata"), ("peak_mb", "process, at most"), ("snapshot_mb", "snapshot")):
        memory.plot(sizes, [result[key] for result in found], "o-", label=title)
    memory.set_ylabel("MB")
    for axes in (times, memory):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("partitions")
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=8)
    figure.tight_layout()
    path = directory / "scale.svg"
    # Without a date and with fixed ids, equal results give equal files.
    mpl.rcParams["svg.hashsalt"] = "penstock"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    main()
