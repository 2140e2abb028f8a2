"""What Spark says, without what it wraps around it: an error class, a plan, a state, stacks of Java and Python. Pure.

What the analyzer says of a query is a `sentence`; why a query that ran has failed is the `reason_of` it.

A failure in Python arrives as an exception of Java around an exception of Spark around a traceback of Python, and the
line that says what happened is the last of the traceback. A failure of Spark's own is its first line.
"""

from __future__ import annotations

import re

REASON_CHARACTERS_MAX = 1_000
NO_REASON = "Spark gives no reason"
PARSER_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")

LATE_WORKER = "Python worker failed to connect back"
"""What Spark says when a process of Python took too long to start; the machine is to blame, not the query."""
TOO_BUSY = "Spark's Python process repeatedly did not start in time: this machine is too busy; try again later"

RAISED = "[USER_RAISED_EXCEPTION]"
"""By `raise_error`, which a pipeline uses for records that do not parse."""
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Warning)|[A-Z]\w+): (.+)$")
_OURS = re.compile(r"^penstock\.[\w.]+\.(\w+): (.+)$")
_WRAPPED = re.compile(r"(?:Caused by: )?(?:[a-z]+\w*\.)+[A-Z]\w*(?:Exception|Error): (.+)")
_ERROR_CLASS = re.compile(r"\[([A-Z0-9_.]+)\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}.*")
_FIRST_CLASS = re.compile(rf"^\s*{_ERROR_CLASS.pattern}")
_TAIL = re.compile(_STATE.pattern, re.DOTALL)
_NOISE = (
    "An exception was raised by the Python Proxy", "Job aborted due to stage failure", "Writing job aborted",
    "Task failed while writing rows", "Query ", "=== Streaming Query ===",
)  # fmt: skip


def reason_of(text: str) -> str:
    """One line that names the thing."""
    if LATE_WORKER in text:
        return TOO_BUSY
    lines = [line.strip() for line in text.partition("=== Streaming Query ===")[0].splitlines() if line.strip()]
    for line in lines:
        if found := _OURS.match(line):
            return _short(found[2])
    for line in lines:
        if RAISED in line:
            return _short(_plain(line.partition(RAISED)[2]))
    python = [found for line in lines if (found := _PYTHON_ERROR.match(line)) and not line.startswith("Caused by")]
    if any(line.startswith(("Traceback", 'File "')) for line in lines) and python:
        last = python[-1]
        return _short(last[2] if last[1].startswith(("Runtime", "Value")) else f"{last[1]}: {last[2]}")
    causes = [found[1] for line in lines if line.startswith("Caused by: ") and (found := _WRAPPED.match(line))]
    for cause in reversed(causes):
        if not cause.startswith(_NOISE):
            return _short(_plain(cause))
    for line in lines:
        plain = _plain(line)
        if plain and not plain.startswith(_NOISE):
            return _short(plain)
    return _short(_plain(lines[0])) if lines else NO_REASON


def sentence(text: str) -> str:
    """The words of a message: no error class, no state, no plan, no stack."""
    if LATE_WORKER in text:
        return TOO_BUSY
    text = _FIRST_CLASS.sub("", text.strip())
    text = _TAIL.sub("", text)
    text = text.partition("\n\nJVM stacktrace")[0].partition("\n== SQL")[0]
    text = PARSER_PLACE.sub("", text).partition(";\n")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:3]).rstrip(" ;.") if lines else NO_REASON


def _plain(line: str) -> str:
    line = _STATE.sub("", line)
    if found := _WRAPPED.match(line):
        line = found[1]
    return _ERROR_CLASS.sub("", line).strip().rstrip(";.")


def _short(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS_MAX else text[: REASON_CHARACTERS_MAX - 1] + "…"
