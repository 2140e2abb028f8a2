"""`penstock plan cluster`: from a file, and from a cluster that runs."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from cli.running import Run
from penstock.cli import exit_codes
from penstock.cli.plan_from_cluster import TopicFacts, topic_lines

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cluster.toml"
HARDWARE = """[cluster]
per_partition_mb_s = 10
replication_factor = 1
[broker]
network_mb_s = 1250
disk_write_mb_s = 500
disk_gb = 1000
"""


def test_a_design_is_answered_with_alternatives_and_sensitivity(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    result = run("plan", "cluster", EXAMPLE, "--json", "--html", page)
    assert result.code == exit_codes.OK, result.messages
    plan = json.loads(result.output)
    assert (plan["brokers"], plan["binding"]) == (54, "disk space")
    assert [topic["name"] for topic in plan["topics"]] == ["orders", "clicks", "audit"]
    assert plan["cost"]["total"] > plan["cost"]["infrastructure"] > 0
    assert plan["sensitivity"][0]["sentence"].startswith("twice the retention adds 51 brokers and $")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    shown = run("plan", "cluster", EXAMPLE).output
    for part in ("brokers\t54", "Alternatives:", "Sensitivity:", "Why:", "Sources:", "orders\t1\t18\tconsumers"):
        assert part in shown


def test_a_mistake_in_a_design_is_told_with_its_line(run: Run, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(EXAMPLE.read_text().replace("zones = 3", "zonse = 3"))
    refused = run("plan", "cluster", spec)
    assert (refused.code, refused.output) == (exit_codes.USAGE, "")
    assert f"{spec}, line 3: cluster has no entry zonse; did you mean zones?" in refused.messages
    assert run("plan", "cluster").code == exit_codes.USAGE
    assert run("plan", "cluster", tmp_path / "none.toml").code == exit_codes.USAGE
    assert run("plan", "cluster", EXAMPLE, "--spec-out", tmp_path / "x").code == exit_codes.USAGE


def test_a_running_cluster_gives_topics_rates_and_sizes(
    run: Run, on: Run, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    on("topics", "create", topic, "--partitions", 2, "--config", "retention.ms=86400000")
    assert on("produce", topic, stdin="".join(f"value {number:06}\n" for number in range(2000))).code == exit_codes.OK
    watching = ("--from-cluster", bootstrap, "--seconds", "0.1")

    written = tmp_path / "spec.toml"
    result = run("plan", "cluster", *watching, "--spec-out", written)
    assert result.code == exit_codes.OK, result.messages
    spec = tomllib.loads(written.read_text())
    assert spec["broker"]["count"] == 1
    (one,) = [one for one in spec["topics"] if one["name"] == topic]
    assert (one["partitions"], one["replication_factor"], one["retention_days"]) == (2, 1, 1)
    assert one["average_messages_per_s"] * 86_400 >= 1999
    assert one["peak_messages_per_s"] >= one["average_messages_per_s"]
    assert 1 <= one["message_bytes"] <= 100

    hardware = tmp_path / "hardware.toml"
    hardware.write_text(HARDWARE)
    planned = run("plan", "cluster", hardware, *watching, "--json")
    assert planned.code == exit_codes.OK, planned.messages
    assert topic in [one["name"] for one in json.loads(planned.output)["topics"]]

    refused = run("plan", "cluster", *watching)
    assert refused.code == exit_codes.USAGE
    assert "does not tell its hardware" in refused.messages
    assert run("plan", "cluster", EXAMPLE, *watching).code == exit_codes.USAGE, "it has topics of its own"


def test_an_idle_topic_has_the_average_over_its_retention() -> None:
    facts = TopicFacts(
        name="orders", partitions=6, replication_factor=3, records=864_000, stored_bytes=86_400_000,
        watched_per_s=0.0, retention_days=1.0, kept_forever=False, groups=2,
    )  # fmt: skip
    (table,) = tomllib.loads("\n".join(topic_lines(facts, 3.0)))["topics"]
    assert (table["average_messages_per_s"], table["peak_messages_per_s"]) == (10, 30)
    assert (table["message_bytes"], table["groups"]) == (100, 2)
    busy = facts._replace(watched_per_s=500.0, kept_forever=True)
    assert tomllib.loads("\n".join(topic_lines(busy, 1.0)))["topics"][0]["average_messages_per_s"] == 500
