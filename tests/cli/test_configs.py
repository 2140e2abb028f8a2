"""`penstock configs` against a cluster."""

from __future__ import annotations

import json
import time

from cli.running import Run
from penstock.cli import exit_codes


def shown(on: Run, *arguments: object) -> dict[str, dict[str, object]]:
    result = on("configs", "describe", *arguments, "--json")
    assert result.code == exit_codes.OK, result.messages
    (one,) = json.loads(result.output)
    return {config["name"]: config for config in one["configs"]}


def test_a_topics_own_settings_are_shown_and_with_all_everything(on: Run, topic: str) -> None:
    on("topics", "create", topic, "--config", "retention.ms=5000")
    own = shown(on, "--topic", topic)
    assert list(own) == ["retention.ms"]
    assert own["retention.ms"] == {"name": "retention.ms", "value": "5000", "source": "topic", "read-only": False}
    everything = shown(on, "--topic", topic, "--all")
    assert everything["segment.bytes"]["value"] == "1073741824"
    assert everything["segment.bytes"]["source"] == "default"
    assert len(everything) > 30


def test_settings_are_added_and_taken_back(on: Run, topic: str) -> None:
    on("topics", "create", topic, "--config", "flush.ms=1000")
    settings = ("--add", "retention.ms=5000", "--add", "segment.ms=9", "--delete", "flush.ms")
    changed = on("configs", "alter", "--topic", topic, *settings)
    assert (changed.code, changed.output) == (exit_codes.OK, f"topic {topic} is altered\n")
    assert {name: config["value"] for name, config in shown(on, "--topic", topic).items()} == {
        "retention.ms": "5000", "segment.ms": "9",
    }  # fmt: skip


def test_lists_can_be_added_to_and_taken_from(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    assert on("configs", "alter", "--topic", topic, "--subtract", "cleanup.policy=delete").code == exit_codes.OK
    assert shown(on, "--topic", topic)["cleanup.policy"]["value"] == ""
    assert on("configs", "alter", "--topic", topic, "--append", "cleanup.policy=delete").code == exit_codes.OK
    assert shown(on, "--topic", topic)["cleanup.policy"]["value"] == "delete"


def test_what_the_cluster_refuses_changes_nothing(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    result = on("configs", "alter", "--topic", topic, "--add", "retention.ms=5000", "--add", "segment.ms=soon")
    assert result.code == exit_codes.REFUSED
    assert "segment.ms" in result.messages
    assert shown(on, "--topic", topic) == {}


def test_a_dry_run_changes_nothing(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    result = on("configs", "alter", "--topic", topic, "--add", "retention.ms=5000", "--dry-run")
    assert (result.code, result.output) == (exit_codes.OK, f"topic {topic} would be altered\n")
    assert shown(on, "--topic", topic) == {}


def test_the_settings_of_a_topic_that_is_not_there(on: Run, topic: str) -> None:
    assert on("configs", "describe", "--topic", topic).code == exit_codes.NOT_FOUND
    assert on("configs", "alter", "--topic", topic, "--add", "retention.ms=5").code == exit_codes.NOT_FOUND


def test_a_brokers_settings(on: Run) -> None:
    everything = shown(on, "--broker", 1, "--all")
    assert everything["num.partitions"]["value"] == "1"
    assert everything["num.partitions"]["read-only"] is True
    assert everything["log.retention.ms"]["read-only"] is False


def test_a_brokers_setting_changes_at_run_time(on: Run) -> None:
    assert on("configs", "alter", "--all-brokers", "--add", "log.segment.delete.delay.ms=54321").code == exit_codes.OK
    try:
        deadline_s = time.monotonic() + 60
        while True:
            own = shown(on, "--broker", 1)["log.segment.delete.delay.ms"]
            # Apache Kafka's brokers take up a change some time after it was acknowledged.
            if own["value"] == "54321" or time.monotonic() > deadline_s:
                break
        assert (own["value"], own["source"]) == ("54321", "broker, at run time")
    finally:
        result = on("configs", "alter", "--broker", 1, "--delete", "log.segment.delete.delay.ms")
    assert result.code == exit_codes.OK
    assert "log.segment.delete.delay.ms" not in shown(on, "--broker", 1)


def test_what_cannot_change_at_run_time_is_refused(on: Run) -> None:
    result = on("configs", "alter", "--broker", 1, "--add", "num.partitions=3")
    assert result.code == exit_codes.REFUSED
    assert "num.partitions" in result.messages
