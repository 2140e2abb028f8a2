"""The syntax of `server.properties`: Java's properties files.

`key=value`, `key: value` or `key value`; `#` and `!` begin a comment; a backslash at the end continues a line;
`\\t`, `\\n`, `\\r`, `\\f` and `\\uXXXX` are escapes, and a backslash before anything else stands for that character.
A duplicate key takes its last value, as in Java.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config.definitions import ConfigError

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a properties file. Raises ConfigError, which names the invalid lines."""
    properties: dict[str, str] = {}
    problems: list[str] = []
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise ConfigError(problems)
    return properties


def parse_assignment(text: str) -> tuple[str, str]:
    """Parse `key=value` as given with `--set`, without escapes."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError([f"{text!r} is not of the form key=value"])
    return key.strip(), value.strip()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, each with the number of its first line; comments and empty lines are omitted."""
    pending = ""
    first = 0
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        stripped = line.lstrip(BLANKS)
        if not pending:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            pending += stripped[:-1]
            continue
        yield first, pending + stripped
        pending = ""
    if pending:
        yield first, pending


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped, separated at the first unescaped `=`, `:` or blank."""
    position = 0
    while position < len(line) and line[position] not in "=:" + BLANKS:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        character = text[position : position + 1]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(f"\\u{digits} is not an escape of four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(ESCAPES.get(character, character))
    return "".join(parts)
