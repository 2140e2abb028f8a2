"""Finds sums, means and deviations of points in time. Pure.

Spark accepts `sum(ordered_at)`: it makes a number of the timestamp, the seconds since 1970, and adds those up. Nobody
means that. A cast that the query itself writes is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.pipeline.model import Problem, Sql
from penstock.pipeline.sql_lexer import Kind, Text, Token, tokens_of

_NAMES = (Kind.WORD, Kind.QUOTED)
_ARITHMETIC = ("SUM", "AVG", "MEAN", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE", "VAR_POP", "VAR_SAMP")


def check_sums(query: Sql, types: Mapping[str, str]) -> list[Problem]:
    """`types` has the type of each column that the query may mean, by its name in lower case."""
    text = Text(query.text, query.place)
    tokens = tokens_of(text)
    problems = []
    for at, token in enumerate(tokens):
        column = _only_argument(tokens, at + 1) if token.is_word(*_ARITHMETIC) else None
        if column is None:
            continue
        kind = types.get(column.value.lower(), "")
        if kind.startswith("timestamp"):
            problems.append(
                Problem(
                    f"{token.text.lower()}({column.value}) computes with points in time as if they were numbers: "
                    f"{column.value} is a {kind.upper()}",
                    "use a number; max(x) - min(x) is the time between the first and the last, count(*) counts rows",
                    text.place(column.start),
                )
            )
    return problems


def _only_argument(tokens: list[Token], at: int) -> Token | None:
    """The column in `(column)`, `(DISTINCT column)` or `(t.column)`, if there is nothing else between the brackets."""
    if not tokens[at].is_symbol("("):
        return None
    at += 2 if tokens[at + 1].is_word("DISTINCT") else 1
    while tokens[at].kind in _NAMES:
        if tokens[at + 1].is_symbol(")"):
            return tokens[at]
        if not tokens[at + 1].is_symbol("."):
            return None
        at += 2
    return None
