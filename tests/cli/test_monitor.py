"""`penstock monitor` against Penstock and Apache Kafka, with what the protocol alone tells."""

from __future__ import annotations

import json

import pytest

from cli.running import Run
from penstock.cli import exit_codes


def test_one_look_tells_topics_brokers_and_groups(on: Run, topic: str) -> None:
    assert on("topics", "create", topic, "--partitions", 2).code == 0
    assert on("produce", topic, "-p", 0, stdin="a\nb\nc\n").code == 0
    assert on("consume", topic, "--from-beginning", "--group", topic, "--max-messages", 1).code == 0
    assert on("produce", topic, "-p", 0, stdin="d\n" * 50).code == 0
    result = on("monitor", "--once", "--json", "--no-write")
    assert result.code == 0, result.messages
    found = {(one["kind"], one["name"], one["metric"]): one["value"] for one in json.loads(result.output)}
    assert found["cluster", "", "brokers"] == 1
    assert found["cluster", "", "offline_partitions"] == 0
    assert found["cluster", "", "under_min_isr_partitions"] == 0
    assert found["cluster", "", "active_controllers"] == 1
    assert found["topic", topic, "partitions"] == 2
    assert found["topic", topic, "size_bytes"] > 0
    assert found["topic", topic, "messages_in_per_s"] == 0
    assert found["group", topic, "lag_records"] > 0
    assert 0 < found["group", topic, "lag_s"] < 600
    assert found["group", topic, "members"] == 0
    broker = next(name for kind, name, metric in found if kind == "broker" and metric == "up")
    assert found["broker", broker, "up"] == 1
    assert found["broker", broker, "disk_used_share"] > 0
    assert found["cluster", "", "unassessed"] == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--scrape", "one=127.0.0.1:1"), "it must be ID=HOST:PORT"),
        (("--scrape", "1"), "it must be ID=HOST:PORT"),
        (("--pipeline", "=127.0.0.1:1"), "it must be NAME=HOST:PORT"),
        (("--scrape", "1=nowhere"), "nowhere"),
        (("--interval", "0"), "greater than or equal to 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    result = run("monitor", "--once", *arguments)
    assert result.code == exit_codes.USAGE
    assert reason in result.messages


def test_a_cluster_that_is_not_there_is_said(run: Run) -> None:
    result = run("monitor", "--once", "--no-write", "-b", "127.0.0.1:1")
    assert result.code == exit_codes.UNREACHABLE
    assert "127.0.0.1:1" in result.messages
