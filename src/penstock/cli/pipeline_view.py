"""A run of a pipeline as a table, as a line, and as a heading."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.cli.output import Cell, size_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.pipeline.progress import QueryFigures
    from penstock.pipeline.status import RunStatus

HEAD = (
    "query", "state", "writes to", "batch", "read", "rows/s", "written", "lag", "bad", "late", "state size",
    "last batch", "ago",
)  # fmt: skip
_STYLES = {"running": "green", "finished": "green", "failed": "bold red", "lost": "bold red", "starting": "yellow"}


def heading(status: RunStatus) -> str:
    """`revenue: running, every 5 s, since 12:00:01 (process 4711, local[*])`."""
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
    parts = [f"{status.pipeline} {status.state}"]
    for query in status.queries.values():
        if query.batch is None:
            continue
        lag = "-" if query.lag is None else f"{query.lag:,}"
        parts.append(
            f"{query.name}: batch {query.batch}, {query.rows_read:,} read, {query.rows_per_second:,.0f}/s, lag {lag}"
        )
    return "; ".join(parts)


def view(status: RunStatus) -> RenderableType:
    """The table that moves."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=heading(status), title_justify="left", header_style="bold", expand=False)
    for index, name in enumerate(HEAD):
        table.add_column(name, justify="left" if index < 3 else "right", overflow="fold")
    for row, query in zip(rows_of(status)[1], status.queries.values(), strict=True):
        cells = [Text("-" if cell is None else str(cell)) for cell in row]
        cells[1] = Text(query.state, style=_STYLES.get(query.state, ""))
        table.add_row(*cells)
    return table


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
        f"{query.late:,}",
        f"{query.state_rows:,} rows, {size_of(query.state_bytes)}" if query.state_rows else None,
        f"{query.batch_ms / 1000:.1f} s" if query.batch_ms else None,
        None if ago is None else f"{ago:.0f} s",
    ]
