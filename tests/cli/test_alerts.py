"""`penstock alerts` against Penstock and Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Run
from penstock.cli import exit_codes


def test_a_silence_is_listed_and_ended(on: Run) -> None:
    result = on("alerts", "silence", "BrokerDown", "--for", "2h", "--comment", "new disk", "--json")
    assert result.code == 0, result.messages
    made = json.loads(result.output)
    listed = json.loads(on("alerts", "list", "--json").output)
    assert made in listed["silences"]
    assert listed["alerts"] == []
    assert on("alerts", "silence", "--remove", made["id"]).code == 0
    assert made not in json.loads(on("alerts", "list", "--json").output)["silences"]
    assert on("alerts", "silence", "--remove", made["id"]).code == exit_codes.NOT_FOUND
    assert on("alerts", "list", "--check").code == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "name a rule"),
        (("BrokerDwn",), "did you mean BrokerDown?"),
        (("BrokerDown", "--for", "soon"), "no span of time"),
        (("BrokerDown", "--for", "400d"), "from 1 s to 90 d"),
        (("BrokerDown", "--comment", "x" * 400), "at most 300 characters"),
    ],
)
def test_silences_that_make_no_sense_are_refused(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    result = run("alerts", "silence", *arguments, "-b", "127.0.0.1:1")
    assert result.code == exit_codes.USAGE
    assert reason in result.messages


def test_rules_are_written_in_every_format(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text("[alert]\nlag_records_warning = 123\n")
    assert "OfflinePartitions\tcritical" in run("alerts", "rules").output
    assert run("alerts", "rules", "--format", "prometheus").output.startswith("# Alerts")
    assert "> 123\n" in run("alerts", "rules", "--format", "prometheus", "--values", own).output
    assert 'url: "http://x/"' in run("alerts", "rules", "--format", "alertmanager", "--webhook", "http://x/").output
    assert json.loads(run("alerts", "rules", "--format", "grafana").output)["uid"] == "penstock"
    rules = {one["name"]: one for one in json.loads(run("alerts", "rules", "--json").output)}
    assert rules["BrokerDown"]["for_s"] == 300


def test_a_value_that_does_not_exist_is_refused(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text("[alert]\nlag_record_warning = 123\n")
    result = run("alerts", "rules", "--values", own)
    assert result.code == exit_codes.USAGE
    assert "alert.lag_records_warning" in result.messages


def test_a_webhook_that_makes_no_sense_is_refused(run: Run) -> None:
    result = run("monitor", "--webhook", "somewhere", "-b", "127.0.0.1:1")
    assert result.code == exit_codes.USAGE
    assert "http://" in result.messages
