"""What a command that was run in a test did."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Result(NamedTuple):
    code: int
    output: str
    messages: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


Run = Callable[..., Result]
"""Runs a command: its arguments, and `stdin` for what it reads."""
