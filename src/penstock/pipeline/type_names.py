"""Finds a mistyped word in a column's type, so that the error can point at that word. Pure.

Spark would only say that it cannot parse the whole row. What is checked here are the names of types, at every depth,
and the digits of a DECIMAL; the rest of a type's grammar is left to Spark, which knows it better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.pipeline.model import nearest
from penstock.pipeline.sql_lexer import Kind, Token

SIMPLE = (
    "STRING", "INT", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP", "DATE", "DECIMAL", "BINARY", "FLOAT", "SMALLINT",
    "TINYINT", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "CHAR", "VARCHAR", "INTERVAL", "VARIANT", "VOID", "INTEGER",
    "LONG", "SHORT", "BYTE", "REAL", "NUMERIC", "DEC", "CHARACTER", "GEOMETRY", "GEOGRAPHY",
)  # fmt: skip
NESTED = ("ARRAY", "MAP", "STRUCT")
FIX = "write a type of Spark's: STRING, INT, BIGINT, DOUBLE, DECIMAL(10,2), BOOLEAN, TIMESTAMP, DATE, ARRAY<STRING>, …"
DIGITS_MAX = 38

_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")


class WrongType(NamedTuple):
    message: str
    fix: str
    token: Token
    """The word to point at."""


def check_type(tokens: Sequence[Token]) -> WrongType | None:
    """The first word of a type that is wrong, if there is one."""
    open_brackets: list[str] = []
    for at, token in enumerate(tokens):
        if token.text == "<":
            open_brackets.append(tokens[at - 1].text.upper() if at else "")
        elif token.text == "(":
            open_brackets.append("(")
        elif token.text in (">", ")") and open_brackets:
            open_brackets.pop()
        if token.kind is not Kind.WORD or not _begins_type(tokens, at, open_brackets):
            continue
        if not token.is_word(*SIMPLE, *NESTED):
            return WrongType(f"there is no type {token.text}{nearest(token.text, (*SIMPLE, *NESTED))}", FIX, token)
        if token.is_word(*_DECIMALS) and (wrong := _check_digits(tokens[at + 1 : at + 6])):
            return wrong
    return None


def _begins_type(tokens: Sequence[Token], at: int, open_brackets: Sequence[str]) -> bool:
    """Whether a word is the name of a type, rather than of a field, or something that belongs to the type before it."""
    if at == 0:
        return True
    inside = open_brackets[-1] if open_brackets else ""
    before = tokens[at - 1]
    if inside in ("ARRAY", "MAP"):
        return before.text in ("<", ",")
    if inside != "STRUCT":
        return False
    # `name: TYPE` or `name TYPE`, where the name follows `<` or a comma.
    is_name = at >= 2 and before.kind in (Kind.WORD, Kind.QUOTED) and tokens[at - 2].text in ("<", ",")
    return before.is_symbol(":") or is_name


def _check_digits(after: Sequence[Token]) -> WrongType | None:
    texts = [token.text for token in after]
    if len(texts) < 3 or texts[0] != "(" or not texts[1].isdecimal():
        return None
    precision = int(texts[1])
    if not 1 <= precision <= DIGITS_MAX:
        return WrongType(f"a DECIMAL has 1 to {DIGITS_MAX} digits, not {precision}", "write DECIMAL(38,2)", after[1])
    if texts[2] == "," and len(texts) > 3 and texts[3].isdecimal() and int(texts[3]) > precision:
        return WrongType(
            f"a DECIMAL of {precision} digits cannot have {texts[3]} of them behind the point",
            f"write DECIMAL({min(precision + int(texts[3]), DIGITS_MAX)},{texts[3]}), with the digits of both sides",
            after[3],
        )
    return None
