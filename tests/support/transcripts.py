"""Scenarios that a person can read: commands, and below each what happened, checked word for word.

    command arguments
    ----
    what happened, one line per effect

Entries are separated by empty lines; `#` begins a comment. With `PENSTOCK_REWRITE_SCENARIOS=1` in the environment the
tests write what happens now into the files, to be read in the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def check_transcript(path: Path, execute: Callable[[str], str]) -> None:
    actual = played(path, execute)
    if os.environ.get("PENSTOCK_REWRITE_SCENARIOS"):
        path.write_text(actual)
    assert actual == path.read_text()


def played(path: Path, execute: Callable[[str], str]) -> str:
    """The file as it should be: its comments and commands, with what they do now."""
    output: list[str] = []
    lines = iter(path.read_text().splitlines())
    for line in lines:
        if not line or line.startswith("#"):
            output.append(line + "\n")
            continue
        output.append(f"{line}\n----\n{execute(line)}")
        for old in lines:
            if not old:
                output.append("\n")
                break
    return "".join(output)
