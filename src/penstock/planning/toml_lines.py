"""The line of a TOML document on which a key stands. `tomllib` does not tell, and an error must name it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_HEADER = re.compile(r"\s*(?P<open>\[\[?)\s*(?P<name>[^\[\]]+?)\s*\]")
_WORD = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_PART = re.compile(_WORD)
_KEY = re.compile(rf"\s*(?P<name>{_WORD}(?:\s*\.\s*{_WORD})*)\s*=")

Path = tuple[str | int, ...]
"""Keys and, for arrays of tables, the number of the element, from 0."""


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line of a key or table, from 1; the line of the nearest table around it if the key is not found."""
    known = _lines(text)
    wanted = tuple(path)
    while wanted:
        if wanted in known:
            return known[wanted]
        wanted = wanted[:-1]
    return 1


@lru_cache(maxsize=4)
def _lines(text: str) -> dict[Path, int]:
    found: dict[Path, int] = {}
    elements: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _resolved(_parts(header["name"]), elements, new=header["open"] == "[[")
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault((*table, *_parts(key["name"])), number)
            for inner in re.finditer(r"[{,]" + _KEY.pattern, line[key.end() :]):
                found.setdefault((*table, *_parts(key["name"]), *_parts(inner["name"])), number)
    return found


def _parts(name: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(name)]


def _resolved(names: list[str], elements: dict[Path, int], *, new: bool) -> Path:
    """The path of a table header, with the number of the element after each array of tables."""
    path: Path = ()
    for place, name in enumerate(names):
        path = (*path, name)
        if new and place == len(names) - 1:
            elements[path] = elements.get(path, -1) + 1
        if path in elements:
            path = (*path, elements[path])
    return path
