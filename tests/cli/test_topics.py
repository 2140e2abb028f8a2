"""`penstock topics` against a cluster."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from cli.running import Run
from penstock.cli import exit_codes


def described(on: Run, topic: str) -> dict[str, object]:
    result = on("topics", "describe", topic, "--json")
    assert result.code == exit_codes.OK, result.messages
    (one,) = json.loads(result.output)
    assert isinstance(one, dict)
    return one


def partition_count(on: Run, topic: str) -> int:
    partitions = described(on, topic)["partitions"]
    assert isinstance(partitions, list)
    return len(partitions)


def test_a_topic_is_created_listed_described_and_deleted(on: Run, topic: str) -> None:
    created = on("topics", "create", topic, "--partitions", 3, "--config", "retention.ms=3600000")
    assert (created.code, created.output) == (exit_codes.OK, f"created {topic}\n")

    listed = on("topics", "list", topic)
    assert listed.lines == ["topic\tpartitions\treplicas\tunder-replicated", f"{topic}\t3\t1\t0"]

    one = described(on, topic)
    assert one["configs"] == {"retention.ms": "3600000"}
    assert one["internal"] is False
    assert isinstance(one["id"], str)
    assert len(one["id"]) == 22
    partitions = one["partitions"]
    assert isinstance(partitions, list)
    assert [partition["partition"] for partition in partitions] == [0, 1, 2]
    for partition in partitions:
        assert partition["replicas"] == partition["isr"] == [partition["leader"]]
        assert (partition["first"], partition["end"]) == (0, 0)

    deleted = on("topics", "delete", topic, "--yes")
    assert (deleted.code, deleted.output) == (exit_codes.OK, f"deleted {topic}\n")
    assert on("topics", "list", topic).lines[1:] == []


def test_offsets_follow_what_is_written(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    on("produce", topic, stdin="a\nb\nc\n")
    table = on("topics", "describe", topic)
    assert table.lines[1].split("\t") == ["partition", "leader", "replicas", "isr", "first", "end", "records"]
    assert table.lines[2].split("\t")[4:] == ["0", "3", "3"]
    assert "first" not in on("topics", "describe", topic, "--no-offsets").output


@pytest.fixture
def filled(on: Run, topic: str) -> str:
    """A topic with ten records in each of two partitions, a second apart."""
    on("topics", "create", topic, "--partitions", 2)
    for partition in (0, 1):
        lines = [json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n * 1000}) for n in range(10)]
        assert on("produce", topic, "-p", partition, "--format", "json", stdin="\n".join(lines)).code == 0
    return topic


def firsts(on: Run, topic: str) -> list[int]:
    (described,) = json.loads(on("topics", "describe", topic, "--json").output)
    return [partition["first"] for partition in described["partitions"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--before-offset", 4), [4, 4]),
        (("--before-offset", 99), [10, 10]),
        (("--keep-last", 3), [7, 7]),
        (("--keep-last", 99), [0, 0]),
        (("--before-time", 1_700_000_006_000), [6, 6]),
        (("--before-time", "2030-01-01T00:00:00Z"), [10, 10]),
        (("--before-offset", 4, "--partition", 1), [0, 4]),
    ],
)
def test_the_oldest_records_are_trimmed(on: Run, filled: str, options: tuple[object, ...], expected: list[int]) -> None:
    shown = on("topics", "trim", filled, *options, "--dry-run")
    assert shown.code == exit_codes.OK
    assert firsts(on, filled) == [0, 0]
    refused = on("topics", "trim", filled, *options)
    assert (refused.code == exit_codes.USAGE) == any(expected)
    assert firsts(on, filled) == [0, 0]
    done = json.loads(on("topics", "trim", filled, *options, "--yes", "--json").output)
    assert done["executed"] == any(expected)
    assert sum(one["deleted"] for one in done["partitions"]) == sum(expected)
    assert firsts(on, filled) == expected


def test_what_a_trim_needs_is_told(on: Run, filled: str) -> None:
    assert on("topics", "trim", filled).code == exit_codes.USAGE
    assert on("topics", "trim", filled, "--keep-last", 1, "--before-offset", 1).code == exit_codes.USAGE
    assert on("topics", "trim", filled, "--before-time", "soon").code == exit_codes.USAGE
    assert on("topics", "trim", filled, "--keep-last", 1, "--partition", 7).code == exit_codes.NOT_FOUND
    assert on("topics", "trim", filled[:-1], "--keep-last", 1).code == exit_codes.NOT_FOUND


def test_a_mistyped_setting_or_topic_is_answered_with_the_nearest(on: Run, topic: str) -> None:
    refused = on("topics", "create", topic, "--config", "retnetion.ms=1")
    assert refused.code == exit_codes.REFUSED
    assert "did you mean retention.ms?" in refused.messages
    on("topics", "create", topic)
    refused = on("configs", "alter", "--topic", topic, "--add", "cleanup.polcy=compact")
    assert "did you mean cleanup.policy?" in refused.messages
    for command in (
        ("topics", "delete", topic[:-1], "--yes"),
        ("configs", "describe", "--topic", topic[:-1]),
        ("configs", "alter", "--topic", topic[:-1], "--add", "retention.ms=1"),
        ("topics", "alter", topic[:-1], "--partitions", 3),
    ):
        refused = on(*command)
        assert refused.code == exit_codes.NOT_FOUND, refused.messages
        assert f"there is no topic {topic[:-1]}; did you mean {topic}?" in refused.messages


def test_a_topic_that_is_missing_is_told_in_json_too(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    result = on("topics", "describe", topic, f"{topic}-not", "--json")
    assert result.code == exit_codes.NOT_FOUND
    there, missing = json.loads(result.output)
    assert there["topic"] == topic
    assert missing == {"topic": f"{topic}-not", "error": f"there is no topic {topic}-not; did you mean {topic}?"}
    assert json.loads(result.messages)["error"]["code"] == exit_codes.NOT_FOUND


def test_defaults_are_the_clusters(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == exit_codes.OK
    assert partition_count(on, topic) == 1


def test_a_topic_that_is_there_cannot_be_created_again(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    again = on("topics", "create", topic)
    assert again.code == exit_codes.ALREADY_EXISTS
    assert "--if-not-exists" in again.messages
    fine = on("topics", "create", topic, "--if-not-exists")
    assert (fine.code, fine.output) == (exit_codes.OK, f"{topic} is already there\n")


def test_one_bad_topic_among_several_is_told_and_the_others_are_made(on: Run, topic: str) -> None:
    result = on("topics", "create", topic, "not/a/name", "--json")
    assert result.code == exit_codes.REFUSED
    by_name = {one["topic"]: one for one in json.loads(result.output)}
    assert by_name[topic]["created"] is True
    assert by_name["not/a/name"]["created"] is False
    assert by_name["not/a/name"]["error"]


def test_a_dry_run_creates_nothing(on: Run, topic: str) -> None:
    result = on("topics", "create", topic, "--dry-run")
    assert (result.code, result.output) == (exit_codes.OK, f"would create {topic}\n")
    assert on("topics", "describe", topic).code == exit_codes.NOT_FOUND


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--replication-factor", 99), "more replicas than the cluster has brokers"),
        (("--config", "retention.ms=soon"), "retention.ms"),
        (("--config", "no.such=1"), "no.such"),
        (("--replica-assignment", "77"), "77"),
    ],
    ids=["replication-factor", "value", "name", "assignment"],
)
def test_what_the_cluster_refuses_is_told(on: Run, topic: str, options: tuple[object, ...], told: str) -> None:
    result = on("topics", "create", topic, *options)
    assert result.code == exit_codes.REFUSED
    assert told in result.messages


@pytest.mark.parametrize("command", ["describe", "delete", "alter"])
def test_a_topic_that_is_not_there(on: Run, topic: str, command: str) -> None:
    options = {"describe": (), "delete": ("--yes",), "alter": ("--partitions", 3)}[command]
    result = on("topics", command, topic, *options)
    assert result.code == exit_codes.NOT_FOUND
    assert "penstock topics list" in result.messages


def test_deleting_what_is_not_there_may_be_fine(on: Run, topic: str) -> None:
    assert on("topics", "delete", topic, "--yes", "--if-exists").code == exit_codes.OK


def test_more_partitions_are_added_after_a_report_of_what_follows(on: Run, topic: str) -> None:
    on("topics", "create", topic, "--partitions", 2)
    on("produce", topic, "--key-separator", ":", stdin="".join(f"key-{n}:v\n" for n in range(200)))

    unasked = on("topics", "alter", topic, "--partitions", 4)
    assert unasked.code == exit_codes.USAGE
    assert "--yes" in unasked.messages
    assert partition_count(on, topic) == 2

    dry = on("topics", "alter", topic, "--partitions", 4, "--dry-run", "--json")
    impact = json.loads(dry.output)["impact"]
    assert impact["partitions"] == {"now": 2, "then": 4}
    assert impact["records_sampled"] == 200
    assert impact["keys"]["sampled"] == 200
    assert impact["keys"]["partitioner"].startswith("murmur2")
    assert 50 < impact["keys"]["moved"] < 150
    assert impact["keeps_order_by_key"] is False
    assert partition_count(on, topic) == 2

    done = on("topics", "alter", topic, "--partitions", 4, "--yes")
    assert done.code == exit_codes.OK
    assert "2 → 4 partitions" in done.messages
    assert "Order by key: NOT kept" in done.messages
    assert partition_count(on, topic) == 4


def test_the_sample_is_of_the_newest_records_and_no_larger_than_asked(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    on("produce", topic, stdin="".join(f"{n}\n" for n in range(50)))
    dry = on("topics", "alter", topic, "--partitions", 2, "--dry-run", "--sample", 20)
    assert "none of the 20 newest records has one" in dry.output
    assert "Order by key: kept" in dry.output


def test_groups_that_read_the_topic_are_named(on: Run, topic: str, bootstrap: str) -> None:
    on("topics", "create", topic)
    before = json.loads(on("topics", "alter", topic, "--partitions", 2, "--dry-run", "--json").output)["impact"]
    assert before["groups"] == []
    if before["groups_unknown"]:
        pytest.skip(f"this cluster cannot tell: {before['groups_unknown']}")
    group = f"readers-of-{topic}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
    # The first group of a cluster finds a coordinator that is still being set up.
    while admin.alter_consumer_group_offsets([wanted])[group].result(60).topic_partitions[0].error is not None:
        pass
    after = on("topics", "alter", topic, "--partitions", 2, "--dry-run")
    assert f"    {group} (empty, members: 0)" in after.lines


@pytest.mark.parametrize(("partitions", "told"), [(1, "cannot lose partitions"), (2, "already has 2 partitions")])
def test_fewer_or_equal_partitions_are_refused(on: Run, topic: str, partitions: int, told: str) -> None:
    on("topics", "create", topic, "--partitions", 2)
    result = on("topics", "alter", topic, "--partitions", partitions, "--yes")
    assert result.code == exit_codes.REFUSED
    assert told in result.messages


def test_settings_are_altered_with_the_topic(on: Run, topic: str) -> None:
    on("topics", "create", topic, "--config", "flush.ms=1000")
    result = on("topics", "alter", topic, "--config", "retention.ms=5000", "--delete-config", "flush.ms", "--json")
    assert result.code == exit_codes.OK
    assert json.loads(result.output)["configs"] == {"retention.ms": "5000"}
