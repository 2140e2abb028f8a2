"""A run of a pipeline as a table, as a line, and as a heading.

The table has thirteen columns, and a terminal that is too narrow for them shows those that matter most.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.cli.output import Cell, size_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

    from penstock.pipeline.progress import QueryFigures
    from penstock.pipeline.status import RunStatus

HEAD = (
    "query", "state", "writes to", "batch", "read", "rows/s", "written", "lag", "bad", "late", "state size",
    "last batch", "ago",
)  # fmt: skip
_BY_IMPORTANCE = (
    "query", "lag", "state", "rows/s", "bad", "late", "read", "written", "batch", "last batch", "state size",
    "writes to", "ago",
)  # fmt: skip
_AROUND_A_CELL = 3
"""A space before it, one after it, and a line."""
_STYLES = {"running": "green", "finished": "green", "failed": "bold red", "lost": "bold red", "starting": "yellow"}


def heading(status: RunStatus) -> str:
    """`revenue: running, every 5 s, since 12:00:01 (process 4711, local[*])`."""
    if status.doing:
        return f"{status.pipeline}: {status.doing}"
    words = [f"{status.pipeline}: {status.state}", status.trigger]
    if status.started:
        words.append(f"since {status.started[:19].replace('T', ' ')} UTC")
    words.append(f"process {status.pid}")
    if status.master:
        words.append(status.master)
    if status.metrics:
        words.append(f"metrics at http://{status.metrics}/metrics")
    return ", ".join(words)


def rows_of(status: RunStatus) -> tuple[tuple[str, ...], list[list[Cell]]]:
    """A row for each query."""
    now = datetime.now(UTC)
    return HEAD, [_row(query, now) for query in status.queries.values()]


def line_of(status: RunStatus) -> str:
    """One line, for logs."""
    parts = [f"{status.pipeline}: {status.doing}" if status.doing else f"{status.pipeline} {status.state}"]
    for query in status.queries.values():
        if query.batch is None:
            continue
        lag = "-" if query.lag is None else f"{query.lag:,}"
        parts.append(
            f"{query.name}: batch {query.batch}, {query.rows_read:,} read, {query.rows_per_second:,.0f}/s, lag {lag}"
        )
    return "; ".join(parts)


class StatusView:
    """The table that moves, as wide as the terminal allows."""

    def __init__(self, status: RunStatus) -> None:
        self._status = status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(heading(self._status), style="italic")
        yield self._table(options.max_width)
        if self._status.error:
            yield Text(f"error: {self._status.error}", style=_STYLES["failed"])

    def _table(self, width: int) -> Table:
        from rich.table import Table
        from rich.text import Text

        head, rows = rows_of(self._status)
        texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
        table = Table(header_style="bold", expand=False)
        shown = columns_for(width, texts)
        for index in shown:
            table.add_column(head[index], justify="left" if index < 3 else "right", overflow="fold")
        state = HEAD.index("state")
        for row in texts:
            styles = {state: _STYLES.get(row[state], "")}
            table.add_row(*(Text(row[index], style=styles.get(index, "")) for index in shown))
        return table


def columns_for(width: int, rows: Sequence[Sequence[str]]) -> list[int]:
    """The columns that there is room for, by importance; in their own order."""
    shown: list[int] = []
    used = 1
    for name in _BY_IMPORTANCE:
        index = HEAD.index(name)
        used += max(len(name), *(len(row[index]) for row in rows), 0) + _AROUND_A_CELL
        if shown and used > width:
            break
        shown.append(index)
    return sorted(shown)


def _row(query: QueryFigures, now: datetime) -> list[Cell]:
    from penstock.pipeline.progress import seconds_since

    ago = seconds_since(query.updated, now)
    return [
        query.name,
        query.state,
        query.writes,
        query.batch,
        f"{query.rows_read:,}",
        f"{query.rows_per_second:,.0f}",
        f"{query.rows_written:,}",
        None if query.lag is None else f"{query.lag:,}",
        f"{query.bad:,}",
        f"≥{query.late:,}" if query.late else "0",
        f"{query.state_rows:,} rows, {size_of(query.state_bytes)}" if query.state_rows else None,
        f"{query.batch_ms / 1000:.1f} s" if query.batch_ms else None,
        None if ago is None else f"{ago:.0f} s",
    ]
