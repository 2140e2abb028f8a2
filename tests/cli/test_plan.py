"""`penstock plan`: single questions, and a topic that is made as planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Result, Run
from penstock.cli import exit_codes
from support.waiting import wait_until

PARTITIONS = ("plan", "partitions", "--peak-mb-s", "100", "--per-partition-mb-s", "10", "--consumers", "5")


def answer(result: Result) -> dict[str, object]:
    assert result.code == exit_codes.OK, result.messages
    found = json.loads(result.output)
    assert isinstance(found, dict)
    return found


def test_scripts_get_needed_and_rounded_partitions_with_reasons(run: Run) -> None:
    found = answer(run(*PARTITIONS, "--json"))
    assert (found["needed"], found["partitions"]) == (10, 12)
    assert "throughput: 100 MB/s ÷ 10 MB/s per partition = 10" in str(found["reasons"])


def test_scripts_get_the_total_bytes_of_document_000(run: Run) -> None:
    words = "plan storage --messages-per-s 1000000 --message-bytes 1000 --retention-days 7 --replication-factor 3"
    found = answer(run(*words.split(), "--overhead", "1.2", "--json"))
    assert found["total_bytes"] == pytest.approx(2.17728e15)


def test_a_person_gets_figures_reasons_notes_and_sources(run: Run) -> None:
    shown = run(*PARTITIONS).output
    for part in ("partitions\t12", "Why:", "Notes:", "Sources:", "partition-count: 002, Partition Count Calculation"):
        assert part in shown


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        ("brokers --ingest-mb-s 1 --network-mb-s 1250 --disk-write-mb-s 500", "brokers", 3),
        ("cost --brokers 100 --stored-gb 2000000 --messages-per-s 3e6 --egress-gb 500000", "infrastructure", 280_500),
        ("tiers --gb-per-day 1 --retention-days 7 --hot-days 1 --warm-days 1", "disk_saved_share", 6 / 7),
        ("right-size --brokers 20 --utilisation 0.4", "brokers", 12),
        ("consumers --mb-s 70 --per-consumer-mb-s 10 --partitions 12", "consumers", 10),
        ("registry --schemas 5000", "instances", 7),
        ("regions --model hub --load-mb-s 50 --load-mb-s 20", "cross_region_mb_s", 20),
        ("durability --replication-factor 3 --min-insync-replicas 2", "write_failures_survived", 1),
        ("milestones --mb-s 100", "scale", "large"),
        ("milestones --mb-s 5000", "next_from_mb_s", None),
        ("scaling --cpu 0.9 --network 0.1", "vertical", "scale CPU"),
        ("sizes --cores 9 --memory-gb 200", "sizes", {"cpu": 12, "memory": None}),
        ("sizes --cores 100 --large", "fits", True),
        (
            "right-size --brokers 20 --utilisation 0.4 --off-peak-brokers 6 --peak-hours-per-day 12",
            "off_peak_saving",
            1500,
        ),
        ("storage --messages-per-s 1 --message-bytes 1 --retention-class logs", "retained_bytes", 86_400),
        (
            "load --average-messages-per-s 3e6 --peak-messages-per-s 1e7 --message-bytes 1000 --brokers 100 "
            "--partitions 1000000 --fan-out 2 --producers 100000 --consumers 200000",
            "memory_bytes_per_broker",
            120e9,
        ),
    ],
)
def test_every_question_has_an_answer_for_scripts_and_one_for_people(
    run: Run, words: str, name: str, expected: object
) -> None:
    found = answer(run("plan", *words.split(), "--json"))
    assert found[name] == (pytest.approx(expected) if isinstance(expected, float) else expected)
    assert found["rules"]
    assert "Sources:" in run("plan", *words.split()).output


def test_own_values_are_used_and_named(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("[partitions]\nmultiple = 5\n")
    found = answer(run(*PARTITIONS, "--values", mine, "--json"))
    assert (found["partitions"], found["values_replaced"]) == (10, {"partitions.multiple": 5})
    assert "partitions.multiple = 5" in run(*PARTITIONS, "--values", mine).output
    listed = json.loads(run("plan", "values", "--values", mine, "--json").output)
    assert {"name": "partitions.multiple", "value": 5, "source": str(mine)}.items() <= next(
        one for one in listed if one["name"] == "partitions.multiple"
    ).items()
    mine.write_text("[partitions]\n# two lines down\nmultipel = 5\n")
    refused = run(*PARTITIONS, "--values", mine)
    assert refused.code == exit_codes.USAGE
    assert "line 3: partitions.multipel" in refused.messages
    assert "did you mean partitions.multiple?" in refused.messages


def test_questions_that_make_no_sense_are_refused(run: Run, tmp_path: Path) -> None:
    both = run(*PARTITIONS, "--current-mb-s", "5")
    assert (both.code, both.output) == (exit_codes.USAGE, "")
    assert "not both" in both.messages
    negative = run("plan", "milestones", "--mb-s", "-1")
    assert negative.code == exit_codes.USAGE
    assert run("plan", "durability", "--acks", "2").code == exit_codes.USAGE
    storage = ("plan", "storage", "--messages-per-s", "1", "--message-bytes", "1")
    assert run(*storage).code == exit_codes.USAGE
    assert "use one of logs" in run(*storage, "--retention-class", "log").messages
    assert run("plan", "sizes").code == exit_codes.USAGE
    assert run(*PARTITIONS, "--values", tmp_path / "none.toml").code == exit_codes.USAGE


def test_a_topic_is_created_grown_after_the_report_or_left(on: Run, topic: str) -> None:
    small = ("plan", "partitions", "--peak-mb-s", "1", "--per-partition-mb-s", "10", "--apply", topic)
    planned = on(*small, "--dry-run")
    assert f"would create {topic} with 6 partitions" in planned.output
    assert on("topics", "describe", topic).code == exit_codes.NOT_FOUND

    created = answer(on(*small, "--json"))["applied"]
    assert created == {"topic": topic, "partitions_before": None, "action": "create", "changed": True}
    wait_until(lambda: on("topics", "describe", topic).code == exit_codes.OK)

    refused = on(*PARTITIONS, "--apply", topic)
    assert refused.code == exit_codes.USAGE, "nobody is there to be asked"
    assert f"Topic {topic}: 6 → 12 partitions. This cannot be undone." in refused.messages

    grown = answer(on(*PARTITIONS, "--apply", topic, "--yes", "--json"))["applied"]
    assert isinstance(grown, dict)
    assert (grown["action"], grown["partitions_before"], grown["changed"]) == ("increase", 6, True)
    assert grown["impact"]["partitions"] == {"now": 6, "then": 12}

    # A broker of Apache Kafka may answer from older metadata for a moment.
    wait_until(lambda: f"{topic} has 12 partitions, which is enough" in on(*small).output)
