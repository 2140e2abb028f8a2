"""kafka-console-producer, kafka-console-consumer, kafka-dump-log and the performance tools."""

from __future__ import annotations

import re

import pytest

from support.server_process import ServerProcess
from tools_of_kafka.both import Both

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("tools of Kafka")]
EVERYTHING = (
    "print.key=true", "print.headers=true", "print.partition=true", "print.offset=true", "print.value=true"
)  # fmt: skip


def test_the_consoles_carry_keys_headers_nulls_and_positions(both: Both, name: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name, "--partitions", "3")
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    both.same(
        "kafka-console-producer", "--topic", name, *_properties("--reader-property", properties),
        given="h:1\tk1\tone\nh:2,i:3\tk2\ttwo\nNULL\tk1\tNULL\nNULL\tk3\tthree\n",
    )  # fmt: skip
    read = both.same(
        "kafka-console-consumer", "--topic", name, "--from-beginning", "--max-messages", "4",
        *_properties("--formatter-property", EVERYTHING),
    )  # fmt: skip
    assert len(read.output.splitlines()) == 4
    assert read.errors.endswith("Processed a total of 4 messages")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_console_consumer_goes_on_where_its_group_was(both: Both, name: str, protocol: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name)
    both.same("kafka-console-producer", "--topic", name, given="a\nb\nc\n")
    group = ("--topic", name, "--group", name, "--command-property", f"group.protocol={protocol}")
    first = both.same("kafka-console-consumer", *group, "--from-beginning", "--max-messages", "2")
    assert first.output.splitlines() == ["a", "b"]
    rest = both.same("kafka-console-consumer", *group, "--max-messages", "1")
    assert rest.output.splitlines() == ["c"]


def test_a_pattern_of_topics_and_a_single_partition_are_read(both: Both, name: str) -> None:
    for ending in ("eu", "us"):
        both.same("kafka-topics", "--create", "--topic", f"{name}-{ending}")
        both.same("kafka-console-producer", "--topic", f"{name}-{ending}", given=f"{ending}\n")
    read = both.each(
        lambda server: both.run(
            server, "kafka-console-consumer", "--include", f"{name}-.*", "--from-beginning", "--max-messages", "2"
        )
    )
    assert [sorted(said.output.splitlines()) for said in read] == [["eu", "us"]] * 2
    place = ("--topic", f"{name}-us", "--partition", "0", "--offset", "0")
    one = both.same("kafka-console-consumer", *place, "--max-messages", "1")
    assert one.output == "us"


def test_the_performance_tools_move_what_they_were_asked_to(both: Both, name: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name, "--partitions", "2")
    for server in (both.kafka, both.penstock):
        produced = both.tools.run(
            "kafka-producer-perf-test", "--topic", name, "--num-records", "2000", "--record-size", "100",
            "--throughput", "-1", "--producer-props", f"bootstrap.servers={server.bootstrap}",
        )  # fmt: skip
        assert produced.code == 0, produced.errors
        assert re.match(r"2000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), ", produced.output.splitlines()[-1])
        consumed = both.run(server, "kafka-consumer-perf-test", "--topic", name, "--num-records", "2000")
        assert consumed.code == 0, consumed.errors
        assert consumed.output.splitlines()[-1].split(", ")[4] == "2000"


def test_the_files_are_dumped_alike(both: Both, name: str) -> None:
    both.same("kafka-topics", "--create", "--topic", name)
    both.same("kafka-console-producer", "--topic", name, "--compression-codec", "gzip", given="a\nb\nc\n")

    def dumped(server: ServerProcess) -> str:
        (file,) = (server.data_dir / f"{name}-0").glob("*.log")
        said = both.run(server, "kafka-dump-log", "--files", str(file), "--print-data-log")
        assert said.code == 0, said.errors
        return re.sub(r"(CreateTime|crc|size|producerId): ?\d+", r"\1: N", said.output)

    kafka, penstock = both.each(dumped)
    assert penstock == kafka
    assert penstock.count("payload: ") == 3


def _properties(option: str, properties: tuple[str, ...]) -> list[str]:
    return [word for text in properties for word in (option, text)]
