"""The display of a run: a live view on a terminal, lines elsewhere, and the verdict."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.chaos.copies import Blame
from penstock.chaos.ledger import EXAMPLES_MAX, Counts, Verdict
from penstock.chaos.runner import LongPause, Result, Run
from penstock.chaos.transaction_account import TransactionVerdict

REFRESH_EVERY_S: Final = 0.2
LINE_EVERY_S: Final = 5.0
FAULTS_SHOWN: Final = 12


class LineScreen:
    """Prints each action, and the progress every few seconds."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._next_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, run: Run) -> None:
        now_s = time.monotonic()
        if run.load is not None and now_s >= self._next_s:
            self._next_s = now_s + LINE_EVERY_S
            self.line(run.elapsed_s, _progress(run.load.ledger.counts))
            if run.workload is not None:
                self.line(run.elapsed_s, run.workload.progress)

    def line(self, at_s: float, text: str) -> None:
        print(f"{at_s:7.1f} s  {text}", file=self._file, flush=True)


class LiveScreen:
    """A live table of the faults so far."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._next_s = 0.0

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, run: Run) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + REFRESH_EVERY_S
            self._live.update(render(run, now_s), refresh=True)

    def line(self, at_s: float, text: str) -> None:
        self._next_s = 0.0


def render(run: Run, now_s: float) -> RenderableType:
    parts: list[RenderableType] = []
    head = Text(" penstock chaos ", style="bold black on deep_sky_blue1")
    head.append(f"  seed {run.options.seed}  {run.elapsed_s:.0f} s", style="not bold default on default")
    parts.append(head)
    if run.options.seconds is not None:
        done_s = min(run.elapsed_s, run.options.seconds)
        parts.append(ProgressBar(total=run.options.seconds, completed=done_s, width=60))
    elif run.options.rounds is not None:
        total = run.options.rounds * max(1, len(run.faults))
        parts.append(ProgressBar(total=total, completed=len(run.applied), width=60))
    if run.load is not None:
        waiting_s = run.load.pauses.running_s(now_s)
        parts.append(Text(_progress(run.load.ledger.counts)))
        if run.workload is not None:
            parts.append(Text(run.workload.progress))
        parts.append(Text(f"longest current wait for an acknowledgement: {waiting_s:.1f} s", style="grey58"))
    parts.append(Text(run.doing, style="yellow"))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="grey58")
    for column in ("at", "fault", "", "longest pause", "in sync after"):
        table.add_column(column, justify="right" if column in ("at", "longest pause", "in sync after") else "left")
    for one in run.applied[-FAULTS_SHOWN:]:
        table.add_row(f"{one.at_s:.0f} s", one.name, one.what, _seconds(one.pause_s), _seconds(one.whole_after_s))
    parts.append(table)
    problems = run.load.problems if run.load is not None else []
    return Group(*parts, *(Text(problem, style="indian_red1") for problem in problems))


def summary(result: Result) -> list[str]:
    """The verdict as text."""
    lines = [
        f"{one.at_s:7.1f} s  {one.name}: {one.what or 'not applied'}"
        + (f"; longest pause {one.pause_s:.2f} s" if one.pause_s is not None else "")
        + (f"; in sync again {one.whole_after_s:.1f} s later" if one.whole_after_s is not None else "")
        for one in result.applied
    ]
    lines += [_explained(pause) for pause in result.long_pauses]
    if result.verdict is not None:
        counts = result.verdict.counts
        lines.append("")
        lines.append(
            f"{counts.sent:,} records sent, {counts.acknowledged:,} acknowledged, {counts.failed:,} given up, "
            f"{counts.stored:,} stored, {counts.read:,} read, {counts.read_again:,} read again, "
            f"{counts.commits:,} offsets committed (the longest commit took {result.longest_commit_s:.1f} s)"
        )
        for kind, number in sorted(result.verdict.violations.items()):
            lines.append(f"VIOLATED {kind}: {number:,}")
        lines += [f"  {one.kind}, partition {one.partition}: {one.text}" for one in result.verdict.examples]
        lines += _resent(result.verdict)
    if result.transactions is not None:
        lines += _transactions(result.transactions)
    lines += [f"PROBLEM {text}" for text in result.problems]
    if result.holds and result.verdict is not None and result.verdict.counts.resent:
        lines.append(
            "Every acknowledged record is stored, in order; no reader missed a record or saw one vanish. "
            "Some are stored twice because of the client, not the cluster."
        )
    elif result.holds:
        lines.append("Every acknowledged record is stored once, in order; no reader missed a record or saw one vanish.")
    else:
        lines.append(f"FAILED. Use seed {result.seed} to repeat the same faults.")
    return lines


def _transactions(verdict: TransactionVerdict) -> list[str]:
    lines = [
        f"{verdict.inputs:,} inputs led to {verdict.outputs:,} committed records in transactions: {verdict.commits:,} "
        f"commits acknowledged, {verdict.aborts:,} aborted, {verdict.kills} workers killed"
    ]
    lines += [f"VIOLATED {kind}: {number:,}" for kind, number in sorted(verdict.violations.items())]
    lines += [f"  {text}" for text in verdict.examples]
    if verdict.holds:
        lines.append(
            "Every input led to its records exactly once: no transaction is lost, repeated or torn, and none that was "
            "aborted is visible."
        )
    return lines


def _explained(pause: LongPause) -> str:
    where = ", ".join(map(str, pause.partitions))
    text = (
        f"{pause.start_s:7.1f} s  {pause.seconds:.1f} s without an acknowledgement on partition {where}; "
        f"faults: {', '.join(pause.faults) or 'none'}"
    )
    if pause.probe_s is not None:
        text += f"; another client waited {pause.probe_s:.1f} s of it"
    if pause.unable_s is not None:
        text += f"; for {pause.unable_s:.1f} s of it too few nodes could reach each other to acknowledge"
    return text


def _resent(verdict: Verdict) -> list[str]:
    """Records that the client resent under a new epoch, with the evidence."""
    runs = [run for run in verdict.copies if run.blame is Blame.CLIENT]
    if not runs:
        return []
    head = f"{verdict.counts.resent:,} records are stored twice because the client resent them under a new epoch:"
    lines = [head, *(f"  partition {run.first.partition}: {run}" for run in runs[:EXAMPLES_MAX])]
    if len(runs) > EXAMPLES_MAX:
        lines.append(f"  … and {len(runs) - EXAMPLES_MAX} more runs of records")
    return lines


def _progress(counts: Counts) -> str:
    return (
        f"{counts.sent:,} sent, {counts.acknowledged:,} acknowledged, {counts.pending:,} under way, "
        f"{counts.failed:,} given up, {counts.read:,} read"
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"
