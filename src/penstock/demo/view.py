"""The live view: a snapshot as something rich can draw.

Pure: nothing here reads a clock or a broker. Made to fit 80 columns and 24 lines; wider terminals get two columns side
by side and longer histories, and smaller ones less: what matters least is left out until the rest fits.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.demo.drawing import bar, clock_time, euros, sparkline
from penstock.demo.pipelines import Stage
from penstock.demo.snapshot import Snapshot

WIDE: Final = 110
"""From so many columns on, all panels stand in pairs."""
NARROW: Final = 70
ROOMY: Final = 30
"""From so many lines on, nothing is left out."""
_BORDER: Final = "grey42"
_DIM: Final = "grey58"
_EVENTS: Final = "deep_sky_blue1"
_MONEY: Final = "spring_green2"
_LAG: Final = "orange1"
_BAD: Final = "indian_red1"


class Detail(IntEnum):
    """How much is shown."""

    ACCOUNTS = 0
    """What was sent and what became of it."""
    QUERIES = 1
    RESULTS = 2
    TIGHT = 3
    """Everything, but less of it."""
    ALL = 4


def render(snapshot: Snapshot, width: int, height: int) -> RenderableType:
    """The whole screen: with as much as fits."""
    roomy = height >= ROOMY or width >= WIDE
    console = Console(width=width, height=height, file=io.StringIO())
    for detail in sorted(Detail, reverse=True):
        screen = _screen(snapshot, width, detail)
        if (roomy or detail < Detail.ALL) and len(console.render_lines(screen)) <= height:
            break
    return screen


def _screen(snapshot: Snapshot, width: int, detail: Detail) -> RenderableType:
    parts: list[RenderableType] = [_head(snapshot, width)]
    if snapshot.notice:
        parts.append(Text(f" {snapshot.notice}", style="yellow", overflow="fold"))
    if detail is Detail.ACCOUNTS:
        return Group(*parts, _account_line(snapshot))
    half = width // 2
    is_wide = width >= WIDE and detail >= Detail.TIGHT
    pipeline = _pipeline(snapshot, width - half if is_wide else width, with_chart=detail is Detail.ALL)
    if is_wide:
        parts.append(_pair(_events(snapshot, half), pipeline))
    elif detail >= Detail.TIGHT:
        parts += [_events(snapshot, width), pipeline]
    else:
        parts += [_event_line(snapshot), pipeline]
    if detail >= Detail.RESULTS:
        sellers = _sellers(snapshot, width - half, count=5 if detail is Detail.ALL else 3)
        parts.append(_pair(_revenue(snapshot, half), sellers))
    parts += [_accounts(snapshot, with_reason=detail is Detail.ALL), _foot(snapshot)]
    return Group(*parts)


def _pair(left: RenderableType, right: RenderableType) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(left, right)
    return grid


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(
        content, title=f"[bold]{title}[/]", title_align="left", border_style=_BORDER, box=box.ROUNDED, padding=(0, 1)
    )


def _head(snapshot: Snapshot, width: int) -> RenderableType:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(" penstock demo ", style="bold black on deep_sky_blue1")
    line.append(f"  {snapshot.address}", style="bold")
    line.append(f"  {snapshot.engine}: " if width >= 100 else "  ", style=_DIM)
    line.append(snapshot.doing, style="bold" if snapshot.doing == "running" else "yellow")
    spent = clock_time(snapshot.elapsed_s)
    if snapshot.seconds is not None:
        spent += f" of {clock_time(snapshot.seconds)}"
    where = " in the shop" if width >= NARROW else ""
    right = Text(f"{snapshot.shop_time:%a %H:%M}{where}  {spent} ", style=_DIM, no_wrap=True)
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right")
    grid.add_row(line, right)
    return grid


def _table(*columns: tuple[str, str]) -> Table:
    """`<` or `>` for the alignment, then the head of the column."""
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style=_DIM, show_edge=False)
    for align, head in columns:
        table.add_column(head, justify="right" if align == ">" else "left", no_wrap=True)
    return table


def _events(snapshot: Snapshot, width: int) -> Panel:
    table = _table(("<", "topic"), (">", "sent"), (">", "per s"), ("<", "lately"))
    space = max(8, min(60, width - 42))
    for line in snapshot.topics:
        chart = Text(sparkline(line.history, space).rjust(space), style=_EVENTS)
        table.add_row(line.topic, f"{line.sent:,}", f"{line.per_s:,.0f}", chart)
    return _panel("events in", table)


def _event_line(snapshot: Snapshot) -> Text:
    line = Text(" ", no_wrap=True, overflow="ellipsis")
    for topic in snapshot.topics:
        line.append(f"{topic.topic} ", style=_DIM)
        line.append(f"{topic.sent:,}  ", style=_EVENTS)
    return line


def _pipeline(snapshot: Snapshot, width: int, *, with_chart: bool) -> Panel:
    table = _table(
        ("<", "query"), (">", "batch"), (">", "rows"), (">", "per s"), (">", "lag"), (">", "state"), (">", "took")
    )
    for stage in snapshot.stages:
        table.add_row(*_stage(stage))
    if not snapshot.stages:
        table.add_row(Text(snapshot.doing, style="yellow"), "", "", "", "", "", "")
    if not with_chart:
        return _panel("pipeline", table)
    space = max(8, min(100, width - 10))
    lag = Text("lag ", style=_DIM)
    lag.append(sparkline(snapshot.lag_history, space).rjust(space), style=_LAG)
    return _panel("pipeline", Group(table, lag))


def _stage(stage: Stage) -> Sequence[RenderableType]:
    lag = Text("" if stage.lag is None else f"{stage.lag:,}", style=_LAG if stage.lag else "")
    if stage.batch < 0:
        return [stage.name, Text("–", style=_DIM), "", "", lag, "", ""]
    return [
        stage.name,
        f"{stage.batch:,}",
        f"{stage.rows:,}",
        f"{stage.rows_per_s:,.0f}",
        lag,
        f"{stage.state_rows:,}" if stage.state_rows else "",
        f"{stage.took_ms:,} ms",
    ]


def _revenue(snapshot: Snapshot, width: int) -> Panel:
    hours = [snapshot.results.hours[hour] for hour in sorted(snapshot.results.hours)]
    lines = Text(no_wrap=True)
    if not hours:
        lines.append("waiting for the first hour to close …", style=_DIM)
        return _panel("revenue by the hour", Group(lines, Text(), Text()))
    shown = hours[-max(12, min(72, width - 8)) :]
    chart = sparkline([figures.revenue_cents for figures in shown], len(shown))
    lines.append(chart, style=_MONEY)
    last = hours[-1]
    ends = Text(f"{shown[0].hour:%a %H:%M} … {last.hour:%a %H:%M}", style=_DIM)
    ends.append(f" · {euros(snapshot.results.revenue_cents)}")
    figures = Text(no_wrap=True)
    figures.append(f"{last.hour:%H:%M} ", style=_DIM)
    figures.append(euros(last.revenue_cents), style=f"bold {_MONEY}")
    figures.append(f" from {last.orders:,} orders", style="")
    return _panel("revenue by the hour", Group(lines, ends, figures))


def _sellers(snapshot: Snapshot, width: int, *, count: int) -> Panel:
    best, results = snapshot.results.best, snapshot.results
    visits = Text(style=_DIM, no_wrap=True)
    if results.visits:
        visits.append(f"{results.visits:,} visits", style="bold white")
        visits.append(f" · {results.visit_clicks / results.visits:.1f} clicks")
        if width >= 50:
            visits.append(f" · {results.visit_minutes / results.visits:.1f} min")
        visits.append(f" · {100 * results.visits_with_order / results.visits:.0f} % buy")
    else:
        visits.append("no visit has ended yet")
    if best is None:
        return _panel("best sellers", Group(Text("…", style=_DIM), Text(), visits))
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, ratio=1)
    space = max(4, width - 34)
    for seller in best.top[:count]:
        length = bar(seller.revenue_cents, best.top[0].revenue_cents, space)
        table.add_row(seller.product, euros(seller.revenue_cents), Text(length, style=_MONEY))
    return _panel(f"best sellers of {best.hour:%a %H:%M}", Group(table, visits))


def _accounts(snapshot: Snapshot, *, with_reason: bool) -> Panel:
    content: list[RenderableType] = [_account_line(snapshot)]
    if with_reason and snapshot.results.reasons:
        ((reason, count),) = snapshot.results.reasons.most_common(1)
        content.append(Text(f"{count:,} × {reason}", style=_DIM, no_wrap=True, overflow="ellipsis"))
    return _panel("every event is accounted for", Group(*content))


def _account_line(snapshot: Snapshot) -> Text:
    outcome = snapshot.outcome
    line = Text.assemble((f"{snapshot.sent.total:,}", "bold white"), (" sent", _DIM))
    for sign, value, name, style in (
        ("=", outcome.processed, "processed", _MONEY),
        ("+", outcome.dead_lettered, "dead letters", _BAD),
        ("+", outcome.late, "late", _LAG),
        ("+", outcome.duplicates, "duplicates", "medium_purple1"),
        ("+", snapshot.under_way, "under way", "grey70"),
    ):
        line.append(f" {sign} ", style=_DIM)
        line.append(f"{value:,}", style=f"bold {style}")
        line.append(f" {name}", style=_DIM)
    return line


def _foot(snapshot: Snapshot) -> Text:
    foot = Text(" ", style=_DIM, no_wrap=True, overflow="ellipsis")
    where = "" if snapshot.address.endswith(":9092") else f" -b {snapshot.address}"
    foot.append("elsewhere: ")
    foot.append(f"penstock consume shop.revenue --from-beginning{where}", style="bold")
    foot.append("   Ctrl-C ends")
    return foot
