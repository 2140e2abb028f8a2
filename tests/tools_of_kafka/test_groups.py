"""kafka-consumer-groups and kafka-groups, and what Kafka's formatters read in `__consumer_offsets`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from clients.groups.librdkafka import Member, members, poll_until, produce
from support.kafka_tools import Said
from support.server_process import ServerProcess
from tools_of_kafka.both import Both

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("tools of Kafka")]
OFFSETS_PARTITIONS = 50
READ_TIMEOUT_MS = 800


@contextmanager
def live_members(
    both: Both, group_id: str, protocol: str, instance_id: str | None = None
) -> Iterator[tuple[Member, Member]]:
    """One member in each broker's group, that has read and committed all that is in the topic of the same name."""
    static = {"group_instance_id": instance_id} if instance_id else {}
    pair = both.each(lambda server: Member(server.bootstrap, group_id, protocol, client_id="worker-1", **static))
    with members(*pair):
        for member in pair:
            member.subscribe(group_id)
        poll_until("both read", lambda: all(len(member.read) == 4 for member in pair), *pair)
        for member in pair:
            member.consumer.commit(asynchronous=False)
        yield pair


@pytest.fixture
def stocked(both: Both, name: str) -> str:
    """A topic with two partitions and four records."""
    both.same("kafka-topics", "--create", "--topic", name, "--partitions", "2")
    for server in (both.kafka, both.penstock):
        produce(server.bootstrap, name, "a", "b", "c", partition=0)
        produce(server.bootstrap, name, "d", partition=1)
    return name


def groups(both: Both, *arguments: str, hide: tuple[tuple[str, ...], ...] = ()) -> Said:
    return both.same("kafka-consumer-groups", *arguments, hide=hide)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_listed_and_described(both: Both, stocked: str, protocol: str) -> None:
    group = ("--group", stocked)
    listings = ((), ("--state",), ("--type",), ("--state", "stable"), ("--state", "empty"), ("--type", protocol))
    with live_members(both, stocked, protocol, instance_id="desk-1") as pair:
        hide = tuple((member.consumer.memberid(),) for member in pair)
        for listing in listings:
            both.same_about(stocked, "kafka-consumer-groups", "--list", *listing)
        assert both.same_about(stocked, "kafka-groups", "--list")
        for options in ((), ("--members",), ("--state",)):
            groups(both, "--describe", *group, *options, hide=hide)
        for what in ("--members", "--state"):
            described = ("--describe", *group, what, "--verbose")
            kafka, penstock = (
                without_epochs(both.run(server, "kafka-consumer-groups", *described, hide=hidden))
                for server, hidden in zip((both.kafka, both.penstock), hide, strict=True)
            )
            assert penstock == kafka
        offsets = groups(both, "--describe", *group, hide=hide).output
        assert f"{stocked} {stocked} 0 3 3 0 HIDDEN /127.0.0.1 worker-1" in offsets


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_works_is_not_touched(both: Both, stocked: str, protocol: str) -> None:
    group = ("--group", stocked)
    with live_members(both, stocked, protocol):
        groups(both, "--reset-offsets", *group, "--to-earliest", "--topic", stocked, "--execute")
        groups(both, "--delete", *group)
        groups(both, "--delete-offsets", *group, "--topic", stocked)
        assert (
            f"{stocked} {stocked} 0 3 3 0"
            in both.run(both.penstock, "kafka-consumer-groups", "--describe", *group).output
        )
    for listing in (("--state",), ("--type",), ("--state", "stable"), ("--state", "empty")):
        both.same_about(stocked, "kafka-consumer-groups", "--list", *listing)
    groups(both, "--describe", *group, "--state")


