"""A log of structured events for people: one line per noteworthy event, none per request.

    2026-11-15 20:52:43.120 INFO  ready            listener=127.0.0.1:9092 partitions=12

or, on request, one JSON object per line. Events that a peer can cause at will are rate-limited by name, and the next
line reports how many were suppressed. Usually transient conditions are INFO until they persist.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol, TextIO

LIMITED_EVENT_INTERVAL_MS = 1_000
PERSISTS_AFTER_MS = 10_000
"""A condition that recurs for this long is not transient, and is logged as a warning."""
OVER_AFTER_MS = 5_000
"""A condition that has not recurred for this long is over."""
RECURRENCES_MAX = 10_000


class EventLog(Protocol):
    """The engine's log."""

    def info(self, event: str, **fields: object) -> None: ...
    def warning(self, event: str, **fields: object) -> None: ...
    def error(self, event: str, **fields: object) -> None: ...
    def limited(self, event: str, **fields: object) -> None:
        """Logs a warning that a peer can cause at will: at most one line per second and event name."""

    def recurring(self, event: str, subject: object, **fields: object) -> None:
        """Logs a usually transient condition, such as a retry while other nodes start or take over.

        INFO at first; a warning if it persists for `PERSISTS_AFTER_MS` for the same subject (a partition, a node). At
        most one line per second, level and event name.
        """


class Recurrences:
    """Since when each condition has recurred."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, object], tuple[int, int]] = {}
        """The first and the last time."""

    def persists(self, event: str, subject: object, now_ms: int) -> bool:
        key = (event, subject)
        first_ms, last_ms = self._times.pop(key, (now_ms, now_ms))
        if not 0 <= now_ms - last_ms <= OVER_AFTER_MS:
            first_ms = now_ms
        if len(self._times) >= RECURRENCES_MAX:
            del self._times[next(iter(self._times))]
        self._times[key] = (first_ms, now_ms)
        return now_ms - first_ms >= PERSISTS_AFTER_MS


class StreamEventLog:
    """Writes events to a stream, as text or JSON."""

    def __init__(self, wall_ms: Callable[[], int], *, json_lines: bool = False, stream: TextIO | None = None) -> None:
        self._wall_ms = wall_ms
        self._json = json_lines
        self._stream = sys.stderr if stream is None else stream
        self._quiet_until_ms: dict[tuple[str, str], int] = {}
        self._left_out: dict[tuple[str, str], int] = {}
        self._recurrences = Recurrences()

    def info(self, event: str, **fields: object) -> None:
        self._write("INFO", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("WARN", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("ERROR", event, fields)

    def limited(self, event: str, **fields: object) -> None:
        self._write_seldom("WARN", event, fields)

    def recurring(self, event: str, subject: object, **fields: object) -> None:
        persists = self._recurrences.persists(event, subject, self._wall_ms())
        self._write_seldom("WARN" if persists else "INFO", event, fields)

    def _write_seldom(self, level: str, event: str, fields: dict[str, object]) -> None:
        now = self._wall_ms()
        key = (level, event)
        if now < self._quiet_until_ms.get(key, 0):
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return
        self._quiet_until_ms[key] = now + LIMITED_EVENT_INTERVAL_MS
        left_out = self._left_out.pop(key, 0)
        if left_out:
            fields["left_out"] = left_out
        self._write(level, event, fields)

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
    # Peers supply some of these values: none of their control characters may reach the terminal.
    return json.dumps(text) if " " in text or '"' in text or not text.isprintable() or not text else text
