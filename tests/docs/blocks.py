"""The code blocks of a page, what its markers say about running them, and what they should print. Pure.

A comment before a block of `console` or `python` says what the test does with it:

    <!-- run -->                              run it; every command must succeed
    <!-- run: until "ready on" -->            start it, wait for that text, and leave it running until the page's end
    <!-- run: then Ctrl-C -->                 run it; then press Ctrl-C for the program that was left running last
    <!-- run: ends the others -->             run it; what was left running must end by itself, without an error
    <!-- run: spark -->                       needs Spark; can be combined, as in `spark until "batch 0"`
    <!-- not run: why -->                     left out, for that reason

In a console block, commands begin with `$ `; here-documents and lines that end in a backslash go on. The other lines
are what the commands print: each must be found in the output, in this order. `…` stands for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LANGUAGES = ("console", "python")

_BLOCK = re.compile(r"(?:^<!-- (?P<marker>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_MARKER = re.compile(
    r'run(?::(?P<spark> spark)?(?: until "(?P<until>[^"]+)")?(?P<interrupts> then Ctrl-C)?(?P<ends> ends the others)?)?'
)
_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?")


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    text: str
    marker: str

    @property
    def is_run(self) -> bool:
        return _MARKER.fullmatch(self.marker) is not None

    @property
    def is_left_out(self) -> bool:
        return self.marker.startswith("not run: ")

    @property
    def needs_spark(self) -> bool:
        return self._said("spark") is not None

    @property
    def until(self) -> str | None:
        """The text at which a program that goes on is ready."""
        return self._said("until")

    @property
    def ends_the_others(self) -> bool:
        return self._said("ends") is not None

    @property
    def interrupts_the_last(self) -> bool:
        return self._said("interrupts") is not None

    @property
    def script(self) -> str:
        """The commands, for a shell."""
        return "\n".join(line for is_command, line in self._lines() if is_command) + "\n"

    @property
    def output(self) -> list[str]:
        return [line for is_command, line in self._lines() if not is_command and line.strip()]

    def _said(self, name: str) -> str | None:
        found = _MARKER.fullmatch(self.marker)
        return found[name] if found else None

    def _lines(self) -> Iterator[tuple[bool, str]]:
        """Each line without its prompt, and whether it is a part of a command."""
        end_of_document, goes_on = "", False
        for line in self.text.splitlines():
            if end_of_document:
                end_of_document = "" if line == end_of_document else end_of_document
                yield True, line
            elif line.startswith("$ ") or goes_on:
                command = line if goes_on else line.removeprefix("$ ")
                goes_on = command.endswith("\\")
                if found := _HERE_DOCUMENT.search(command):
                    end_of_document = found[1]
                yield True, command
            else:
                yield False, line


def blocks_of(page: str) -> list[Block]:
    """All blocks of the languages that can be run."""
    return [
        Block(page.count("\n", 0, found.start("text")), found["language"], found["text"], found["marker"] or "")
        for found in _BLOCK.finditer(page)
        if found["language"] in LANGUAGES
    ]


def missing_output(wanted: list[str], output: str) -> str | None:
    """The first wanted line that the output does not have after the ones before it."""
    rest = iter([_plain(line) for line in output.splitlines()])
    for line in wanted:
        parts = [re.escape(part) for part in _plain(line).split("…")]
        pattern = re.compile(".*".join(parts))
        if not any(pattern.fullmatch(one) for one in rest):
            return line
    return None


def _plain(line: str) -> str:
    """Columns are aligned on a terminal and separated by tabs in a file."""
    return " ".join(line.split())
