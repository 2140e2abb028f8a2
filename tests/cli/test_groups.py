"""`penstock groups list`, `describe`, `members`, `delete`, `delete-offsets` against a cluster."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer

from cli.grouping import WAIT_S, commit, described, partitions, polling, produce, read_from, reading
from cli.running import Run
from penstock.cli import exit_codes
from support.apache_kafka import available, kafka_tool

PROTOCOLS = ("classic", "consumer")


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def orders(on: Run, topic: str, bootstrap: str) -> str:
    """A topic of two partitions with ten records each."""
    assert on("topics", "create", topic, "--partitions", 2).code == exit_codes.OK
    for partition in (0, 1):
        produce(bootstrap, topic, partition, 10)
    return topic


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_living_group_is_listed_and_described(
    on: Run, bootstrap: str, orders: str, group: str, protocol: str
) -> None:
    with reading(bootstrap, group, orders, 20, **{"group.protocol": protocol}):
        produce(bootstrap, orders, 1, 3)
        assignor = {"classic": "range", "consumer": "uniform"}[protocol]
        listed = on("groups", "list", f"{group[:-3]}*", "--lag")
        assert listed.lines == [
            "group\tstate\ttype\tprotocol\tassignor\tmembers\tlag",
            f"{group}\tStable\t{protocol}\tconsumer\t{assignor}\t1\t3",
        ]
        one = described(on, group)
        assert (one["state"], one["type"], one["assignor"], one["members"]) == ("Stable", protocol, assignor, 1)
        assert (one["total_lag"], one["verdict"], one["source"]) == (3, "OK", "commits")
        coordinator = one["coordinator"]
        assert isinstance(coordinator, dict)
        assert f"{coordinator['host']}:{coordinator['port']}" == bootstrap
        by_partition = partitions(one)
        assert sorted(by_partition) == [0, 1]
        assert {key: by_partition[1][key] for key in ("committed", "start", "end", "lag")} == {
            "committed": 10, "start": 0, "end": 13, "lag": 3,
        }  # fmt: skip
        assert by_partition[0]["lag_seconds"] == 0
        age = by_partition[1]["lag_seconds"]
        assert isinstance(age, float)
        assert 0 < age < 60
        for partition in by_partition.values():
            assert (partition["topic"], partition["client"], partition["host"]) == (orders, "reader", "127.0.0.1")
            assert partition["owner"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_are_told_with_what_they_read(on: Run, bootstrap: str, orders: str, group: str, protocol: str) -> None:
    settings = {"group.protocol": protocol, "group.instance.id": f"instance-of-{group}"}
    with reading(bootstrap, group, orders, 0, **settings):
        result = on("groups", "members", group, "--json")
        assert result.code == exit_codes.OK, result.messages
        one = json.loads(result.output)
        (member,) = one["members"]
        assert member["instance"] == f"instance-of-{group}"
        assert (member["client"], member["host"], member["subscription"]) == ("reader", "127.0.0.1", [orders])
        both = [{"topic": orders, "partition": 0}, {"topic": orders, "partition": 1}]
        assert member["assignment"] == both
        if protocol == "consumer":
            assert member["target"] == both
            assert one["epoch"] >= member["epoch"] >= 1
            assert one["assignment_epoch"] >= 1
            assert member["type"] == "consumer"
        else:
            assert (member["target"], member["epoch"]) == (None, None)
        table = on("groups", "members", group)
        assert f"{orders}:0,1" in table.lines[2].split("\t")
        assert table.lines[1].split("\t")[-2:] == (
            ["epoch", "target"] if protocol == "consumer" else ["assignment", "subscription"]
        )


def test_two_members_share_the_partitions(on: Run, bootstrap: str, orders: str, group: str) -> None:
    with reading(bootstrap, group, orders, 0, **{"group.protocol": "consumer"}) as first:
        second = reading(bootstrap, group, orders, 0, **{"group.protocol": "consumer"})
        # The first has to hear that it must give something up before the second gets it.
        with polling(first), second:
            owners = {one["owner"] for one in partitions(described(on, group)).values()}
            assert len(owners) == 2
            result = on("groups", "members", group, "--json")
            assert sorted(len(one["assignment"]) for one in json.loads(result.output)["members"]) == [1, 1]


def test_a_group_that_waits_for_a_member_to_give_something_up(on: Run, bootstrap: str, orders: str, group: str) -> None:
    """The client library does not know this state; it only comes up while a member is slow to follow."""
    with reading(bootstrap, group, orders, 0, **{"group.protocol": "consumer"}):
        second = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
        second.subscribe([orders])
        try:
            deadline_s = time.monotonic() + WAIT_S
            state = ""
            while state != "Reconciling":
                assert time.monotonic() < deadline_s, state
                second.poll(0.1)
                (one,) = json.loads(on("groups", "list", group, "--json").output)
                state = one["state"]
            told = json.loads(on("groups", "members", group, "--json").output)
            assert told["state"] == "Reconciling"
            assert sorted(len(one["target"]) for one in told["members"]) == [1, 1]
            assert sorted(len(one["assignment"]) for one in told["members"]) in ([0, 1], [0, 2])
        finally:
            second.close()


@pytest.mark.compat
@pytest.mark.needs_maven
def test_the_numbers_are_those_of_kafkas_own_tool(on: Run, bootstrap: str, orders: str, group: str) -> None:
    if reason := available():
        pytest.skip(reason)
    with reading(bootstrap, group, orders, 20):
        produce(bootstrap, orders, 0, 5)
        told = kafka_tool("ConsumerGroupCommand", "--bootstrap-server", bootstrap, "--describe", "--group", group)
        ours = partitions(described(on, group))
    rows = [line.split() for line in told.stdout.splitlines() if line.startswith(group)]
    assert len(rows) == 2
    for row in rows:
        one = ours[int(row[2])]
        assert [str(one[key]) for key in ("topic", "partition", "committed", "end", "lag", "owner")] == row[1:7]


def test_groups_are_listed_by_state_and_type(on: Run, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, f"{group}-a", orders, {0: 5})
    with reading(bootstrap, f"{group}-b", orders, 0, **{"group.protocol": "consumer"}):

        def names(*options: object) -> list[str]:
            result = on("groups", "list", f"{group}-*", "--json", *options)
            assert result.code == exit_codes.OK, result.messages
            return [one["group"] for one in json.loads(result.output)]

        assert names() == [f"{group}-a", f"{group}-b"]
        assert names("--state", "empty") == [f"{group}-a"]
        assert names("--state", "Stable,Reconciling") == [f"{group}-b"]
        assert names("--type", "consumer") == [f"{group}-b"]
        assert names("--type", "classic", "--state", "Stable") == []


@pytest.mark.parametrize("command", ["describe", "members", "delete", "delete-offsets"])
def test_a_group_that_is_not_there(on: Run, command: str, group: str, topic: str) -> None:
    options = {"delete": ("--yes",), "delete-offsets": ("--topic", topic, "--yes")}.get(command, ())
    result = on("groups", command, group, *options)
    assert result.code == exit_codes.NOT_FOUND, result.messages
    assert "penstock groups" in result.messages


def test_one_that_is_not_there_among_others_is_told(on: Run, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, group, orders, {0: 10})
    result = on("groups", "describe", f"{group}-gone", group, "--json")
    assert result.code == exit_codes.NOT_FOUND
    there, gone = json.loads(result.output)
    assert there["group"] == group
    assert gone == {"group": f"{group}-gone", "error": f"there is no group {group}-gone; did you mean {group}?"}


def test_a_group_is_deleted_with_its_offsets(on: Run, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, group, orders, {0: 5})
    unasked = on("groups", "delete", group)
    assert (unasked.code, unasked.output) == (exit_codes.USAGE, "")
    assert "--yes" in unasked.messages
    done = on("groups", "delete", group, "--yes")
    assert (done.code, done.output) == (exit_codes.OK, f"deleted {group}\n")
    assert on("groups", "describe", group).code == exit_codes.NOT_FOUND
    assert on("groups", "delete", group, "--yes", "--if-exists").code == exit_codes.OK


def test_a_group_with_members_is_not_deleted(on: Run, bootstrap: str, orders: str, group: str) -> None:
    with reading(bootstrap, group, orders, 0):
        result = on("groups", "delete", group, "--yes", "--json")
        assert result.code == exit_codes.REFUSED
        assert json.loads(result.output)[0]["deleted"] is False
        assert "stop the consumers" in result.messages


def test_offsets_are_deleted_by_partition(on: Run, bootstrap: str, orders: str, group: str) -> None:
    commit(bootstrap, group, orders, {0: 5, 1: 7})
    dry = on("groups", "delete-offsets", group, "--topic", orders, "--dry-run")
    assert dry.lines[1:] == [f"{orders}\t0\t5\tno", f"{orders}\t1\t7\tno"]
    assert sorted(partitions(described(on, group))) == [0, 1]
    done = on("groups", "delete-offsets", group, "--topic", f"{orders}:1", "--yes")
    assert (done.code, done.lines[1:]) == (exit_codes.OK, [f"{orders}\t1\t7\tyes"])
    assert sorted(partitions(described(on, group))) == [0]
    assert read_from(bootstrap, group, orders, 5, reset="latest") == [(0, offset) for offset in range(5, 10)]


def test_offsets_of_a_topic_that_is_read_are_not_deleted(on: Run, bootstrap: str, orders: str, group: str) -> None:
    with reading(bootstrap, group, orders, 20):
        result = on("groups", "delete-offsets", group, "--topic", orders, "--yes", "--json")
        assert result.code == exit_codes.REFUSED
        assert "reads this topic" in result.messages
        assert [one["deleted"] for one in json.loads(result.output)["offsets"]] == [False, False]
    assert len(partitions(described(on, group))) == 2
