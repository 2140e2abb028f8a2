"""The benchmark of sizes does what it says, at a size that takes no time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import scale, scale_controller, scale_groups


def test_every_number_that_is_printed_is_measured(tmp_path: Path) -> None:
    said: list[str] = []
    controller = scale_controller.measure(200, said.append)
    groups = scale_groups.measure(3, said.append)
    assert (controller["partitions"], controller["topics"], groups["members"]) == (200, 20, 60)
    assert controller["failure_partitions"] >= controller["failure_elections"] > 0
    for name, measured, rows in (
        ("partitions", controller, scale.CONTROLLER_ROWS),
        ("groups", groups, scale.GROUP_ROWS),
    ):
        assert set(measured) == {name, *(key for key, *_ in rows)}
        assert scale.table(name, [measured], rows).row_count == len(rows)
    pytest.importorskip("matplotlib")
    picture = scale.draw({"controller": [controller], "groups": [groups]}, tmp_path)
    assert picture.read_text().startswith("<?xml")
