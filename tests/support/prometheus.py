"""Prometheus' text format, read as strictly as its specification allows.

`promtool`, where Debian's package `prometheus` is installed, has the last word: see `promtool_verdict`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
LINE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|[+-]Inf")
SUFFIXES = {"summary": ("", "_count", "_sum"), "counter": ("",), "gauge": ("",)}

Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass
class Family:
    kind: str
    help: str
    series: dict[Series, float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """The families of a page. An AssertionError names the line that Prometheus would not take."""
    assert text.endswith("\n") or not text
    families: dict[str, Family] = {}
    current = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            _, _, current, *words = line.split(" ", 3)
            assert current not in families, f"a second block of the family: {line}"
            families[current] = Family("", words[0] if words else "")
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            assert name == current, f"not after its help: {line}"
            assert not families[name].kind, line
            assert not families[name].series, line
            assert kind in SUFFIXES, line
            families[name].kind = kind
        else:
            family = families[current]
            key, value = _sample(line)
            assert key[0].removeprefix(current) in SUFFIXES[family.kind], f"not of the family {current}: {line}"
            assert key not in family.series, f"told twice: {line}"
            family.series[key] = value
    assert all(family.kind and family.series for family in families.values())
    return families


def _sample(line: str) -> tuple[Series, float]:
    found = LINE.fullmatch(line)
    assert found is not None, line
    name, labels, number = found.groups()
    assert NUMBER.fullmatch(number) is not None, line
    pairs = LABEL.findall(labels or "")
    assert ",".join(f'{key}="{text}"' for key, text in pairs) == (labels or ""), line
    assert len({key for key, _ in pairs}) == len(pairs), line
    return (name, tuple((key, _unescaped(text)) for key, text in pairs)), float(number)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def promtool_verdict(text: str) -> str | None:
    """What `promtool check metrics` finds unreadable in the page; None where promtool is not installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return None
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    # 3 means that names do not follow Prometheus' conventions; ours follow those of Kafka's exporters.
    return done.stderr if done.returncode not in (0, 3) else ""
