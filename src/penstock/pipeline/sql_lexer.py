"""The words of a SQL file, each with where it stands.

Only as much of SQL as it takes to find statements, column lists and options; what a SELECT says is Spark's to judge,
and is handed over as it stands. Strings and quoted names follow Spark: `'…'` and `"…"` are text, `` `…` `` is a name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, NoReturn

from penstock.pipeline.model import PipelineError, Place, Problem

BEGINNING = Place(1, 1)

TEXT_CHARACTERS_MAX = 1_000_000
"""A file beyond this is not a short file; it is most likely data."""


class Kind(Enum):
    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end of the file"


class Token(NamedTuple):
    kind: Kind
    text: str
    """As it stands in the file, quotes and all."""
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def is_word(self, *words: str) -> bool:
        return self.kind is Kind.WORD and self.text.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is Kind.SYMBOL and self.text == symbol

    @property
    def value(self) -> str:
        """What a string or a quoted name stands for; any other token stands for itself."""
        if self.kind is Kind.QUOTED:
            return self.text[1:-1].replace("``", "`")
        if self.kind is Kind.STRING:
            quote = self.text[0]
            return _ESCAPED.sub(_unescape, self.text[1:-1].replace(quote * 2, quote))
        return self.text

    @property
    def unknown_escape(self) -> str:
        """The first backslash of a string that stands for nothing, with what follows it. Spark would leave it out."""
        found = (one for one in _ESCAPED.finditer(self.text[1:-1]) if one[1] not in _ESCAPES)
        return next((one[0] for one in found), "")

    def __str__(self) -> str:
        return "the end of the file" if self.kind is Kind.END else self.text


_PATTERN = re.compile(
    r"""
      (?P<space>     \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<string>    '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
    | (?P<quoted>    `(?:[^`]|``)+` )
    | (?P<number>    \d+(?:\.\d+)? )
    | (?P<word>      [^\W\d]\w* )
    | (?P<symbol>    [^\s\w'"`] )
    | (?P<open>      ['"`] | /\* )
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {"string": Kind.STRING, "quoted": Kind.QUOTED, "number": Kind.NUMBER, "word": Kind.WORD, "symbol": Kind.SYMBOL}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "'": "'", '"': '"'}


def _unescape(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])


class Text:
    """A text and the places of its characters; `origin` is where it begins in the file that it is a part of."""

    def __init__(self, text: str, origin: Place = BEGINNING) -> None:
        self.text = text
        self._origin = origin
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def place(self, offset: int) -> Place:
        line = bisect_right(self._starts, offset)
        column = offset - self._starts[line - 1] + 1
        if line == 1:
            column += self._origin.column - 1
        return Place(self._origin.line + line - 1, column)


def tokens_of(text: Text) -> list[Token]:
    """All tokens, and one more for the end; PipelineError for a quote or a comment that is not closed."""
    if len(text.text) > TEXT_CHARACTERS_MAX:
        raise PipelineError(
            Problem(
                f"this file has {len(text.text):,} characters: it does not look like a pipeline",
                "a pipeline is one short file of SQL or Python; name that file",
            )
        )
    tokens: list[Token] = []
    position = 0
    while position < len(text.text):
        found = _PATTERN.match(text.text, position)
        name = found.lastgroup if found else None
        if found is None or name == "open" or (name == "symbol" and text.text.startswith("/*", position)):
            what = "comment" if text.text.startswith("/*", position) else "quote"
            raise PipelineError(Problem(f"this {what} is not closed", f"close the {what}", text.place(position)))
        if name in _KINDS:
            tokens.append(Token(_KINDS[name], found[0], position))
        position = found.end()
    tokens.append(Token(Kind.END, "", position))
    return tokens


def split_statements(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each statement, each list ended by the semicolon (or the end of the file) as a token of END."""
    statements: list[list[Token]] = []
    current: list[Token] = []
    for token in tokens:
        if token.is_symbol(";") or token.kind is Kind.END:
            if current:
                statements.append([*current, Token(Kind.END, "", token.start)])
            current = []
        else:
            current.append(token)
    return statements


class Cursor:
    """Reads tokens one after the other, and says what it expected."""

    def __init__(self, tokens: Sequence[Token], text: Text) -> None:
        assert tokens, "there is always the end"
        self._tokens = tokens
        self._text = text
        self._index = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._index]

    @property
    def rest(self) -> Sequence[Token]:
        """What is left, without the end."""
        return self._tokens[self._index : -1]

    @property
    def at_end(self) -> bool:
        return self.token.kind is Kind.END

    @property
    def place(self) -> Place:
        return self.place_of(self.token)

    def place_of(self, token: Token) -> Place:
        return self._text.place(token.start)

    def take(self) -> Token:
        token = self.token
        if token.kind is not Kind.END:
            self._index += 1
        return token

    def take_word(self, *words: str) -> Token | None:
        return self.take() if self.token.is_word(*words) else None

    def take_symbol(self, symbol: str) -> Token | None:
        return self.take() if self.token.is_symbol(symbol) else None

    def expect_word(self, *words: str, fix: str = "") -> Token:
        return self.take_word(*words) or self.fail(f"expected {' or '.join(words)}", fix)

    def expect_symbol(self, symbol: str, fix: str = "") -> Token:
        return self.take_symbol(symbol) or self.fail(f"expected {symbol}", fix)

    def expect_name(self, what: str) -> Token:
        if self.token.kind in (Kind.WORD, Kind.QUOTED):
            return self.take()
        return self.fail(f"expected {what}")

    def fail(self, message: str, fix: str = "", at: Token | None = None) -> NoReturn:
        """A problem at this token, or at the one given."""
        found = "" if at is not None else f", found {self.token}"
        raise PipelineError(Problem(message + found, fix, self.place_of(at or self.token)))
