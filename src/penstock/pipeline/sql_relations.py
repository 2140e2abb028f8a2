"""What a query reads: the names of its relations, found without Spark. Pure.

Of SQL's grammar only that part is read which says where a relation stands: after FROM and JOIN, after the commas of a
FROM list, after TABLE, and in parentheses there. What a WITH names is no relation where that name is seen, and
functions that give tables are none. Names of columns, wherever commas separate them, are not looked at. A name of two
words (`catalog.table`) is not of the file. The tests ask Spark's own parser about the same queries.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.pipeline.model import PipelineError, Place, Sql
from penstock.pipeline.sql_lexer import Kind, Text, Token, tokens_of

_QUERY = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")
"""What a query begins with, also one in parentheses."""
_FROM_OF_THEIR_OWN = ("EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY")
"""Functions that have a FROM among their arguments."""
_AFTER_FROM = (
    "SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW",
    "QUALIFY", "UNION", "INTERSECT", "EXCEPT", "MINUS", "MAP", "REDUCE", "INSERT",
)  # fmt: skip
"""Where a FROM list ends: commas separate something else from here on."""
_AFTER_A_NAME = (
    *_AFTER_FROM, "AS", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "NATURAL", "LATERAL", "ON",
    "USING", "PIVOT", "UNPIVOT", "TABLESAMPLE",
)  # fmt: skip
_END = Token(Kind.END, "", 0)


def relations_of(query: Sql) -> tuple[Token, ...]:
    """The names that a query reads; none of a text that cannot be split into words, about which Spark says more."""
    try:
        return relations(tokens_of(Text(query.text)))
    except PipelineError:
        return ()


def place_of_relation(query: Sql, name: str) -> Place:
    """Where a query reads a name, or where it begins."""
    found = (token for token in relations_of(query) if token.value.lower() == name.lower())
    token = next(found, None)
    return Text(query.text, query.place).place(token.start) if token is not None else query.place


def relations(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """The names that a query reads, each where it first stands."""
    reader = _Reader([token for token in tokens if token.kind is not Kind.END])
    reader.read(frozenset(), is_query=True)
    found: dict[str, Token] = {}
    for token in reader.found:
        found.setdefault(token.value.lower(), token)
    return tuple(found.values())


class _Reader:
    """Goes through the tokens of a query once; each pair of parentheses is a call of `read`."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self.found: list[Token] = []

    def read(self, named: frozenset[str], *, is_query: bool, is_relation: bool = False) -> None:
        """Reads to the parenthesis that closes this part, or to the end. `named` is what a WITH around it named.

        A part is a query, or relations (`FROM (a JOIN b)`), or anything else, such as the arguments of a function.
        """
        expected = listed = is_relation
        while (token := self._ahead()).kind is not Kind.END:
            before = self._tokens[self._index - 1] if self._index else _END
            self._index += 1
            if token.is_symbol(")"):
                return
            if token.is_symbol("("):
                query = self._begins_query() and not before.is_word(*_FROM_OF_THEIR_OWN)
                self.read(named, is_query=query, is_relation=expected and not query)
                expected = False
            elif expected:
                expected = self._read_relation(token, named)
                listed = listed and not token.is_word("VALUES")
            elif before.is_symbol(".") or before.is_word("AS"):
                pass  # a field or another name, whatever it is called
            elif token.is_word("WITH") and self._names_queries():
                named = self._read_with(named)
            elif token.is_word("TABLE"):
                expected = True
            elif token.is_word("FROM"):
                expected = listed = is_query and not before.is_word("DISTINCT")  # IS DISTINCT FROM
            elif token.is_word("JOIN"):
                expected = listed = is_query or is_relation
            elif token.is_symbol(","):
                expected = listed
            elif token.is_word(*_AFTER_FROM) or self._is_pipe(token) or self._is_lateral_view(token):
                listed = False

    def _read_relation(self, token: Token, named: frozenset[str]) -> bool:
        """A token where a relation is expected; True if it is still expected after it."""
        following = self._ahead()
        if token.is_word("LATERAL", "TABLE"):
            return True
        if token.is_word("STREAM") and (following.is_symbol("(") or self._is_name(following)):
            return True
        if token.kind not in (Kind.WORD, Kind.QUOTED) or token.is_word("VALUES"):
            return False
        if following.is_symbol("."):
            while self._ahead().is_symbol("."):
                self._index += 2
        elif not following.is_symbol("(") and token.value.lower() not in named:
            self.found.append(token)
        return False

    def _read_with(self, named: frozenset[str]) -> frozenset[str]:
        """`WITH name (columns) AS (query), …`: a name is seen by what comes after its query, or in it if RECURSIVE."""
        recursive = self._ahead().is_word("RECURSIVE")
        self._index += recursive
        while True:
            name = self._ahead().value.lower()
            self._index += 1
            if self._ahead().is_symbol("(") and not self._begins_query(1):
                self._index += 1
                self.read(named, is_query=False)
            while not self._ahead().is_symbol("(") and self._ahead().kind is not Kind.END:
                self._index += 1
            self._index += 1
            self.read(named | {name} if recursive else named, is_query=True)
            named |= {name}
            if not self._ahead().is_symbol(","):
                return named
            self._index += 1

    def _names_queries(self) -> bool:
        """Whether the WITH that was just read is one of queries, and not `GROUP BY … WITH ROLLUP` or `WITH (…)`."""
        step = 1 if self._ahead().is_word("RECURSIVE") and not self._ahead(1).is_word("AS") else 0
        after = self._ahead(step + 1)
        return self._ahead(step).kind in (Kind.WORD, Kind.QUOTED) and (
            after.is_symbol("(") or after.is_word("AS", "MAX")
        )

    def _begins_query(self, step: int = 0) -> bool:
        while self._ahead(step).is_symbol("("):
            step += 1
        return self._ahead(step).is_word(*_QUERY)

    def _is_lateral_view(self, token: Token) -> bool:
        return token.is_word("LATERAL") and self._ahead().is_word("VIEW")

    def _is_pipe(self, token: Token) -> bool:
        return token.is_symbol("|") and self._ahead().is_symbol(">")

    def _is_name(self, token: Token) -> bool:
        return token.kind is Kind.QUOTED or (token.kind is Kind.WORD and not token.is_word(*_AFTER_A_NAME))

    def _ahead(self, step: int = 0) -> Token:
        index = self._index + step
        return self._tokens[index] if index < len(self._tokens) else _END
