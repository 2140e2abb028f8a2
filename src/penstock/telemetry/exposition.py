"""Prometheus' text format, version 0.0.4: one block per family with its help, its type and its samples."""

from __future__ import annotations

import math
from collections.abc import Iterable

from penstock.telemetry.samples import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(samples: Iterable[Sample]) -> str:
    """The samples as text. They may come in any order; the lines of a family are grouped, as the format requires."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        family = families.get(sample.name)
        if family is None:
            families[sample.name] = [sample]
        else:
            family.append(sample)
    lines: list[str] = []
    for name, family in families.items():
        lines.append(f"# HELP {name} {_help(family[0].help)}")
        lines.append(f"# TYPE {name} {family[0].kind}")
        lines += [_line(sample) for sample in family]
    lines.append("")
    return "\n".join(lines)


def _line(sample: Sample) -> str:
    name, _, _, value, labels, suffix = sample
    if not labels:
        return f"{name}{suffix} {_number(value)}"
    told = ",".join([f'{key}="{_label(text)}"' for key, text in labels])
    return f"{name}{suffix}{{{told}}} {_number(value)}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
