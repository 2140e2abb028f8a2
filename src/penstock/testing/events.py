"""What a node says, kept for whoever asks: a test's output belongs to the test."""

from __future__ import annotations

import io
import time
from collections import deque
from typing import TextIO, cast

from penstock.runtime.eventlog import StreamEventLog

__all__ = ["MemoryEventLog"]

LINES_MAX = 1_000


class MemoryEventLog(StreamEventLog):
    """The newest lines of a node, in the form that `penstock server` writes. Any thread may read them."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        super().__init__(lambda: time.time_ns() // 1_000_000, stream=cast(TextIO, _Lines(self._lines)))

    @property
    def text(self) -> str:
        return "".join(list(self._lines))


class _Lines(io.TextIOBase):
    """A text stream into memory, as far as an event log needs one."""

    def __init__(self, lines: deque[str]) -> None:
        self._lines = lines

    def write(self, text: str) -> int:
        self._lines.append(text)
        return len(text)
