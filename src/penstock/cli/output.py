"""Writing results and messages.

Results go to standard output: a table for a person, columns separated by tabs when the output is a pipe or a file,
JSON on request. Messages, questions and progress go to standard error, so that they never end up in a pipe. With
`--json` messages and errors are JSON too, one object per line: {"note": …} and {"error": {…}}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cli.errors import CliError

Cell = str | int | float | bool | None


def print_json(value: object, *, lines: bool = False) -> None:
    """One JSON document; with `lines` in one line, for a stream of several."""
    sys.stdout.write(_as_json(value, indent=None if lines else 2))
    if lines:
        sys.stdout.flush()


def write_json(path: Path, value: object) -> None:
    """One JSON document, in a file of its own."""
    path.write_text(_as_json(value, indent=2), encoding="utf-8")


def _as_json(value: object, *, indent: int | None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str) + "\n"


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Rows for a person, or for a pipe."""
    texts = [[_text(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in (head, *texts):
            sys.stdout.write("\t".join(line) + "\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for index, name in enumerate(head):
        numeric = bool(texts) and all(_is_number(row[index]) for row in texts)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in texts:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def print_line(text: str) -> None:
    """A line of a result."""
    sys.stdout.write(text + "\n")


def clear_screen() -> None:
    """For a table that is shown again in place of the last one."""
    sys.stdout.write("\x1b[H\x1b[2J")


_MESSAGES_AS_JSON: ContextVar[bool] = ContextVar("messages as JSON", default=False)


@contextmanager
def json_messages(wanted: bool) -> Iterator[None]:
    """Whether messages and errors are JSON while a command runs."""
    token = _MESSAGES_AS_JSON.set(wanted)
    try:
        yield
    finally:
        _MESSAGES_AS_JSON.reset(token)


def note(text: str) -> None:
    """A message beside the result."""
    if _MESSAGES_AS_JSON.get():
        text = json.dumps({"note": text}, ensure_ascii=False)
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_error(error: CliError) -> None:
    """What went wrong, and what to do next."""
    if _MESSAGES_AS_JSON.get():
        told = {"message": error.message, "code": error.code, "hint": error.hint or None}
        sys.stderr.write(json.dumps({"error": told}, ensure_ascii=False) + "\n")
        return
    sys.stderr.write(f"error: {error.message}\n")
    if error.hint:
        sys.stderr.write(f"hint: {error.hint}\n")


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_of(count: int) -> str:
    """A number of bytes for a person; 1 KB is 1,000 bytes."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").replace(".", "", 1).isdigit()
