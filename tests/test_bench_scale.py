"""The benchmark of sizes does what it says, at a size that takes no time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import scale


def test_every_number_that_is_printed_is_measured(tmp_path: Path) -> None:
    said: list[str] = []
    sizes = {"controller": 200, "plans": 200, "groups": 3}
    results = {what: measure(sizes[what], said.append) for what, (measure, _, _) in scale.MEASURES.items()}
    controller, plans = results["controller"], results["plans"]
    assert (controller["partitions"], controller["topics"], results["groups"]["members"]) == (200, 20, 60)
    assert controller["failure_partitions"] >= controller["failure_elections"] > 0
    assert (plans["fourth_replicas"], plans["drained_replicas"]) == (150, 6)
    for what, (_, name, rows) in scale.MEASURES.items():
        assert set(results[what]) == {name, *(key for key, *_ in rows)}
        assert scale.table(name, [results[what]], rows).row_count == len(rows)
    pytest.importorskip("matplotlib")
    picture = scale.draw({what: [measured] for what, measured in results.items()}, tmp_path)
    assert picture.read_text().startswith("<?xml")
