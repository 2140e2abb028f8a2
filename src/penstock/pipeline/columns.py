"""The column list of a stream or table: `order_id STRING NOT NULL, at TIMESTAMP METADATA FROM 'timestamp', …`."""

from __future__ import annotations

from penstock.pipeline.model import (
    METADATA_TYPES,
    Column,
    PipelineError,
    Place,
    Problem,
    Role,
    Watermark,
    nearest,
)
from penstock.pipeline.sql_lexer import Cursor, Kind, Text, Token, tokens_of
from penstock.pipeline.type_names import check_type

_ENDS = ("NOT", "KEY", "METADATA", "COMMENT", "NULL")
_LONG = ("INTERVAL", "TIMESTAMP", "TIME", "STRING", "VARCHAR", "CHAR", "DOUBLE")
"""What may have more words after it: `INTERVAL DAY TO SECOND`, `STRING COLLATE UNICODE`."""
_WATERMARK_FIX = "write WATERMARK FOR column DELAY OF 10 MINUTES"
COLUMNS_MAX = 2_000


def parse_columns(text: str, origin: Place) -> tuple[tuple[Column, ...], Watermark | None]:
    """The columns, and the watermark where there is one, of a list without its parentheses."""
    source = Text(text, origin)
    cursor = Cursor(tokens_of(source), source)
    columns, watermark = read_columns(cursor)
    if not cursor.at_end:
        cursor.fail("expected a comma or the end of the columns")
    return columns, watermark


def parse_watermark(text: str, place: Place) -> Watermark:
    """`ordered_at 10 minutes`."""
    column, _, delay = text.strip().partition(" ")
    if not column or not delay.strip():
        raise PipelineError(Problem(f"{text!r} is no watermark", "write it as 'ordered_at 10 minutes'", place))
    return Watermark(column=column, delay=delay.strip(), place=place)


def read_columns(cursor: Cursor) -> tuple[tuple[Column, ...], Watermark | None]:
    """Reads columns up to a closing parenthesis or the end."""
    columns: list[Column] = []
    watermark: Watermark | None = None
    while not cursor.at_end and not cursor.token.is_symbol(")"):
        if cursor.token.is_word("WATERMARK"):
            start = cursor.take()
            if watermark is not None:
                cursor.fail("there is a watermark already", "a stream has one watermark: leave out one", start)
            watermark = _read_watermark(cursor, start)
        else:
            columns.append(_read_column(cursor))
        if not cursor.take_symbol(","):
            break
    if len(columns) > COLUMNS_MAX:
        cursor.fail(f"a stream has at most {COLUMNS_MAX} columns")
    return tuple(columns), watermark


def _read_column(cursor: Cursor) -> Column:
    name = cursor.expect_name("a column name")
    type_place = cursor.place
    type_text = _read_type(cursor, name)
    nullable, role, metadata = True, Role.VALUE, ""
    while cursor.token.is_word(*_ENDS):
        word = cursor.take()
        if word.is_word("NOT"):
            cursor.expect_word("NULL")
            nullable = False
        elif word.is_word("KEY"):
            role = Role.KEY
        elif word.is_word("COMMENT"):
            if cursor.take().kind is not Kind.STRING:
                cursor.fail("expected the comment as text in quotes")
        elif word.is_word("METADATA"):
            role = Role.METADATA
            metadata = _read_metadata(cursor, name)
    return Column(
        name=name.value,
        type=type_text,
        nullable=nullable,
        role=role,
        metadata=metadata,
        place=cursor.place_of(name),
        type_place=type_place,
    )


def _read_metadata(cursor: Cursor, name: Token) -> str:
    """The part of the record that the column shows: what FROM names, or the column's own name."""
    shown = name
    if cursor.take_word("FROM"):
        shown = cursor.take()
    known = next((one for one in METADATA_TYPES if one.lower() == shown.value.lower()), None)
    return known or cursor.fail(
        f"a record has no {shown.value!r}{nearest(shown.value, METADATA_TYPES)}",
        f"METADATA FROM takes one of {', '.join(repr(one) for one in METADATA_TYPES)}",
        shown,
    )


def _read_type(cursor: Cursor, name: Token) -> str:
    """The text of a type, up to what follows it. `check_type` knows its words; its grammar is Spark's to check."""
    depth = 0
    parts: list[str] = []
    tokens: list[Token] = []
    while not cursor.at_end:
        token = cursor.token
        if token.text in ("(", "<"):
            depth += 1
        elif token.text in (")", ">"):
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and (token.is_symbol(",") or token.is_word(*_ENDS)):
            break
        if tokens and depth == 0 and token.kind in (Kind.WORD, Kind.QUOTED) and not tokens[0].is_word(*_LONG):
            cursor.fail("expected a comma", "separate the columns by commas")
        if tokens and tokens[-1].end != token.start:
            parts.append(" ")
        parts.append(token.text)
        tokens.append(cursor.take())
    if not parts:
        cursor.fail(f"column {name.value} has no type", f"write {name.text} STRING, or the type that it has")
    if wrong := check_type(tokens):
        cursor.fail(f"column {name.value}: {wrong.message}", wrong.fix, wrong.token)
    return "".join(parts)


def _read_watermark(cursor: Cursor, start: Token) -> Watermark:
    cursor.expect_word("FOR", fix=_WATERMARK_FIX)
    column = cursor.expect_name("a column name")
    cursor.expect_word("DELAY", fix=_WATERMARK_FIX)
    cursor.expect_word("OF", fix=_WATERMARK_FIX)
    cursor.take_word("INTERVAL")
    words: list[str] = []
    while cursor.token.kind in (Kind.NUMBER, Kind.WORD, Kind.STRING):
        words.append(cursor.take().value)
    if not words:
        cursor.fail("a watermark needs a delay", _WATERMARK_FIX)
    return Watermark(column=column.value, delay=" ".join(words), place=cursor.place_of(start))
