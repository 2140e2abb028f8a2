"""The statements of a SQL pipeline file, read one by one; what they mean together is `sql_file`'s to say.

SET name = value
CREATE STREAM name (column TYPE, …, WATERMARK FOR column DELAY OF 10 MINUTES) WITH (word = value, …)
CREATE STREAM name WITH (…) AS SELECT …
CREATE TABLE name (…) PARTITIONED BY (…) WITH (…)
CREATE TABLE name PARTITIONED BY (…) WITH (…) AS SELECT …
CREATE VIEW name AS SELECT …
INSERT INTO name WITH (…) SELECT …
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.pipeline.columns import read_columns
from penstock.pipeline.model import Column, PipelineError, Place, Problem, Sql, Watermark, nearest
from penstock.pipeline.options import Given
from penstock.pipeline.sql_lexer import Cursor, Kind, Text, split_statements, tokens_of
from penstock.pipeline.sql_relations import relations_of

STATEMENTS = ("CREATE", "INSERT", "SET")
_QUERY = ("SELECT", "WITH", "FROM", "VALUES")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_STRING_OR_COMMENT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?P<comment>--[^\n]*|/\*.*?\*/)"""
_IN_SQL = re.compile(f"{_STRING_OR_COMMENT}|{_VARIABLE.pattern}", re.DOTALL)

Lookup = Callable[[str], str | None]
"""What a variable stands for, or None."""


@dataclass(frozen=True)
class SetStatement:
    name: str
    given: Given


@dataclass(frozen=True)
class CreateStatement:
    kind: str
    """STREAM, TABLE or VIEW."""
    name: str
    place: Place
    columns: tuple[Column, ...] = ()
    watermark: Watermark | None = None
    words: dict[str, Given] = field(default_factory=dict)
    query: Sql | None = None
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class InsertStatement:
    target: str
    place: Place
    words: dict[str, Given]
    query: Sql
    reads: tuple[str, ...] = ()


Statement = SetStatement | CreateStatement | InsertStatement


def read_statements(text: str, lookup: Lookup) -> tuple[list[Statement], list[Problem]]:
    """All statements that can be read, and the problems of those that cannot."""
    source = Text(text)
    try:
        tokens = tokens_of(source)
    except PipelineError as error:
        return [], list(error.problems)
    statements: list[Statement] = []
    problems: list[Problem] = []
    for part in split_statements(tokens):
        reader = _Reader(Cursor(part, source), text, lookup, problems)
        try:
            statements.append(reader.statement())
        except PipelineError as error:
            problems += error.problems
    return statements, problems


