"""A calibration: what a machine was measured to do, in place of the documents' 10, 50 and 100 MB/s. Pure.

`penstock perf calibrate` writes the file; `penstock plan partitions --calibration` and `penstock advise --calibration`
read it. Every figure says how it was measured. A file of another kind of machine is used only with a warning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from penstock.planning.catalogue import PlanError

FORMAT: Final = 1
FILE_CHARS_MAX: Final = 1_000_000
PARTITION_MB_S: Final = "partition_mb_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    value: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    machine: Mapping[str, str]
    """What the figures hold for: processor, cores, memory."""
    target: str
    """What was measured: the software and the number of brokers."""
    taken_at: str
    measures: Mapping[str, Measure] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    """What was not measured, and why."""

    def __getitem__(self, name: str) -> float:
        if name not in self.measures:
            why = self.missing.get(name, "it was not measured")
            raise PlanError(f"the calibration has no {name}: {why}")
        return self.measures[name].value

    def differences(self, machine: Mapping[str, str]) -> list[str]:
        """How another machine differs from the one that was measured."""
        return [
            f"{name} is {machine[name]} here and was {self.machine[name]}"
            for name in self.machine
            if name in machine and machine[name] != self.machine[name]
        ]

    def to_json(self) -> str:
        measures = {name: {"value": one.value, "unit": one.unit, "how": one.how} for name, one in self.measures.items()}
        found = {
            "format": FORMAT, "machine": dict(self.machine), "target": self.target, "taken_at": self.taken_at,
            "measures": measures, "missing": dict(self.missing),
        }  # fmt: skip
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def read_calibration(text: str, origin: str) -> Calibration:
    """The calibration in a file. Raises PlanError."""
    try:
        found = json.loads(text) if len(text) <= FILE_CHARS_MAX else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("measures"), dict):
        raise PlanError(f"{origin} is no calibration; `penstock perf calibrate` writes one")
    if found.get("format") != FORMAT:
        raise PlanError(f"{origin} has the format {found.get('format')}; this version reads {FORMAT}: calibrate again")
    measures = {}
    for name, one in found["measures"].items():
        value = one.get("value") if isinstance(one, dict) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value < 0:
            raise PlanError(f"{origin}: {name} is {value!r}: a number of 0 or more is needed")
        measures[name] = Measure(value=value, unit=str(one.get("unit", "")), how=str(one.get("how", "")))
    return Calibration(
        machine=_texts(found.get("machine")),
        target=str(found.get("target", "")),
        taken_at=str(found.get("taken_at", "")),
        measures=measures,
        missing=_texts(found.get("missing")),
    )


def _texts(found: object) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
