"""A node's log, kept in memory, so that it does not mix with the test's output."""

from __future__ import annotations

import io
import time
from collections import deque
from typing import TextIO, cast

from penstock.runtime.eventlog import StreamEventLog

__all__ = ["MemoryEventLog"]

LINES_MAX = 1_000


class MemoryEventLog(StreamEventLog):
    """The newest log lines of a node, in the format of `penstock server`. Readable from any thread."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        super().__init__(lambda: time.time_ns() // 1_000_000, stream=cast(TextIO, _Lines(self._lines)))

    @property
    def text(self) -> str:
        return "".join(list(self._lines))


class _Lines(io.TextIOBase):
    """An in-memory text stream with only what an event log needs."""

    def __init__(self, lines: deque[str]) -> None:
        self._lines = lines

    def write(self, text: str) -> int:
        self._lines.append(text)
        return len(text)
