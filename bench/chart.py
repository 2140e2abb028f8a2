"""Draws the results: throughputs side by side, and every ratio to Apache Kafka with its target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

_COLOURS = {"penstock": "#1b6ca8", "kafka": "#c8553d", "mock": "#b8b8b8"}
_TITLES = {"penstock": "Penstock", "kafka": "Apache Kafka", "mock": "librdkafka's mock (ceiling)"}

Result = Mapping[str, Any]


def draw(directory: Path) -> Path | None:
    """One picture of all results that are in the directory, of this run or an earlier one; None when there is none."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]
    throughputs = [one for one in results if any("mb_per_s" in sample for sample in one["samples"].get("kafka", []))]
    ratios = [row for one in results for row in _ratio_rows(one)]
    if not throughputs and not ratios:
        return None
    mpl.use("Agg")
    height = 1.8 + 0.55 * len(throughputs) + 0.3 * len(ratios)
    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(9, height), height_ratios=[max(1.0, 0.55 * len(throughputs)), max(1.0, 0.3 * len(ratios))]
    )
    _draw_throughputs(above, throughputs)
    _draw_ratios(below, ratios)
    figure.tight_layout()
    path = directory / "chart.svg"
    # Without a date and with fixed ids, equal results give equal files.
    mpl.rcParams["svg.hashsalt"] = "penstock"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _draw_throughputs(axes: Axes, results: Sequence[Result]) -> None:
    sides = ("penstock", "kafka", "mock")
    named: list[str] = []
    for row, result in enumerate(results):
        for index, side in enumerate(sides):
            samples = [sample["mb_per_s"] for sample in result["samples"].get(side, []) if "mb_per_s" in sample]
            if not samples:
                continue
            at = row + (index - 1) * 0.27
            median = sorted(samples)[len(samples) // 2]
            label = None if side in named else _TITLES[side]
            named.append(side)
            axes.barh(at, median, height=0.25, color=_COLOURS[side], label=label)
            axes.plot(samples, [at] * len(samples), "k.", markersize=2.5)
    axes.set_yticks(range(len(results)), [result["case"] for result in results])
    axes.invert_yaxis()
    axes.set_xlabel("MB/s (bars: medians, dots: samples)")
    axes.set_title("Throughput of records of 1 KB")
    axes.legend(loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_ratios(axes: Axes, rows: Sequence[tuple[str, float, str, float | None]]) -> None:
    for row, (_, ratio, better, target) in enumerate(rows):
        good = ratio >= 1 if better == "higher" else ratio <= 1
        axes.plot([1, ratio], [row, row], color="#2e8b57" if good else "#c8553d", linewidth=2)
        axes.plot(ratio, row, "o", color="#2e8b57" if good else "#c8553d")
        if target is not None:
            axes.plot(target, row, "k|", markersize=11, markeredgewidth=1.6)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(rows)), [label for label, *_ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("Penstock ÷ Apache Kafka (green: better; black mark: target)")
    axes.set_title("Ratios")
    axes.spines[["top", "right"]].set_visible(False)


def _ratio_rows(result: Result) -> list[tuple[str, float, str, float | None]]:
    """Label, ratio, which way is better, target: of each case's first metric and of those that have a target."""
    targets = {one["metric"]: one["bound"] for one in result["targets"] if one["against"] == "kafka"}
    rows = []
    for number, (name, metric) in enumerate(result["metrics"].items()):
        ratio = metric["median_ratio"].get("kafka")
        if ratio and ratio > 0 and (number == 0 or name in targets):
            arrow = "↑" if metric["better"] == "higher" else "↓"
            rows.append((f"{result['case']}: {metric['title']} {arrow}", ratio, metric["better"], targets.get(name)))
    return rows
