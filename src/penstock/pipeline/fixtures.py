"""Fixture files for `penstock pipeline test`: rows that go in, and rows that must come out. Pure.

    # Comments begin with '#'.
    test a window has the sum of its orders

    given orders
    {"order_id": "1", "amount": 1.50, "ordered_at": "2026-01-31T12:00:10Z"}
    {"order_id": "2", "amount": 2.50, "ordered_at": "2026-01-31T12:00:20Z"}
    not json

    expect revenue
    minute               | amount | orders
    2026-01-31T12:00:00Z | 4.00   | 2

    expect orders.dead_letters
    {"value": "not json"}

A section holds either JSON lines or a table with `|` between its cells. In a table each cell is JSON if it can be read
as JSON and text if it cannot; an empty cell is null. A line of `given` that is no JSON object is a record with exactly
that value, so that a test can send records that do not parse.

A second `given` of the same stream begins another micro-batch, which is how a test sends late rows. After the last
micro-batch the watermark moves past all windows, so that all results are final; the line `windows stay open` in a test
prevents that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path

from penstock.pipeline.model import PipelineError, Place, Problem

SUFFIX = ".test"
STAY_OPEN = "windows stay open"
_SECTION = re.compile(r"(test|given|expect)(?:\s+(.*?))?\s*:?\s*")
_RULE = re.compile(r"[\s|:=+-]+")


@dataclass(frozen=True)
class FixtureRow:
    line: int
    text: str
    """The row as JSON text, or the value of the record where `fields` is None."""
    fields: Mapping[str, object] | None
    """By column; numbers with decimals are `Decimal`, so that 1.50 stays 1.50."""


@dataclass(frozen=True)
class Expectation:
    """The rows that one query writes."""

    name: str
    line: int
    rows: tuple[FixtureRow, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that any of the rows names."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.fields or ()))


@dataclass(frozen=True)
class Case:
    """One test."""

    name: str
    line: int
    batches: tuple[Mapping[str, tuple[FixtureRow, ...]], ...]
    """One mapping for each micro-batch: rows by the stream or table that they are given to."""
    expectations: tuple[Expectation, ...]
    closes_windows: bool = True

    @property
    def given_names(self) -> set[str]:
        return {name for batch in self.batches for name in batch}


def fixture_paths(pipeline: Path) -> list[Path]:
    """The fixture files of a pipeline file: `revenue.test` and `revenue.*.test` beside `revenue.sql`."""
    own = pipeline.with_suffix(SUFFIX)
    others = sorted(one for one in pipeline.parent.glob(f"*{SUFFIX}") if one.name.startswith(f"{pipeline.stem}."))
    return [own, *(one for one in others if one != own)] if own.exists() else others


def read_cases(path: Path) -> list[Case]:
    """The tests of a file; PipelineError names the line that is wrong."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PipelineError(Problem(f"cannot read {path}: {error.strerror}"), path=path) from None
    except UnicodeDecodeError:
        raise PipelineError(Problem(f"{path} is not a text file in UTF-8"), path=path) from None
    return parse_cases(text, path)


def parse_cases(text: str, path: Path) -> list[Case]:
    drafts: list[_Draft] = []
    section: _Section | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _SECTION.fullmatch(stripped)
        if found and found[1] == "test":
            drafts.append(_Draft(found[2] or path.stem, number))
            section = None
            continue
        if not drafts:
            drafts.append(_Draft(path.stem, number))
        if found:
            section = drafts[-1].open(found[1], found[2] or "", number, path)
        elif stripped.lower() == STAY_OPEN:
            drafts[-1].closes_windows = False
        elif section is None:
            fix = f"begin a section with `given STREAM` or `expect QUERY`; or write `{STAY_OPEN}`"
            raise PipelineError(Problem(f"this row belongs to no section: {stripped}", fix, Place(number)), path=path)
        else:
            section.lines.append((number, stripped))
    return [draft.finish(path) for draft in drafts]


def json_text(value: object) -> str:
    """A value of a fixture as JSON; as `json.dumps`, but a Decimal keeps its digits."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)}: {json_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


@dataclass
class _Section:
    kind: str
    name: str
    line: int
    lines: list[tuple[int, str]] = field(default_factory=list)

    def rows(self, path: Path) -> tuple[FixtureRow, ...]:
        is_table = self.lines and self._is_table()
        rows = tuple(self._table() if is_table else (_row(number, text) for number, text in self.lines))
        for row in rows:
            if self.kind == "expect" and row.fields is None:
                fix = 'write a JSON object such as {"id": 1}, or a table with | between its cells'
                raise PipelineError(Problem(f"this is not a row: {row.text}", fix, Place(row.line)), path=path)
        return rows

    def _is_table(self) -> bool:
        return all("|" in text and not text.startswith("{") for _, text in self.lines)

    def _table(self) -> Iterator[FixtureRow]:
        is_framed = self.lines[0][1].startswith("|")
        names = _cells(self.lines[0][1], is_framed)
        for number, text in self.lines[1:]:
            if _RULE.fullmatch(text):
                continue  # the line below the head, as Markdown has it
            cells = zip_longest(names, _cells(text, is_framed)[: len(names)], fillvalue="")
            fields = {name: _cell(cell) for name, cell in cells}
            yield FixtureRow(number, json_text(fields), fields)


@dataclass
class _Draft:
    name: str
    line: int
    sections: list[_Section] = field(default_factory=list)
    closes_windows: bool = True

    def open(self, kind: str, name: str, line: int, path: Path) -> _Section:
        if not name or " " in name:
            what = "a stream or table" if kind == "given" else "a query"
            raise PipelineError(Problem(f"{kind} is followed by the name of {what}", "", Place(line)), path=path)
        self.sections.append(_Section(kind, name, line))
        return self.sections[-1]

    def finish(self, path: Path) -> Case:
        batches: list[dict[str, tuple[FixtureRow, ...]]] = [{}]
        expectations = []
        for section in self.sections:
            rows = section.rows(path)
            if section.kind == "expect":
                expectations.append(Expectation(section.name, section.line, rows))
                continue
            if section.name in batches[-1]:
                batches.append({})
            batches[-1][section.name] = rows
        if not expectations:
            fix = "add a section `expect QUERY` with the rows that the query must write; none means no rows"
            raise PipelineError(Problem(f"the test {self.name!r} expects nothing", fix, Place(self.line)), path=path)
        return Case(self.name, self.line, tuple(batches), tuple(expectations), self.closes_windows)


def _row(number: int, text: str) -> FixtureRow:
    value = _json(text)
    if isinstance(value, dict):
        return FixtureRow(number, text, value)
    # A JSON string is its content: so a value may begin with '#' or look like the head of a section.
    return FixtureRow(number, value if isinstance(value, str) else text, None)


def _cells(line: str, is_framed: bool) -> list[str]:
    """The cells of a line; a table may have a `|` before its first and after its last column."""
    inner = line.removeprefix("|").removesuffix("|") if is_framed else line
    return [cell.strip() for cell in inner.split("|")]


def _cell(text: str) -> object:
    if not text:
        return None
    value = _json(text)
    return text if value is _NOT_JSON else value


_NOT_JSON = object()


def _json(text: str) -> object:
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return _NOT_JSON
