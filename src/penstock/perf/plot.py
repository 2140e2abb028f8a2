"""A text chart of a series of numbers."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["plot", "short"]

BARS = " ▁▂▃▄▅▆▇█"
STEPS = len(BARS) - 1


def plot(values: Sequence[float], *, width: int, height: int, unit: str = "") -> list[str]:
    """`height` lines of bars, one column per value, the newest at the right; the scale starts at zero.

    If there are more values than columns, each column shows the largest of its values, so that no spike vanishes.
    """
    assert width > 0, "a chart needs a column"
    assert height > 0, "a chart needs a line"
    columns = _squeeze([max(0.0, value) for value in values], width)
    top = max(columns, default=0.0)
    label_width = max(len(short(top)), len("0"))
    lines = []
    for row in range(height - 1, -1, -1):
        label = short(top) if row == height - 1 else "0" if row == 0 else ""
        bars = "".join(_bar(value, top, row, height) for value in columns)
        lines.append(f"{label:>{label_width}} ┤{bars:>{width}}")
    if unit:
        lines[0] += f" {unit}"
    return lines


def _bar(value: float, top: float, row: int, height: int) -> str:
    if top <= 0 or value <= 0:
        return BARS[0]
    eighths = max(1, round(value / top * height * STEPS))
    return BARS[max(0, min(STEPS, eighths - row * STEPS))]


def _squeeze(values: list[float], width: int) -> list[float]:
    if len(values) <= width:
        return values
    return [max(values[len(values) * n // width : len(values) * (n + 1) // width]) for n in range(width)]


def short(number: float) -> str:
    """A number in at most five characters: 950, 1.2k, 35k, 2.5M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            scaled = number / size
            return f"{scaled:.1f}{unit}" if scaled < 10 else f"{scaled:.0f}{unit}"
    return f"{number:.1f}" if 0 < number < 10 else f"{number:.0f}"