class _Reader:
    """Reads one statement."""

    def __init__(self, cursor: Cursor, text: str, lookup: Lookup, problems: list[Problem]) -> None:
        self._cursor = cursor
        self._text = text
        self._lookup = lookup
        self._problems = problems

    def statement(self) -> Statement:
        cursor = self._cursor
        if cursor.take_word("SET"):
            return self._set()
        if cursor.take_word("CREATE"):
            return self._create()
        if cursor.take_word("INSERT"):
            return self._insert()
        if cursor.token.is_word(*_QUERY):
            cursor.fail(
                "a query alone goes nowhere",
                "write CREATE TABLE name AS before it, or INSERT INTO name",
                cursor.token,
            )
        return cursor.fail(
            f"{cursor.token} begins no statement of a pipeline{nearest(cursor.token.text, STATEMENTS)}",
            "a pipeline file has CREATE STREAM, CREATE TABLE, CREATE VIEW, INSERT INTO and SET, each ended by ;",
            cursor.token,
        )

    def _set(self) -> SetStatement:
        cursor = self._cursor
        place = cursor.place
        name = self._dotted("the name of a setting")
        if not cursor.take_symbol("="):
            cursor.fail("expected =", f"write SET {name} = 'value'")
        given = self._value(place)
        self._expect_end("; after the setting")
        return SetStatement(name, given)

    def _create(self) -> CreateStatement:
        cursor = self._cursor
        if cursor.token.is_word("OR", "TEMPORARY", "TEMP", "IF", "EXTERNAL"):
            cursor.fail(
                f"CREATE {cursor.token} has no meaning here",
                "a pipeline file says what there is, it does not change a catalog: CREATE STREAM, TABLE or VIEW",
                cursor.token,
            )
        kind = cursor.expect_word("STREAM", "TABLE", "VIEW", fix="write CREATE STREAM, CREATE TABLE or CREATE VIEW")
        name = cursor.expect_name("a name")
        if cursor.token.is_symbol("."):
            cursor.fail("names have no dots here", "streams, tables and views are known by one word", cursor.token)
        columns: tuple[Column, ...] = ()
        watermark = None
        if cursor.take_symbol("("):
            columns, watermark = read_columns(cursor)
            cursor.expect_symbol(")", "separate the columns by commas, and close their list")
        words: dict[str, Given] = {}
        while cursor.token.is_word("WITH", "PARTITIONED"):
            more = self._partitioned() if cursor.token.is_word("PARTITIONED") else self._with()
            for twice in [key for key in more if key in words]:
                raise PipelineError(Problem(f"{twice} is given twice", "leave out one of them", more[twice].name_place))
            words |= more
        statement = CreateStatement(kind.text.upper(), name.value, cursor.place_of(name), columns, watermark, words)
        if cursor.at_end:
            return statement
        cursor.expect_word("AS", fix="after the name come columns in parentheses, WITH (…), or AS and a query")
        if columns or watermark:
            cursor.fail(
                "a query has its own columns",
                "leave out the list of columns, or leave out AS and use INSERT INTO",
                name,
            )
        query, reads = self._query()
        return CreateStatement(statement.kind, statement.name, statement.place, (), None, words, query, reads)

    def _insert(self) -> InsertStatement:
        cursor = self._cursor
        if cursor.token.is_word("OVERWRITE"):
            cursor.fail("a stream overwrites nothing", "write INSERT INTO; mode = 'complete' replaces all rows")
        cursor.expect_word("INTO")
        target = cursor.expect_name("the name of a stream or a table")
        if cursor.token.is_symbol("("):
            cursor.fail("columns go by their names here", "leave out the list, and name the columns in the SELECT")
        # A common table expression begins with WITH as well, but never with a parenthesis after it.
        words = self._with() if self._is_with() else {}
        query, reads = self._query()
        return InsertStatement(target.value, cursor.place_of(target), words, query, reads)

    def _is_with(self) -> bool:
        following = self._cursor.rest[:2]
        return len(following) == 2 and following[0].is_word("WITH") and following[1].is_symbol("(")

    def _query(self) -> tuple[Sql, tuple[str, ...]]:
        cursor = self._cursor
        if cursor.at_end or not (cursor.token.is_word(*_QUERY) or cursor.token.is_symbol("(")):
            cursor.fail("expected a query", "write SELECT … FROM …")
        tokens = cursor.rest
        written = self._text[tokens[0].start : tokens[-1].end]
        text = _IN_SQL.sub(lambda part: self._substitute_part(part, cursor.place), written)
        query = Sql(text=text, place=cursor.place)
        return query, tuple(token.value for token in relations_of(query))

    def _with(self) -> dict[str, Given]:
        cursor = self._cursor
        cursor.expect_word("WITH")
        cursor.expect_symbol("(", "write WITH (topic = 'orders', …)")
        words: dict[str, Given] = {}
        while not cursor.token.is_symbol(")"):
            start = cursor.token
            name = self._dotted("the name of an option")
            if name in words:
                cursor.fail(f"{name} is given twice", "leave out one of them", start)
            if not cursor.take_symbol("="):
                cursor.fail("expected =", f"write {name} = 'value'")
            words[name] = self._value(cursor.place_of(start))
            if not cursor.take_symbol(","):
                break
        cursor.expect_symbol(")", "separate the options by commas, and close their list")
        return words

    def _partitioned(self) -> dict[str, Given]:
        cursor = self._cursor
        place = cursor.place
        cursor.expect_word("PARTITIONED")
        cursor.expect_word("BY")
        cursor.expect_symbol("(")
        columns = [cursor.expect_name("a column name").value]
        while cursor.take_symbol(","):
            columns.append(cursor.expect_name("a column name").value)
        cursor.expect_symbol(")")
        return {"partition_by": Given(",".join(columns), place, place)}

    def _dotted(self, what: str) -> str:
        """A name of words and dots, such as `kafka.sasl.mechanism`, or one in quotes."""
        cursor = self._cursor
        if cursor.token.kind in (Kind.STRING, Kind.QUOTED):
            return cursor.take().value
        first = cursor.expect_name(what)
        parts = [first.text]
        while cursor.token.is_symbol(".") or cursor.token.is_symbol("-"):
            parts.append(cursor.take().text)
            parts.append(cursor.expect_name(what).text)
        return "".join(parts)

    def _value(self, name_place: Place) -> Given:
        cursor = self._cursor
        token = cursor.token
        place = cursor.place
        if token.kind is Kind.STRING:
            cursor.take()
            if escape := token.unknown_escape:
                cursor.fail(f"{escape} stands for nothing", f"write \\{escape} for a backslash before it", token)
            return Given(self._substitute(token.value, place), name_place, place)
        if token.kind in (Kind.NUMBER, Kind.WORD, Kind.QUOTED):
            cursor.take()
            if cursor.token.kind is not Kind.END and cursor.token.text[0] not in ",)":
                cursor.fail("a value of more than one word is text", "put it in quotes: '…'", token)
            return Given(token.value, name_place, place)
        return cursor.fail("expected a value", "put text in quotes: '…'")

    def _substitute_part(self, part: re.Match[str], place: Place) -> str:
        """A variable, or a string with variables in it; what a comment says stands for nothing."""
        return part[0] if part["comment"] else self._substitute(part[0], place)

    def _substitute(self, text: str, place: Place) -> str:
        """A text with what its variables stand for; in a query, places after one on the same line are off by that."""

        def value_of(found: re.Match[str]) -> str:
            value = self._lookup(found[1])
            if value is None:
                value = found[2]
            if value is None:
                self._problems.append(
                    Problem(
                        f"nothing says what ${{{found[1]}}} is",
                        f"run with --set {found[1]}=…, set it in the environment, or write ${{{found[1]}:-default}}",
                        place,
                    )
                )
                return ""
            return value

        return _VARIABLE.sub(value_of, text)

    def _expect_end(self, what: str) -> None:
        if not self._cursor.at_end:
            self._cursor.fail(f"expected {what}", "end each statement with ;")


def variables_of(text: str) -> list[str]:
    """The variables that a file names as `${name}`, each once; not those in comments."""
    parts = [found[0] for found in _IN_SQL.finditer(text) if not found["comment"]]
    return list(dict.fromkeys(found[1] for part in parts for found in _VARIABLE.finditer(part)))
