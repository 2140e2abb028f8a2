"""`penstock produce` and `penstock consume` against a cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import Result, Run
from penstock.cli import exit_codes


@pytest.fixture
def existing(on: Run, topic: str) -> str:
    """A topic with two partitions."""
    assert on("topics", "create", topic, "--partitions", 2).code == exit_codes.OK
    return topic


def everything(on: Run, topic: str, *options: object) -> Result:
    result = on("consume", topic, "--from-beginning", "--until-end", *options)
    assert result.code == exit_codes.OK, result.messages
    return result


def records(on: Run, topic: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in everything(on, topic, "--json").lines]


def test_what_is_produced_is_consumed(on: Run, existing: str) -> None:
    lines = [f"line {number}" for number in range(1000)]
    sent = on("produce", existing, stdin="\n".join(lines))
    assert sent.code == exit_codes.OK
    assert "1,000 records delivered" in sent.messages
    assert sent.output == ""
    assert sorted(everything(on, existing).lines) == sorted(lines)


def test_keys_headers_timestamps_and_partitions(on: Run, existing: str) -> None:
    on(
        "produce", existing, "--key-separator", ":", "--header", "a=1", "--header", "b=2",
        "--timestamp", "2026-01-02T03:04:05Z", "--partition", 1, stdin="k:v\n",
    )  # fmt: skip
    assert records(on, existing) == [
        {
            "topic": existing, "partition": 1, "offset": 0, "timestamp": 1767323045000, "key": "k", "value": "v",
            "headers": [["a", "1"], ["b", "2"]],
        }
    ]  # fmt: skip
    shown = everything(on, existing, "--format", "key-value", "--headers", "--timestamps", "--print-offsets")
    assert shown.lines == ["1767323045000\t1:0\ta=1,b=2\tk\tv"]


def test_keys_lie_where_javas_clients_would_put_them(on: Run, existing: str) -> None:
    from penstock.cli.impact import murmur2_partition

    on("produce", existing, "--key-separator", ":", stdin="".join(f"key-{n}:v\n" for n in range(100)))
    for record in records(on, existing):
        assert record["partition"] == murmur2_partition(str(record["key"]).encode(), 2)


def test_nulls_are_told_from_empty_values(on: Run, existing: str) -> None:
    on("produce", existing, "--key", "k", "--null-value", "NULL", "--partition", 0, stdin="NULL\n\nx\n")
    assert [record["value"] for record in records(on, existing)] == [None, "", "x"]
    assert everything(on, existing, "--null-value", "∅").lines == ["∅", "", "x"]


def test_bytes_survive_as_hex_base64_and_json(on: Run, existing: str) -> None:
    on("produce", existing, "--format", "hex", "--partition", 0, stdin="00ff0a\n")
    on("produce", existing, "--format", "base64", "--partition", 0, stdin="AP8K\n")
    assert everything(on, existing, "--format", "hex").lines == ["00ff0a", "00ff0a"]
    assert records(on, existing)[0]["value"] == {"base64": "AP8K"}


def test_a_topic_is_copied_through_json(on: Run, existing: str, topic: str) -> None:
    on("produce", existing, "--key-separator", ":", "--header", "h=x", stdin="a:1\nb:2\nc:3\n")
    original = everything(on, existing, "--json").output
    copy = f"{topic}-copy"
    on("topics", "create", copy, "--partitions", 2)
    assert on("produce", copy, "--format", "json", stdin=original).code == exit_codes.OK
    assert everything(on, copy, "--json").output == original.replace(existing, copy)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(on: Run, existing: str, compression: str) -> None:
    assert on("produce", existing, "-p", 0, "-z", compression, stdin="x\n" * 100).code == exit_codes.OK
    assert everything(on, existing).lines == ["x"] * 100


@pytest.mark.parametrize("options", [("--acks", "0"), ("--acks", "1"), ("--idempotent",), ("-X", "acks=-1")], ids=str)
def test_ways_to_send(on: Run, existing: str, options: tuple[str, ...]) -> None:
    sent = on("produce", existing, "--partition", 0, *options, stdin="x\ny\n")
    assert sent.code == exit_codes.OK
    assert everything(on, existing).lines == ["x", "y"]


def test_where_to_begin(on: Run, existing: str) -> None:
    for number in range(10):
        on("produce", existing, "-p", 0, "--timestamp", 1_700_000_000_000 + number * 1000, stdin=f"{number}\n")

    def read(*options: object) -> list[str]:
        return on("consume", existing, "-p", 0, "--until-end", *options).lines

    assert read("--offset", 7) == ["7", "8", "9"]
    assert read("--offset", -2) == ["8", "9"]
    assert read("--offset", -200) == [str(number) for number in range(10)]
    assert read("--offset", "earliest", "--max-messages", 2) == ["0", "1"]
    assert read("--offset", "latest") == []
    assert read("--from-time", 1_700_000_006_500) == ["7", "8", "9"]
    assert read("--from-time", "2023-11-14T22:13:28Z") == ["8", "9"]
    assert read("--from-time", "now") == []


def test_an_offset_beyond_the_end(on: Run, existing: str) -> None:
    on("produce", existing, "-p", 0, stdin="x\n")
    result = on("consume", existing, "--offset", 100, "--until-end")
    assert result.code == exit_codes.NOT_FOUND
    assert "0: 0 to 1" in result.messages
    partly = on("consume", existing, "--offset", 1, "--until-end")
    assert partly.code == exit_codes.OK
    assert "partition 1 holds 0 to 0" in partly.messages


def test_only_some_partitions(on: Run, existing: str) -> None:
    on("produce", existing, "-p", 0, stdin="zero\n")
    on("produce", existing, "-p", 1, stdin="one\n")
    assert everything(on, existing, "-p", 1).lines == ["one"]
    assert sorted(everything(on, existing, "-p", 1, "-p", 0).lines) == ["one", "zero"]
    missing = on("consume", existing, "-p", 2)
    assert missing.code == exit_codes.NOT_FOUND
    assert "0 to 1" in missing.messages


def test_a_form_of_ones_own(on: Run, existing: str) -> None:
    on("produce", existing, "-p", 0, "-k", "key", stdin="value\n")
    assert everything(on, existing, "--format", r"%t[%p]@%o: %k=%s\n").output == f"{existing}[0]@0: key=value\n"


def test_consuming_does_not_create_a_topic(on: Run, topic: str) -> None:
    assert on("consume", topic).code == exit_codes.NOT_FOUND
    assert on("topics", "describe", topic).code == exit_codes.NOT_FOUND


def test_a_file_is_sent(on: Run, existing: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"unix\nwindows\r\nlast")
    assert on("produce", existing, file, "-p", 0, "--quiet").messages == ""
    assert everything(on, existing).lines == ["unix", "windows", "last"]


def test_a_bad_line_stops_it_and_what_came_before_is_sent(on: Run, existing: str) -> None:
    result = on("produce", existing, "--format", "json", "-p", 0, stdin='{"value": "x"}\noops\n{"value": "y"}\n')
    assert result.code == exit_codes.FAILED
    assert "line 2 cannot be sent" in result.messages
    assert everything(on, existing).lines == ["x"]


def test_records_that_cannot_be_delivered_are_counted(on: Run, existing: str) -> None:
    on("configs", "alter", "--topic", existing, "--add", "max.message.bytes=200")
    result = on("produce", existing, "-p", 0, "-X", "linger.ms=0", "-X", "batch.num.messages=1", "--json",
                stdin="short\n" + "long " * 100 + "\nshort\n")  # fmt: skip
    assert result.code != exit_codes.OK
    summary = json.loads(result.output)
    assert (summary["delivered"], summary["failed"]) == (2, 1)
    assert "could not deliver 1 record" in result.messages
    assert everything(on, existing).lines == ["short", "short"]


def test_a_mistyped_topic_is_refused_with_the_nearest(on: Run, existing: str) -> None:
    mistyped = existing[:-1]
    for command in (("produce",), ("consume", "--until-end"), ("topics", "describe")):
        result = on(*command, mistyped, stdin="x\n")
        assert result.code == exit_codes.NOT_FOUND
        assert f"there is no topic {mistyped}; did you mean {existing}?" in result.messages
    assert on("topics", "list", mistyped).lines[1:] == []


def test_a_topic_is_created_on_request_and_announced(on: Run, topic: str) -> None:
    refused = on("produce", topic, stdin="x\n")
    assert refused.code == exit_codes.NOT_FOUND
    assert "hint: rerun with --create" in refused.messages
    sent = on("produce", topic, "--create", stdin="x\n")
    assert sent.code == exit_codes.OK
    assert f"created topic {topic} with 1 partition" in sent.messages
    again = on("produce", topic, "--create", stdin="y\n")
    assert "created topic" not in again.messages
    assert everything(on, topic).lines == ["x", "y"]


def test_a_group_continues_where_it_stopped(on: Run, existing: str) -> None:
    group = f"group-of-{existing}"
    on("produce", existing, stdin="".join(f"{number}\n" for number in range(100)))
    options = (existing, "--group", group, "--from-beginning")
    first = on("consume", *options, "--max-messages", 30)
    assert first.code == exit_codes.OK, first.messages
    assert len(first.lines) == 30
    second = on("consume", *options, "--until-end")
    assert sorted(map(int, first.lines + second.lines)) == list(range(100))
    assert on("consume", *options, "--until-end").lines == []
    (described,) = json.loads(on("groups", "describe", group, "--json").output)
    assert described["total_lag"] == 0


@pytest.mark.parametrize("option", [("--offset", "5"), ("--partition", "0"), ("--from-time", "-1h")])
def test_a_group_knows_its_own_place(on: Run, existing: str, option: tuple[str, str]) -> None:
    result = on("consume", existing, "--group", "g", *option)
    assert result.code == exit_codes.USAGE
    assert "reset-offsets" in result.messages


def test_a_group_does_not_commit_what_was_not_written(bootstrap: str, on: Run, existing: str) -> None:
    group = f"group-of-{existing}"
    on("produce", existing, "-p", 0, stdin=f"{'x' * 1000}\n" * 2_000)
    command = f"{sys.executable} -m penstock consume {existing} -b {bootstrap} -g {group} --from-beginning | head -n 2"
    subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    left = on("consume", existing, "--group", group, "--from-beginning", "--until-end")
    # A pipe holds 64 KiB, and nobody knows whether what is in it was read.
    assert len(left.lines) > 1_900


def test_a_partition_that_is_not_there(on: Run, existing: str) -> None:
    result = on("produce", existing, "--partition", 9, stdin="x\n")
    assert result.code == exit_codes.NOT_FOUND
    assert "could not deliver 1 record" in result.messages


def test_a_reader_that_waits_is_stopped_cleanly(bootstrap: str, on: Run, existing: str) -> None:
    command = [sys.executable, "-m", "penstock", "consume", existing, "-b", bootstrap, "--from-beginning"]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    try:
        on("produce", existing, stdin="hello\n")
        assert reader.stdout.readline() == "hello\n"
        reader.send_signal(signal.SIGINT)
        _, messages = reader.communicate(timeout=30)
    finally:
        reader.kill()
        reader.wait()
    assert (reader.returncode, messages) == (exit_codes.OK, "")


def test_a_pipe_that_closes_is_no_error(bootstrap: str, on: Run, existing: str) -> None:
    on("produce", existing, "-p", 0, stdin="x\n" * 100_000)
    command = f"{sys.executable} -m penstock consume {existing} -b {bootstrap} --from-beginning | head -n 2"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("x\nx\n", "", exit_codes.OK)
