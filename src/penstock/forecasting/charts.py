"""Charts as SVG: history, forecast, intervals and threshold. No script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from penstock.forecasting.series import SeriesForecast

WIDTH: Final = 720
HEIGHT: Final = 220
LEFT: Final = 64
RIGHT: Final = 8
TOP: Final = 22
BOTTOM: Final = 24
PAST_DAYS: Final = 180
STYLE: Final = (
    ".past{fill:none;stroke:#4f7cac;stroke-width:1.2}.to-come{fill:none;stroke:#c8553d;stroke-width:1.6}"
    ".band{fill:#c8553d;opacity:.13}.limit{stroke:#8a2be2;stroke-dasharray:5 3}.axis{stroke:#98a4b5;stroke-width:.6}"
    "text{font:11px system-ui,sans-serif;fill:#5c6878}"
)


def chart(one: SeriesForecast, *, standalone: bool = False) -> str:
    """One series. `standalone` makes it a file of its own."""
    past = one.past[-PAST_DAYS:]
    threshold = one.crossings[0].threshold if one.crossings else None
    bounds = [*past, *one.mean, *one.high.get(95, []), *([threshold] if threshold is not None else [])]
    top = max(bounds, default=1.0) * 1.05 or 1.0
    count = max(len(past) + len(one.mean), 2)

    def x(index: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * index / (count - 1)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(value, top) / top

    def line(values: Sequence[float], first: int, style: str) -> str:
        points = " ".join(f"{x(first + index):.1f},{y(value):.1f}" for index, value in enumerate(values))
        return f'<polyline class="{style}" points="{points}"/>'

    def band(level: int) -> str:
        low, high = one.low.get(level, []), one.high.get(level, [])
        there = [f"{x(len(past) + index):.1f},{y(value):.1f}" for index, value in enumerate(high)]
        back = [f"{x(len(past) + index):.1f},{y(value):.1f}" for index, value in enumerate(low)]
        return f'<polygon class="band" points="{" ".join([*there, *reversed(back)])}"/>' if there else ""

    parts = [
        f'<text x="{LEFT}" y="13">{escape(one.title)} ({escape(one.unit)})</text>',
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>',
        *(
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{figure(value)}</text>'
            for value in (0.0, top / 2, top)
        ),
        band(95),
        band(80),
        line(past, 0, "past") if past else "",
        line(one.mean, len(past), "to-come") if one.mean else "",
    ]
    if threshold is not None:
        parts.append(
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(threshold):.1f}" y2="{y(threshold):.1f}"/>'
        )
    if one.start is not None:
        parts.append(f'<text x="{x(len(past)):.1f}" y="{HEIGHT - 7}" text-anchor="middle">{one.start}</text>')
    style = f"<style>{STYLE}</style>" if standalone else ""
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" xmlns="http://www.w3.org/2000/svg">'
        f"{style}{''.join(parts)}</svg>"
    )


def figure(value: float) -> str:
    """A number in three digits: 1.23 M."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
