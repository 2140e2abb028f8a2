"""Tells what was measured: a table for people, a JSON file with every sample for whoever wants to check."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.model import Metric, Outcome, Side, Target
from bench.runner import Bench
from support import apache_kafka

RESULTS = Path(__file__).with_name("results")
QUICK_RESULTS = Path(__file__).with_name("work") / "quick-results"


def print_outcome(console: Console, outcome: Outcome) -> None:
    """One case: a row for each metric, both sides and the ratio, the target and whether it is reached."""
    sides = [side for side in outcome.case.sides if side in outcome.samples]
    table = Table(title=f"{outcome.case.name}: {outcome.case.title}", title_justify="left", title_style="bold")
    table.add_column("median", style="dim")
    for side in sides:
        table.add_column(side.value, justify="right")
        if side is not Side.PENSTOCK and Side.PENSTOCK in sides:
            table.add_column("ratio", justify="right", style="cyan")
    table.add_column("target")
    for metric in outcome.case.metrics:
        row = [f"{metric.title}, {metric.unit}" if metric.unit else metric.title]
        for side in sides:
            row.append(_number(outcome.median(side, metric.name), metric))
            if side is not Side.PENSTOCK and Side.PENSTOCK in sides:
                row.append(_ratio(outcome, metric.name, side))
        row.append("\n".join(_verdict(outcome, one) for one in outcome.case.targets if one.metric == metric.name))
        table.add_row(*row)
    console.print(table)
    for side, reason in outcome.failures.items():
        console.print(f"[red]{side.value} failed:[/red] {reason}", highlight=False)


def print_targets(console: Console, outcomes: Sequence[Outcome]) -> None:
    """All aims of the run at a glance."""
    table = Table(title="targets", title_justify="left", title_style="bold")
    for heading in ("case", "metric", "aim", "reached"):
        table.add_column(heading)
    for outcome in outcomes:
        titles = {metric.name: metric.title for metric in outcome.case.metrics}
        for target in outcome.case.targets:
            table.add_row(outcome.case.name, titles[target.metric], str(target), _verdict(outcome, target, aim=False))
    if table.row_count:
        console.print(table)


def write_outcome(outcome: Outcome, bench: Bench, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{outcome.case.name}.json"
    path.write_text(json.dumps(_as_json(outcome, bench), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def machine() -> dict[str, object]:
    """What the figures depend on and can be told without naming the machine."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "load_average_1min": os.getloadavg()[0],
    }


def _as_json(outcome: Outcome, bench: Bench) -> Mapping[str, object]:
    return {
        "case": outcome.case.name,
        "title": outcome.case.title,
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", "-m", _module(), *sys.argv[1:]]),
        "quick": bench.options.quick,
        "machine": machine(),
        "versions": _versions(bench),
        "settings": outcome.settings,
        "metrics": {
            metric.name: {
                "title": metric.title,
                "unit": metric.unit,
                "better": metric.better.name.lower(),
                "median": {side.key: outcome.median(side, metric.name) for side in outcome.samples},
                "median_ratio": {
                    side.key: outcome.ratio(metric.name, side) for side in outcome.samples if side is not Side.PENSTOCK
                },
            }
            for metric in outcome.case.metrics
        },
        "targets": [_target_as_json(outcome, target) for target in outcome.case.targets],
        "samples": {side.key: samples for side, samples in outcome.samples.items()},
        "failures": {side.key: _first_and_last_line(reason) for side, reason in outcome.failures.items()},
    }


def _target_as_json(outcome: Outcome, target: Target) -> Mapping[str, object]:
    reached = outcome.reached(target)
    return {
        "metric": target.metric,
        "aim": str(target),
        "bound": target.bound,
        "against": target.against.key if target.against else None,
        "reached": reached,
        "met": None if reached is None else target.met(reached),
    }


def _versions(bench: Bench) -> Mapping[str, str]:
    return {
        "penstock": _package_version("penstock"),
        "commit": _commit(),
        "python": platform.python_version(),
        "uvloop": _package_version("uvloop"),
        "apache_kafka": apache_kafka.VERSION if Side.KAFKA in bench.options.sides else "not run",
        "java": _java_version() if Side.KAFKA in bench.options.sides else "not run",
        "librdkafka": bench.client.librdkafka_version,
        "client": bench.client_kind,
    }


def _number(value: float | None, metric: Metric) -> str:
    return "–" if value is None else f"{value:,.{metric.digits}f}"


def _ratio(outcome: Outcome, metric: str, side: Side) -> str:
    ratios = outcome.ratios(metric, side)
    if not ratios:
        return "–"
    spread = f" [dim]({min(ratios):.2f}–{max(ratios):.2f})[/dim]" if len(ratios) > 1 else ""
    return f"{outcome.ratio(metric, side):.2f}{spread}"


def _verdict(outcome: Outcome, target: Target, *, aim: bool = True) -> str:
    reached = outcome.reached(target)
    if reached is None:
        return f"{target} [dim]?[/dim]" if aim else "[dim]not measured[/dim]"
    mark = "[green]✓[/green]" if target.met(reached) else "[red]✗[/red]"
    return f"{target} {mark}" if aim else f"{reached:.2f} {mark}"


def _first_and_last_line(text: str) -> str:
    """What happened and how it ended, without the log between, which is full of paths of this machine."""
    lines = text.strip().splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"


def _module() -> str:
    stem = Path(sys.argv[0]).stem
    return "bench" if stem == "__main__" else f"bench.{stem}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _java_version() -> str:
    told = subprocess.run([apache_kafka.java(), "-version"], capture_output=True, text=True, check=False, timeout=60)
    return (told.stderr.splitlines() or ["unknown"])[0]
