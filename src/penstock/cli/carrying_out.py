"""Plans from the command line: shown, asked about, written to a file, carried out with a progress bar."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.balance import (
    STEP_SHARE,
    ClusterModel,
    ExecutionFailed,
    Executor,
    Plan,
    PlanFile,
    PlanRefused,
    Progress,
    Report,
    assess,
    planfile,
)
from penstock.cli import exit_codes, plan_view
from penstock.cli.asking import confirm
from penstock.cli.durations import parse_duration_ms
from penstock.cli.errors import CliError
from penstock.cli.output import note, plural, print_json, size_of
from penstock.cli.sizes import parse_size

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster
    from penstock.ops.cluster_port import ProtocolPort

FILE_BYTES_MAX = 1_000_000_000
DEFAULT_THROTTLE = "50MB"
DEFAULT_STEP = f"{STEP_SHARE:.0%}"
DEFAULT_PATIENCE = "5m"
LINE_EVERY_S = 10.0

_HOW = "How it is done"
Throttle = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        rich_help_panel=_HOW,
        help="Limit for the traffic of each broker per second, such as 20MB; `none` for no limit.",
    ),
]
Step = Annotated[
    str, typer.Option(metavar="SHARE", rich_help_panel=_HOW, help="The part of the plan to move at a time: 10%.")
]
Patience = Annotated[
    str,
    typer.Option(
        metavar="SPAN", rich_help_panel=_HOW, help="Cancel a step after this long without progress: 5m, PT5M."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AllMoves = Annotated[bool, typer.Option("--all-moves", help="Show all moves, not only the first ones.")]
PlanPath = Annotated[
    Path | None,
    typer.Option(
        "--plan", metavar="FILE", help="Write the plan to this file; a new file in this directory if not given."
    ),
]


@contextmanager
def port_to(cluster: Cluster, doing: str) -> Iterator[ProtocolPort]:
    """The cluster for planning and moving; refusals become errors of the command."""
    from penstock.cli.protocol import reach
    from penstock.ops.cluster_port import ProtocolPort

    try:
        with reach(cluster, doing) as known:
            yield ProtocolPort(known, cluster.timeout_s)
    except PlanRefused as refusal:
        raise CliError(refusal.reason, exit_codes.REFUSED, refusal.hint) from None
    except ExecutionFailed as failure:
        raise CliError(failure.reason, exit_codes.FAILED, failure.hint) from None


def parse_throttle(text: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    try:
        rate = parse_size(text)
    except ValueError as error:
        raise CliError(f"--throttle: {error}", exit_codes.USAGE) from None
    if rate <= 0:
        raise CliError("--throttle 0 would never finish", exit_codes.USAGE, "say `none` for no limit")
    return rate


def parse_share(text: str, option: str) -> float:
    """`10%` or `0.1`."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / 100 if text.strip().endswith("%") else float(number)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise CliError(f"{option} {text}: this is no share, such as 10%", exit_codes.USAGE)
    return share


def parse_span_s(text: str, option: str) -> float:
    try:
        span_ms = parse_duration_ms(text)
    except ValueError as error:
        raise CliError(f"{option}: {error}", exit_codes.USAGE) from None
    if span_ms <= 0:
        raise CliError(f"{option} {text}: this is no time at all", exit_codes.USAGE)
    return span_ms / 1000


def read_plan(path: Path, model: ClusterModel) -> PlanFile:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise CliError(f"{path} is larger than any plan", exit_codes.REFUSED)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}", exit_codes.USAGE) from None
    except UnicodeDecodeError:
        raise CliError(f"{path}: this is no plan, and no text", exit_codes.REFUSED) from None
    return planfile.read(text, model)


def write_plan(path: Path, plan: PlanFile) -> None:
    """In one piece: a crash leaves the old file or the new one."""
    beside = path.with_name(path.name + ".new")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(planfile.write(plan))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}", exit_codes.FAILED) from None


