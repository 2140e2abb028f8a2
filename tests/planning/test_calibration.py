"""The calibration file: what it says is used, and nonsense is refused."""

from __future__ import annotations

import json

import pytest

from penstock.planning.calibration import PARTITION_MB_S, Calibration, Measure, read_calibration
from penstock.planning.catalogue import PlanError

FOUND = Calibration(
    machine={"processor": "x", "cores": "8"},
    target="3 brokers",
    taken_at="2026-11-18T00:00:00+00:00",
    measures={PARTITION_MB_S: Measure(value=42.5, unit="MB/s", how="one partition")},
    missing={"tls_cost": "no TLS listener"},
)


def test_a_file_is_read_back_as_written() -> None:
    assert read_calibration(FOUND.to_json(), "c.json") == FOUND


def test_a_figure_that_was_not_measured_says_why() -> None:
    with pytest.raises(PlanError, match="no TLS listener"):
        FOUND["tls_cost"]


def test_another_kind_of_machine_is_told() -> None:
    assert FOUND.differences({"processor": "y", "cores": "8"}) == ["processor is y here and was x"]
    assert FOUND.differences(FOUND.machine) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 9}, "calibrate again"),
        ({"measures": []}, "is no calibration"),
        ({"measures": {"x": {"value": -1}}}, "0 or more"),
        ({"measures": {"x": {"value": "1"}}}, "0 or more"),
        ({"measures": {"x": 3}}, "0 or more"),
        ({"measures": {"x": {"value": float("nan")}}}, "0 or more"),
    ],
)
def test_nonsense_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        read_calibration(json.dumps(json.loads(FOUND.to_json()) | change), "c.json")


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_what_is_no_file_of_ours_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is no calibration"):
        read_calibration(text, "c.json")
