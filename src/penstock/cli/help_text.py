"""Renders the help of a command as text that fits the terminal. Pure.

Names of options are never shortened: a name that is too long for its column gets a line of its own, and the explanation
starts on the next line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

WIDTH_MAX = 100
"""Longer lines are hard to read."""
WIDTH_MIN = 40
LABEL_WIDTH_MAX = 30
"""A longer label gets a line of its own."""
INDENT = 2
GAP = 2
EXAMPLES_TITLE = "Examples:"
COMMENT = "  # "
"""Separates the command from its explanation in a line of the examples."""


class Row(NamedTuple):
    """One argument, option or command."""

    label: str
    text: str


class Section(NamedTuple):
    title: str
    rows: Sequence[Row]


class Page(NamedTuple):
    """The help of one command."""

    usage: str
    description: str
    sections: Sequence[Section]
    examples: str = ""
    """A line for each: the command, `COMMENT`, and what it does."""


def render(page: Page, width: int, *, styled: bool = False) -> str:
    """The page in lines of at most `width` columns; `styled` writes headings in bold."""
    width = max(WIDTH_MIN, min(width, WIDTH_MAX))
    lines = [*_wrapped(page.usage, width, "", " " * len("Usage: ")), ""]
    for paragraph in _paragraphs(page.description):
        lines += [*_wrapped(paragraph, width), ""]
    label_width = min(
        max((len(row.label) for section in page.sections for row in section.rows), default=0), LABEL_WIDTH_MAX
    )
    for section in page.sections:
        lines += [_heading(section.title, styled), *_rows(section.rows, label_width, width), ""]
    if page.examples:
        lines += [_heading(EXAMPLES_TITLE, styled), *_examples(page.examples, width), ""]
    return "\n".join(lines)


def example_lines(examples: Sequence[tuple[str, str]]) -> str:
    """Commands and their explanations, in the form of `Page.examples`."""
    return "\n".join(f"{command}{COMMENT}{meaning}" for command, meaning in examples)


def _heading(title: str, styled: bool) -> str:
    return f"\x1b[1m{title}\x1b[0m" if styled else title


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        if joined := " ".join(paragraph.split()):
            yield joined


def _rows(rows: Sequence[Row], label_width: int, width: int) -> Iterator[str]:
    column = INDENT + label_width + GAP
    for label, text in rows:
        start = " " * INDENT + label
        if len(label) > label_width or not text:
            yield start
            start = ""
        if text:
            yield from _wrapped(text, width, start.ljust(column), " " * column)


def _examples(text: str, width: int) -> Iterator[str]:
    """Each in one line if it fits; otherwise the explanation stands above the command, which can be copied as it is."""
    for line in text.splitlines():
        command, _, meaning = line.partition(COMMENT)
        if INDENT + len(line) <= width:
            yield " " * INDENT + line
        else:
            yield from _wrapped(f"# {meaning}", width, " " * INDENT, " " * INDENT + "# ")
            yield " " * INDENT + command


def _wrapped(text: str, width: int, first: str = "", other: str = "") -> list[str]:
    # Words are never cut, not even at hyphens: option names would be.
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=other, break_long_words=False, break_on_hyphens=False
    )