RESETS = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-offset", "2"),
    ("--shift-by", "-1"),
    ("--to-datetime", "2020-01-01T00:00:00.000"),
    ("--to-datetime", "2100-01-01T00:00:00.000"),
    ("--by-duration", "PT1H"),
    ("--to-current",),
)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_offsets_of_a_group_are_reset_and_its_consumer_starts_there(
    both: Both, stocked: str, protocol: str, tmp_path: Path
) -> None:
    with live_members(both, stocked, protocol):
        pass
    reset = ("--reset-offsets", "--group", stocked)
    for how in RESETS if protocol == "classic" else RESETS[:1]:
        groups(both, *reset, "--topic", stocked, *how, "--dry-run")
        groups(both, *reset, "--all-topics", *how, "--execute")
        groups(both, "--describe", "--group", stocked)
    groups(both, *reset, "--topic", f"{stocked}:0", "--to-offset", "1", "--execute")
    exported = groups(both, *reset, "--all-topics", "--to-current", "--export", "--dry-run").output
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{stocked},0,2\n{stocked},1,0\n")
    assert f"{stocked},0,1" in exported.splitlines()
    groups(both, *reset, "--from-file", str(plan), "--execute")

    def read(server: ServerProcess) -> list[str]:
        member = Member(server.bootstrap, stocked, protocol)
        with members(member):
            member.subscribe(stocked)
            poll_until("the rest", lambda: len(member.read) == 2, member)
        return sorted(member.values())

    assert both.each(read) == (["c", "d"], ["c", "d"])


def test_offsets_and_groups_are_deleted(both: Both, stocked: str) -> None:
    with live_members(both, stocked, "classic"):
        pass
    groups(both, "--delete-offsets", "--group", stocked, "--topic", f"{stocked}:0")
    groups(both, "--describe", "--group", stocked)
    assert groups(both, "--delete", "--group", stocked).code == 0
    assert groups(both, "--describe", "--group", stocked).code in (0, 1)
    assert groups(both, "--delete", "--group", stocked).code in (0, 1)
    assert both.same_about(stocked, "kafka-consumer-groups", "--list") == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_formatters_read_the_offsets_topic(both: Both, stocked: str, protocol: str) -> None:
    with live_members(both, stocked, protocol) as pair:
        ids = [member.consumer.memberid() for member in pair]
        for member in pair:
            member.consumer.commit(offsets=[TopicPartition(stocked, 0, 2, metadata="half way")], asynchronous=False)
    groups(both, "--delete", "--group", stocked)
    for formatter in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter"):
        kafka, penstock = (
            read_offsets_topic(both, server, stocked, formatter, member)
            for server, member in zip((both.kafka, both.penstock), ids, strict=True)
        )
        assert penstock == kafka
        # Kafka's formatter has no word for the records of the new protocol.
        assert bool(penstock) == (protocol == "classic" or formatter == "OffsetsMessageFormatter")


def without_epochs(said: Said) -> str:
    """A new group of the new protocol begins with epoch 2 in Kafka and 1 in Penstock; clients only compare them."""
    return re.sub(r"(Stable) \d+ \d+|\d+ (\S+:0,1)", r"\1 EPOCH \2", said.output)


def read_offsets_topic(both: Both, server: ServerProcess, group_id: str, formatter: str, member: str) -> list[object]:
    """What the formatter prints about the group, with times and the member's id taken out."""
    place = ("--topic", "__consumer_offsets", "--partition", str(partition_of(group_id)), "--offset", "earliest")
    said = both.run(
        server, "kafka-console-consumer", *place, "--formatter", f"org.apache.kafka.tools.consumer.{formatter}",
        "--timeout-ms", str(READ_TIMEOUT_MS), hide=(member,),
    )  # fmt: skip
    # The formatters write nothing between two records.
    printed, records, position = said.output, [], 0
    decoder = json.JSONDecoder(parse_int=_no_times)
    while position < len(printed) and printed[position] == "{":
        record, position = decoder.raw_decode(printed, position)
        records.append(record)
    return [record for record in records if group_id in json.dumps(record["key"])]


def partition_of(group_id: str) -> int:
    """As Kafka has it: the hash of a Java string."""
    value = 0
    for character in group_id:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return (abs(signed) if signed != -(1 << 31) else 0) % OFFSETS_PARTITIONS


def _no_times(text: str) -> object:
    return "TIME" if len(text) == 13 else int(text)
