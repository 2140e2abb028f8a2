"""Draws `docs/pictures/demo.svg`, the moving picture at the top of README: PYTHONPATH=src python tools/draw_demo.py

The demo's own view draws the frames (`penstock.demo.view`), from sample values and not from a run.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path

from rich.console import Console
from rich.segment import Segment
from rich.terminal_theme import MONOKAI

from penstock.demo.accounts import Outcome, Sent
from penstock.demo.generator import Fate, Kind
from penstock.demo.pipelines import Stage
from penstock.demo.results import BestSellers, HourFigures, Results, Seller
from penstock.demo.snapshot import Snapshot, TopicLine
from penstock.demo.view import render

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "demo.svg"
COLUMNS, LINES = 116, 32
CELL_WIDTH, LINE_HEIGHT, MARGIN = 7.8, 17, 14
FRAMES, FRAME_SECONDS = 6, 1.5
MORNING = datetime(2026, 1, 5, 6, tzinfo=UTC)
GOODS = (("hand grinder", 6_400), ("kettle", 4_900), ("apron", 2_200))


def main() -> None:
    PICTURE.write_text(picture([lines_of(sample(20.0 + 6 * frame)) for frame in range(FRAMES)]), encoding="utf-8")


def sample(seconds: float) -> Snapshot:
    """What the view could show after so many seconds: 24 minutes of the shop pass in one."""
    hours = seconds * 24 / 60
    clicks, orders, payments = (round(seconds * rate) for rate in (365, 20, 21))
    total = clicks + orders + payments
    dead, late, twice = (round(total * share) for share in (0.01, 0.012, 0.006))
    results = Results()
    for hour in range(int(hours)):
        start = MORNING + timedelta(hours=hour)
        results.hours[start] = HourFigures(
            start, 900 + 60 * hour, 850 + 55 * hour, 45 + 4 * hour, 150_000 + 24_000 * hour
        )
    last = MORNING + timedelta(hours=int(hours) - 1)
    results.best = BestSellers(
        last, [Seller(name, 9 - 2 * k, (9 - 2 * k) * cents) for k, (name, cents) in enumerate(GOODS)]
    )
    results.revenue_cents = sum(figures.revenue_cents for figures in results.hours.values())
    results.visits, results.visits_with_order = clicks // 6, orders
    results.visit_clicks, results.visit_minutes = clicks, clicks / 2.5
    results.reasons, results.dead_letters, results.events = (
        Counter({"the value is not a JSON object": dead}),
        dead,
        total,
    )
    wave = [round(400 + 160 * math.sin((seconds + second) / 4)) for second in range(-24, 1)]
    per_s = wave[-1]
    return Snapshot(
        address="127.0.0.1:9092",
        elapsed_s=seconds,
        seconds=60.0,
        shop_time=MORNING + timedelta(hours=hours),
        engine="Spark local[*]",
        doing="running",
        topics=[
            TopicLine("shop.clicks", clicks, per_s * 0.9, [value * 0.9 for value in wave]),
            TopicLine("shop.orders", orders, per_s * 0.05, [value * 0.05 for value in wave]),
            TopicLine("shop.payments", payments, per_s * 0.05, [value * 0.05 for value in wave]),
        ],
        stages=[
            Stage(
                name="archive", batch=int(seconds / 2), rows=total - 312, rows_per_s=per_s * 1.0, lag=312, took_ms=610
            ),
            Stage(name="hours", batch=int(seconds / 4), rows=total - 520, rows_per_s=per_s * 0.9, lag=520, took_ms=980),
            Stage(
                name="visits", batch=int(seconds / 5), rows=total - 662, rows_per_s=per_s * 0.9, lag=662, took_ms=890
            ),
        ],
        lag_history=[round(value * 1.2) for value in wave],
        sent=Sent(
            by_kind=Counter({Kind.CLICK: clicks, Kind.ORDER: orders, Kind.PAYMENT: payments}),
            by_fate=Counter(
                {Fate.GOOD: total - dead - late - twice, Fate.BAD: dead, Fate.LATE: late, Fate.DUPLICATE: twice}
            ),
            bytes=total * 160,
            revenue_cents=results.revenue_cents,
        ),
        outcome=Outcome(processed=total - dead - late - twice - 662, dead_lettered=dead, late=late, duplicates=twice),
        results=results,
    )


def lines_of(snapshot: Snapshot) -> list[list[Segment]]:
    console = Console(width=COLUMNS, height=LINES, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    return console.render_lines(render(snapshot, COLUMNS, LINES), pad=False)


def picture(frames: list[list[list[Segment]]]) -> str:
    width = round(COLUMNS * CELL_WIDTH + 2 * MARGIN)
    height = LINE_HEIGHT * max(map(len, frames)) + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>The view of the demo, drawn from sample values</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#14181f"/>',
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" fill="#d8dee9" xml:space="preserve">',
    ]
    for number, lines in enumerate(frames):
        parts.append(f'<g visibility="{"hidden" if number < len(frames) - 1 else "visible"}">')
        shown = ";".join("visible" if k == number else "hidden" for k in range(len(frames)))
        duration = len(frames) * FRAME_SECONDS
        how = f'calcMode="discrete" values="{shown}" dur="{duration}s" repeatCount="indefinite"'
        parts.append(f'<animate attributeName="visibility" {how}/>')
        for row, line in enumerate(lines):
            parts += texts(line, MARGIN + LINE_HEIGHT * (row + 0.8))
        parts.append("</g>")
    return "\n".join([*parts, "</g>", "</svg>", ""])


def texts(line: list[Segment], y: float) -> list[str]:
    found, column = [], 0
    for segment in Segment.simplify(line):
        text, style = segment.text.rstrip("\n"), segment.style
        if text.strip():
            lead = len(text) - len(text.lstrip())
            x = MARGIN + (column + lead) * CELL_WIDTH
            body = text.strip()
            looks = f' fill="{style.color.get_truecolor(MONOKAI).hex}"' if style and style.color else ""
            looks += ' font-weight="bold"' if style and style.bold else ""
            looks += ' opacity="0.6"' if style and style.dim else ""
            length = len(body) * CELL_WIDTH
            if style and style.bgcolor and not style.bgcolor.is_default:
                colour = style.bgcolor.get_truecolor(MONOKAI).hex
                box = f'width="{len(text) * CELL_WIDTH:.0f}" height="{LINE_HEIGHT}"'
                found.append(f'<rect x="{x - lead * CELL_WIDTH:.0f}" y="{y - 13:.0f}" {box} fill="{colour}"/>')
            found.append(f'<text x="{x:.0f}" y="{y:.0f}" textLength="{length:.0f}"{looks}>{escape(body)}</text>')
        column += segment.cell_length
    return found


if __name__ == "__main__":
    main()
