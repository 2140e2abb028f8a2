"""`penstock perf calibrate` against Penstock and Apache Kafka, and the planner with its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Run
from penstock.cli import exit_codes
from penstock.cli.perf_calibrate import this_machine
from penstock.planning.calibration import read_calibration


def test_a_calibration_is_measured_and_the_planner_uses_it(on: Run, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    result = on("perf", "calibrate", "--seconds", 0.2, "--disk", tmp_path, "-o", path)
    assert result.code == 0, result.messages
    found = read_calibration(path.read_text(), "it")
    assert found["partition_mb_s"] > 0
    assert found["write_mb_s.64kb_zstd"] > 0
    assert found["write_mb_s.500kb_none"] > found["write_mb_s.1kb_none"]
    assert found["read_mb_s"] > 0
    assert found["disk_write_mb_s"] > 0
    assert found.missing["cpu_s_per_gb"] == "give the brokers' endpoints with --scrape"
    assert "1/6: batches of 1 KB" in result.messages
    peak = found["partition_mb_s"] * 20
    plan = json.loads(run("plan", "partitions", "--peak-mb-s", peak, "--calibration", path, "--json").output)
    assert plan["needed"] == 20
    assert not [name for name in on("topics", "list").lines if name.startswith("penstock-calibration-")]


def test_a_file_of_another_machine_is_used_with_a_warning(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(
        json.dumps(
            {
                "format": 1,
                "machine": {**this_machine(), "processor": "Cray-1"},
                "measures": {"partition_mb_s": {"value": 10}},
            }
        )
    )
    result = run("plan", "partitions", "--peak-mb-s", 100, "--consumers", 5, "--calibration", path, "--json")
    assert json.loads(result.output)["partitions"] == 12
    assert "Cray-1" in result.messages


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("plan", "partitions", "--peak-mb-s", "5"), "--calibration"),
        (("plan", "partitions", "--peak-mb-s", "5", "--calibration", "/dev/null"), "is no calibration"),
        (("perf", "calibrate", "--disk", "/nowhere"), "no such directory"),
    ],
)
def test_what_cannot_be_planned_or_measured_is_said(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    result = run(*arguments)
    assert result.code == exit_codes.USAGE
    assert reason in result.messages
