"""`penstock advise` against Penstock and Apache Kafka."""

from __future__ import annotations

import json

from cli.running import Run
from penstock.cli import exit_codes


def test_a_group_that_is_behind_is_named_with_evidence_and_command(on: Run, topic: str) -> None:
    assert on("topics", "create", topic, "--partitions", 1).code == 0
    assert on("produce", topic, stdin="a\n").code == 0
    assert on("consume", topic, "--from-beginning", "--group", topic, "--max-messages", 1).code == 0
    assert on("produce", topic, stdin="x\n" * 11_000).code == 0
    result = on("advise", "--seconds", 1, "--json")
    assert result.code == 0, result.messages
    found = {one["subject"]: one for one in json.loads(result.output)["items"]}
    item = found[f"group {topic}"]
    assert item["code"] == "consumers.start"
    assert item["command"] == f"penstock groups describe {topic}"
    assert any("unread records" in line for line in item["evidence"])
    assert "start consumers" in on("advise", "--seconds", 1).output


def test_a_cluster_that_is_not_there_is_said(run: Run) -> None:
    result = run("advise", "-b", "127.0.0.1:1")
    assert result.code == exit_codes.UNREACHABLE


def test_inputs_that_make_no_sense_are_refused(run: Run) -> None:
    assert run("advise", "--per-consumer", "0").code == exit_codes.USAGE
    assert run("advise", "--scrape", "x").code == exit_codes.USAGE
