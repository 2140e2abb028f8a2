"""`sasl.jaas.config`: the login string of Java's clients and brokers.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

A class, a flag, options, a semicolon. Java parses it with `StreamTokenizer`: values may be bare or in either kind of
quotes, with backslash escapes inside; both kinds of comments are skipped.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'
    | (?P<sign>[=;]) | (?P<word>[^\s"'=;/]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_EXPECTED = 'write it as <login module class> required <option>="<value>" …;'


class Login(NamedTuple):
    """One login module and its options."""

    module: str
    options: dict[str, str]

    @property
    def simple_name(self) -> str:
        """The class without its package, because shaded jars move the same classes to other packages."""
        return self.module.rpartition(".")[2]

    def __repr__(self) -> str:
        """Without the options: they hold passwords."""
        return f"Login({self.module})"


def parse_jaas(text: str) -> Login:
    """The string's login module. Raises ValueError, which never repeats the string, unless there is exactly one."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise ValueError(f"is not a complete login entry that ends with a semicolon; {_EXPECTED}")
    (_, module), (_, flag), *rest = tokens[:-1]
    if flag.lower() not in FLAGS:
        raise ValueError(f"has no control flag such as `required` after the class; {_EXPECTED}")
    options: dict[str, str] = {}
    while rest:
        if rest[0] == ("sign", ";"):
            raise ValueError("holds more than one login module; a client uses one")
        if len(rest) < 3 or rest[1] != ("sign", "=") or rest[0][0] == "sign" or rest[2][0] == "sign":
            raise ValueError(f"has something other than option=value after the class; {_EXPECTED}")
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    return Login(module, options)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"cannot be parsed at character {position} (an open quote?); {_EXPECTED}")
        position = match.end()
        if (sign := match["sign"]) is not None:
            tokens.append(("sign", sign))
        elif (word := match["word"]) is not None:
            tokens.append(("word", word))
        else:
            quoted = match["double"] if match["double"] is not None else match["single"]
            if quoted is not None:
                tokens.append(("word", _ESCAPE.sub(_unescape, quoted)))
    return tokens


def _unescape(match: re.Match[str]) -> str:
    what = match[1]
    return chr(int(what, 8) & 0xFF) if what[0] in "01234567" else _ESCAPES.get(what, what)
