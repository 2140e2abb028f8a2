"""Structured events a person can read: one line per noteworthy event, none per request.

    2026-11-15 20:52:43.120 INFO  ready            listener=127.0.0.1:9092 partitions=12

or, on request, one JSON object per line. Events that a peer can cause at will are rate-limited by name, and the
line that gets through says how many were left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol, TextIO

LIMITED_EVENT_INTERVAL_MS = 1_000


class EventLog(Protocol):
    """What the engine says to whoever watches it."""

    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def limited(self, event: str, **fields: object) -> None:
        """A warning that a peer can cause at will: at most one line per second and event name."""


class StreamEventLog:
    """Writes events to a stream, as text or JSON."""

    def __init__(self, wall_ms: Callable[[], int], *, json_lines: bool = False, stream: TextIO | None = None) -> None:
        self._wall_ms = wall_ms
        self._json = json_lines
        self._stream = sys.stderr if stream is None else stream
        self._quiet_until_ms: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def info(self, event: str, **fields: object) -> None:
        self._write("INFO", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("WARN", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("ERROR", event, fields)

    def limited(self, event: str, **fields: object) -> None:
        now = self._wall_ms()
        if now < self._quiet_until_ms.get(event, 0):
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        self._quiet_until_ms[event] = now + LIMITED_EVENT_INTERVAL_MS
        left_out = self._left_out.pop(event, 0)
        if left_out:
            fields["left_out"] = left_out
        self._write("WARN", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        moment = datetime.fromtimestamp(self._wall_ms() / 1000, UTC)
        if self._json:
            line = json.dumps({"time": moment.isoformat(), "level": level, "event": event, **fields}, default=str)
        else:
            said = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
            line = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} {level:<5} {event:<24} {said}".rstrip()
        self._stream.write(line + "\n")
        self._stream.flush()


def _plain(value: object) -> str:
    text = str(value)
    return json.dumps(text) if " " in text or '"' in text or "\n" in text or not text else text
