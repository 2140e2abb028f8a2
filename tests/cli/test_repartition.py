"""`penstock topics repartition`: what it says before Spark is needed. `tests/pipeline/repartition` runs it."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from cli.running import Run
from penstock.cli import exit_codes


def keyed(bootstrap: str, topic: str, partitioner: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": partitioner})
    for number in range(200):
        producer.produce(topic, b"v", f"key-{number}".encode())
    assert producer.flush(30) == 0


def test_a_dry_run_tells_what_is_copied_where_keys_go_and_how_the_topic_is_fenced(
    on: Run, bootstrap: str, topic: str
) -> None:
    on("topics", "create", topic, "--partitions", "3")
    keyed(bootstrap, topic, "consistent_random")
    told = on("topics", "repartition", topic, "--partitions", "7", "--dry-run", "--json")
    assert told.code == 0, told.messages
    plan = json.loads(told.output)
    assert plan["partitions"] == {"now": 3, "then": 7}
    assert (plan["target"], plan["offsets_to_copy"], plan["groups"]) == (f"{topic}.p7", 200, [])
    assert plan["partitioner"] == "consistent_random"
    assert plan["fence"] in ("penstock.read.only=true", "max.message.bytes=0")
    listed = on("topics", "list", f"{topic}*", "--json")
    assert [one["topic"] for one in json.loads(listed.output)] == [topic]


def test_a_partitioner_that_is_not_known_is_not_guessed(on: Run, bootstrap: str, topic: str) -> None:
    on("topics", "create", topic, "--partitions", "3")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(200):
        producer.produce(topic, b"v", f"key-{number}".encode(), partition=number % 3)
    assert producer.flush(30) == 0
    refused = on("topics", "repartition", topic, "--partitions", "7", "--dry-run")
    assert refused.code == exit_codes.REFUSED
    assert "--partitioner" in refused.messages
    told = on("topics", "repartition", topic, "--partitions", "7", "--dry-run", "--partitioner", "murmur2_random")
    assert told.code == 0, told.messages


def test_what_makes_no_sense_is_refused_before_anything_changes(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    for options, code in (
        (("--partitions", "2"), exit_codes.USAGE),  # nobody to ask, and no --yes
        (("--yes",), exit_codes.USAGE),
        (("--partitions", "2", "--yes", "--lease", "1h"), exit_codes.USAGE),
        (("--status", "--abort"), exit_codes.USAGE),
        (("--partitions", "2", "--yes", "--partitioner", "random"), exit_codes.USAGE),
        (("--status",), exit_codes.NOT_FOUND),
        (("--abort",), exit_codes.NOT_FOUND),
    ):
        assert on("topics", "repartition", topic, *options).code == code, options
    assert on("topics", "repartition", f"{topic}-no", "--partitions", "2", "--yes").code == exit_codes.NOT_FOUND
