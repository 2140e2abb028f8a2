"""Problems for a person: where, what, and what to do, with the line of the file and a mark below it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.pipeline.model import Problem

LINE_CHARACTERS_MAX = 160


def describe(problems: Sequence[Problem], path: Path | None, text: str) -> str:
    """All problems, in the order of the file."""
    lines = text.splitlines()
    ordered = sorted(problems, key=lambda problem: problem.place)
    return "\n".join(_describe(problem, path, lines) for problem in ordered)


def _describe(problem: Problem, path: Path | None, lines: Sequence[str]) -> str:
    name = str(path) if path is not None else "pipeline"
    line, column = problem.place
    if not 1 <= line <= len(lines):
        parts = [f"{name}: {problem.message}" if not problem.message.startswith(name) else problem.message]
    else:
        shown = lines[line - 1].expandtabs(1)[:LINE_CHARACTERS_MAX]
        margin = f"{line:>5} | "
        mark = " " * (len(margin) - 2) + "| " + " " * min(column - 1, len(shown)) + "^"
        parts = [f"{name}:{line}:{column}: {problem.message}", margin + shown, mark]
    if problem.fix:
        parts.append(f"  fix: {problem.fix}")
    return "\n".join(parts)
