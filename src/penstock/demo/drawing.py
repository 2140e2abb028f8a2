"""Figures as characters: small, pure, and without colours."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

_LEVELS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as a line of bars; 0 is the lowest."""
    shown = values[-width:] if width > 0 else ()
    top = max(shown, default=0)
    if top <= 0:
        return _LEVELS[0] * len(shown)
    return "".join(_LEVELS[min(7, max(0, int(value / top * 7.999)))] for value in shown)


def bar(value: float, top: float, width: int) -> str:
    """A bar of up to `width` characters, in steps of an eighth of one."""
    if top <= 0 or value <= 0:
        return ""
    eighths = max(1, round(min(1.0, value / top) * width * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def euros(cents: int) -> str:
    """€1,234; the cents matter to the books only."""
    return f"€{cents / 100:,.0f}"


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Rates:
    """A counter that only grows → how much it grew per second, second by second."""

    def __init__(self, seconds_kept: int = 120) -> None:
        self._points: deque[float] = deque(maxlen=seconds_kept)
        self._last_s: float | None = None
        self._last_count = 0

    def add(self, now_s: float, count: int) -> None:
        if self._last_s is None:
            self._last_s, self._last_count = now_s, count
        elif now_s - self._last_s >= 1:
            self._points.append((count - self._last_count) / (now_s - self._last_s))
            self._last_s, self._last_count = now_s, count

    @property
    def values(self) -> list[float]:
        return list(self._points)

    @property
    def latest(self) -> float:
        return self._points[-1] if self._points else 0.0