def new_path(purpose: str) -> Path:
    """A file that is not there yet."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = Path(f"penstock-{purpose}-{stamp}.json")
    number = 1
    while path.exists():
        number += 1
        path = Path(f"penstock-{purpose}-{stamp}-{number}.json")
    return path


class Proposal:
    """A plan that a command made, on its way to being carried out."""

    def __init__(
        self,
        model: ClusterModel,
        plan: Plan,
        *,
        made_by: str,
        throttle: int | None,
        step: float,
        leaving: tuple[int, ...] = (),
    ) -> None:
        self.model = model
        self.plan = plan
        self.findings = assess(model, plan.moves, leaving)
        self.file = PlanFile(
            plan.moves,
            cluster=model.cluster_id,
            made_by=made_by,
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            throttle=throttle,
            step=step,
            leaving=leaving,
        )

    def as_json(self) -> dict[str, object]:
        return plan_view.as_json(self.model, self.plan, self.findings, self.file.throttle, self.file.step)

    def show(self, *, all_moves: bool = False) -> None:
        plan_view.show(self.model, self.plan, self.findings, self.file.throttle, self.file.step, all_moves=all_moves)

    def require_fit(self) -> None:
        """The cluster is well enough for the plan."""
        stops = [one for one in self.findings if one.stops]
        if stops:
            raise PlanRefused("; ".join(one.text for one in stops), "; ".join(one.hint for one in stops if one.hint))


def carry_out(port: ProtocolPort, plan: PlanFile, path: Path, patience_s: float) -> Report:
    """Executes the plan in that file, with progress; an interruption says how to go on."""
    with progress_bar() as (show, say):
        executor = Executor(
            port,
            plan,
            save=lambda changed: write_plan(path, changed),
            on_progress=show,
            on_note=say,
            patience_s=patience_s,
        )
        try:
            return executor.run()
        except KeyboardInterrupt:
            _wind_down(executor, path)
            raise
        except CliError:
            raise
        except (PlanRefused, ExecutionFailed):
            raise
        except Exception:
            note(f"The plan is in {path}. {_HOW_ON.format(path=path)}")
            raise


_HOW_ON = (
    "`penstock reassign execute {path}` resumes it, `penstock reassign cancel {path}` cancels it; "
    "`penstock reassign verify {path}` tells how far it is."
)


def _wind_down(executor: Executor, path: Path) -> None:
    """After Ctrl-C: reports which moves continue in the cluster, and removes the throttles if none does."""
    try:
        counts = executor.counts()
        if counts.moving:
            note(
                f"Interrupted. {plural(counts.moving, 'move')} that had begun go on in the cluster, throttled as "
                f"before; {counts.done:,} are done, {counts.pending:,} not begun."
            )
        else:
            executor.release()
            note(f"Interrupted. Nothing is moving, and nothing is throttled; {counts.done:,} moves are done.")
    except Exception as error:
        note(f"Interrupted, and the progress is unknown because the cluster did not answer: {error}")
    note(_HOW_ON.format(path=path))


def report_json(report: Report, path: Path | None) -> dict[str, object]:
    return {
        "moved": report.moved,
        "already_done": report.already_done,
        "steps": report.steps,
        "copied_bytes": report.copied_bytes,
        "seconds": round(report.seconds, 1),
        "latency_before_ms": round(report.latency_before_ms, 2),
        "latency_after_ms": round(report.latency_after_ms, 2),
        "plan": None if path is None else str(path),
    }


def print_report(report: Report, path: Path, *, json: bool) -> None:
    if json:
        print_json(report_json(report, path))
        return
    rate = report.copied_bytes / report.seconds if report.seconds else 0.0
    note(
        f"Done: {plural(report.moved, 'move')} in {plural(report.steps, 'step')}, {size_of(report.copied_bytes)} "
        f"in {plan_view.span_of(report.seconds)} ({size_of(int(rate))}/s). All replicas are in sync, "
        f"throttles are gone; brokers answer in {report.latency_after_ms:.1f} ms, "
        f"before in {report.latency_before_ms:.1f} ms."
    )


def ask(question: str, *, yes: bool) -> None:
    if not yes:
        confirm(question)


@contextmanager
def progress_bar() -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """Shows progress: a bar on a terminal, otherwise a line now and then. Can print notes beside it."""
    if not sys.stderr.isatty():
        yield _Lines().show, note
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
    with Bar(*columns, console=console, transient=True) as shown:
        task = shown.add_task("moving", total=None, told="")

        def show(progress: Progress) -> None:
            share = _share(progress)
            shown.update(
                task,
                completed=share,
                total=1.0,
                description=f"step {progress.step} of {progress.steps}",
                told=_told(progress),
            )

        yield show, lambda text: console.print(text, markup=False, highlight=False)


class _Lines:
    def __init__(self) -> None:
        self._step = 0
        self._at_s = 0.0

    def show(self, progress: Progress) -> None:
        import time

        now_s = time.monotonic()
        if progress.step == self._step and now_s - self._at_s < LINE_EVERY_S:
            return
        self._step, self._at_s = progress.step, now_s
        note(f"step {progress.step} of {progress.steps}: {_told(progress)}")


def _share(progress: Progress) -> float:
    if progress.total_bytes:
        return min(1.0, progress.copied_bytes / progress.total_bytes)
    return progress.moved / progress.moves if progress.moves else 1.0


def _told(progress: Progress) -> str:
    left = "" if progress.left_s is None else f", {plan_view.span_of(progress.left_s)} left"
    return (
        f"{progress.moved:,} of {progress.moves:,} partitions, {size_of(progress.copied_bytes)} of "
        f"{size_of(progress.total_bytes)}, {size_of(int(progress.rate))}/s{left}"
    )
