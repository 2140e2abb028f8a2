"""`penstock perf`, against Penstock and Apache Kafka."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from cli.running import Run
from penstock.cli import exit_codes
from penstock.cli.perf_live import POINTS_MAX, Screen, Series
from penstock.testing import Cluster as InProcess
from support.apache_kafka import ApacheKafka, available, kafka_tool

TOTAL = (
    r"(\d+)(?: steady state)? records sent, \d+\.\d+ records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
WINDOW = r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d ms avg latency, \d+\.\d ms max latency\."
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
RATE = r"-?\d+\.\d{4}"
CONSUMED = rf"{DATE}, {DATE}, {RATE}, {RATE}, (\d+), {RATE}, -?\d+, -?\d+, {RATE}, {RATE}"
DETAILED = rf"{DATE}, 0, {RATE}, {RATE}, (\d+), {RATE}, \d+, -?\d+, {RATE}, {RATE}"
LATENCY = [
    r"\d+\t\d+\.\d+(E-\d+)?",
    r"Avg latency: \d+\.\d{4} ms",
    r"Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+",
]


def test_records_are_produced_and_consumed_and_counted(on: Run, topic: str) -> None:
    on("topics", "create", topic, "--partitions", 2)
    load = ("--topic", topic, "--num-records", 3000, "--record-size", 50, "--throughput", -1)
    done = on("perf", "produce", *load, "--warmup-records", 1000, "--producer-props", "acks=1", "linger.ms=1")
    assert done.code == 0, done.messages
    warm, total, steady = done.lines
    assert warm == "Warmup first 1000 records. Steady state results will print after the complete test summary."
    assert re.fullmatch(TOTAL, total)[1] == "3000"  # type: ignore[index]
    assert re.fullmatch(TOTAL, steady)[1] == "2000"  # type: ignore[index]
    at_once = ("-X", "group.protocol=consumer")  # the classic one waits for more members first
    read = on("perf", "consume", "--topic", topic, "--num-records", 3000, "--print-metrics", *at_once)
    assert read.code == 0, read.messages
    assert read.lines[0].startswith("start.time, end.time, data.consumed.in.MB")
    assert re.fullmatch(CONSUMED, read.lines[1])[1] == "3000"  # type: ignore[index]
    assert any(re.match(r"brokers:.*:rx +: \d+\.\d{3}", line) for line in read.lines)
    rest = on("perf", "consume", "--topic", topic, "--num-records", 4000, "--timeout", 2000, "--json", *at_once)
    assert "WARNING: Exiting before consuming the expected number of records: timeout (2000 ms)" in rest.messages
    counted = json.loads(rest.output)
    assert (counted["records"], counted["bytes"]) == (3000, 150_000)


def test_latency_as_a_series_has_a_row_for_every_round(on: Run, topic: str) -> None:
    shape = ("--topic", topic, "--num-records", 3, "--producer-acks", "all", "--rounds", 3, "--every", 0)
    rows = [json.loads(line) for line in on("perf", "latency", *shape, "--json").lines]
    assert [row["acks"] for row in rows] == ["all"] * 3
    assert all(0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] for row in rows)
    lines = on("perf", "latency", *shape).lines
    assert lines[-4].startswith("time\tacks\tp50 ms")


def test_latency_is_measured_for_every_level_of_acks_and_judged(on: Run, topic: str) -> None:
    shape = ("--record-size", 20, "--record-key-size", 5, "--num-headers", 1, "--record-header-key-size", 3)
    done = on("perf", "latency", "--topic", topic, "--num-records", 20, *shape)
    assert done.code == 0, done.messages
    lines = done.lines
    assert lines[0].startswith(f'Topic "{topic}" does not exist. Will create topic with 1 partition(s)')
    for start, acks in ((1, "0"), (5, "1"), (9, "all")):
        assert lines[start] == f"acks={acks}"
        for line, pattern in zip(lines[start + 1 : start + 4], LATENCY, strict=True):
            assert re.fullmatch(pattern, line)
    head = lines.index("class\tmeasure\tlimit ms\tmeasured ms\tverdict\tnote")
    assert [line.split("\t")[0] for line in lines[head + 1 :]] == [
        "budget", "budget", "real-time", "events", "batch", "logs", "replication", "acks=0", "acks=1", "acks=all",
    ]  # fmt: skip
    told = on("perf", "latency", "--topic", topic, "--num-records", 5, "--producer-acks", "all", "--json")
    found = json.loads(told.output)
    assert list(found["acks"]) == ["all"]
    assert found["acks"]["all"]["records"] == 5
    assert {row["verdict"] for row in found["classes"]} <= {"met", "missed", "not measured"}


def test_replication_is_judged_where_a_topic_has_copies(run: Run) -> None:
    with InProcess(3) as brokers:
        at = ("--bootstrap-server", brokers.bootstrap_servers, "--replication-factor", 3)
        done = run("perf", "latency", "--topic", "r", "--num-records", 10, "--producer-acks", "1,all", "--json", *at)
    assert done.code == 0, done.messages
    found = json.loads(done.output)
    assert (found["replication_factor"], list(found["acks"])) == (3, ["1", "all"])
    replication = next(row for row in found["classes"] if row["class"] == "replication")
    assert replication["measured_ms"] > 0
    assert replication["note"] == "3 copies"


def test_codecs_are_compared_on_a_topics_own_records(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    lines = "".join(f'{{"order": {n}, "customer": "ada", "items": ["book", "pen"]}}\n' for n in range(500))
    on("produce", topic, "--key-separator", ":", stdin=lines)
    done = on("perf", "codecs", topic, "--seconds", 0, "--json")
    assert done.code == 0, done.messages
    found = json.loads(done.output)
    assert (found["kind"], found["records"]) == ("topic", 500)
    assert {row["codec"] for row in found["codecs"]} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert [row["case"] for row in found["advice"]] == ["balanced", "network-bound", "CPU-bound"]
    assert found["recommendation"].startswith("compression.type=")


@pytest.mark.parametrize(
    ("form", "text", "records"),
    [("lines", "a\nb\n\nc", 4), ("json", '[{"a": 1}, 2, "three"]', 3), ("json", '{"a": 1}\n\n{"a": 2}\n', 2)],
)
def test_codecs_of_a_file(run: Run, tmp_path: Path, form: str, text: str, records: int) -> None:
    file = tmp_path / "data"
    file.write_text(text)
    done = run("perf", "codecs", file, "--format", form, "--seconds", 0, "--json")
    assert done.code == 0, done.messages
    assert json.loads(done.output)["records"] == records


def test_codecs_of_any_file_as_a_table_with_a_recommendation(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"some text that repeats itself, " * 2000)
    cut = ("--format", "raw", "--record-size", 500)
    done = run("perf", "codecs", file, *cut, "--sample-mb", 0.03, "--seconds", 0)
    assert done.code == 0, done.messages
    assert done.lines[0].split("\t")[:3] == ["codec", "ratio", "saves"]
    assert [line.split("\t")[0] for line in done.lines[1:3]] == ["none", "gzip level 1"]
    assert any(line.startswith("balanced: compression.type=") for line in done.lines)
    assert "60 records of the file" in done.messages


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("produce", "--topic", "t", "--num-records", 5), "exactly one of --record-size"),
        (("produce", "--topic", "t", "--num-records", 5, "--record-size", 1, "--payload-monotonic"), "exactly one of"),
        (("produce", "--topic", "t", "--num-records", 5, "--record-size", 1, "--warmup-records", 5), "must be fewer"),
        (("produce", "--topic", "t", "--num-records", 5, "--payload-file", "/nowhere/x"), "cannot read"),
        (("produce", "--topic", "t", "--num-records", 5, "--record-size", 1, "-X", "acks"), "not of the form"),
        (("consume", "--num-records", 5), "either --topic or --include"),
        (("consume", "--num-records", 5, "--topic", "t", "--date-format", "QQ"), "--date-format"),
        (("latency", "--topic", "t", "--producer-acks", "2"), "0, 1 or all"),
    ],
)
def test_bad_input_is_refused_with_the_reason(run: Run, arguments: tuple[object, ...], reason: str) -> None:
    done = run("perf", *arguments)
    assert done.code == exit_codes.USAGE
    assert reason in done.messages


def test_data_that_is_not_there_or_not_what_it_is_said_to_be(run: Run, on: Run, topic: str, tmp_path: Path) -> None:
    assert on("perf", "codecs", topic).code == exit_codes.NOT_FOUND
    file = tmp_path / "data"
    file.write_text('{"a": 1}\n{"a": \n')
    refused = run("perf", "codecs", file, "--format", "json")
    assert refused.code == exit_codes.USAGE
    assert "line 2" in refused.messages
    file.write_text("")
    assert run("perf", "codecs", file).code == exit_codes.FAILED
    assert run("perf", "produce", "--topic", "t", "--num-records", 1, "--payload-file", file).code == exit_codes.USAGE


@pytest.mark.parametrize(
    "arguments",
    [("produce", "--num-records", 5, "--record-size", 1), ("consume", "--num-records", 5), ("latency",)],
    ids=lambda arguments: arguments[0],
)
def test_a_cluster_that_is_not_there_is_said_to_be_so(run: Run, arguments: tuple[object, ...]) -> None:
    done = run("perf", *arguments, "--topic", "t", "--bootstrap-server", "127.0.0.1:1")
    assert done.code == exit_codes.UNREACHABLE
    assert "127.0.0.1:1" in done.messages


def test_payloads_of_a_file_are_sent_and_intervals_are_told(on: Run, topic: str, tmp_path: Path) -> None:
    on("topics", "create", topic)
    file = tmp_path / "payloads"
    file.write_text("one;two;three")
    options = ("--payload-file", file, "--payload-delimiter", ";", "--throughput", 200, "--reporting-interval", 500)
    done = on("perf", "produce", "--topic", topic, "--num-records", 250, *options)
    assert done.code == 0, done.messages
    assert done.lines[:2] == [f"Reading payloads from: {file}", "Number of records read: 3"]
    assert re.fullmatch(WINDOW, done.lines[2])
    read = on("consume", topic, "--from-beginning", "--until-end")
    assert set(read.lines) == {"one", "two", "three"}
    assert len(read.lines) == 250


def test_records_that_cannot_be_sent_are_counted_by_reason(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    done = on("perf", "produce", "--topic", topic, "--num-records", 3, "--record-size", 2_000_000, "--json")
    assert done.code != 0
    counted = json.loads(done.output)
    assert (counted["records"], counted["failed"]) == (0, 3)
    assert "3 × " in done.messages


def test_more_records_than_the_clients_queue_holds_are_all_sent(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    options = ("--record-size", 10, "-X", "queue.buffering.max.messages=50", "linger.ms=0", "--json")
    done = on("perf", "produce", "--topic", topic, "--num-records", 2000, *options)
    assert json.loads(done.output)["records"] == 2000, done.messages


IN_TRANSACTIONS = ("--num-records", 600, "--record-size", 10, "--throughput", 600, "--transactional-id", "perf",
                   "--transaction-duration-ms", 100)  # fmt: skip


def test_records_are_sent_in_transactions_one_after_the_other(on: Run, topic: str) -> None:
    on("topics", "create", topic)
    done = on("perf", "produce", "--topic", topic, *IN_TRANSACTIONS, "--json")
    assert done.code == 0, done.messages
    assert json.loads(done.output)["records"] == 600
    (described,) = json.loads(on("topics", "describe", topic, "--json").output)
    assert described["partitions"][0]["end"] >= 603, "each transaction ends with a marker"
    read = on("consume", topic, "--from-beginning", "--until-end", "--isolation", "read_committed")
    assert len(read.lines) == 600


def test_a_long_run_is_shown_in_bounded_memory_and_no_spike_is_lost() -> None:
    series = Series(largest=True)
    for number in range(10 * POINTS_MAX):
        series.add(1000.0 if number == 1234 else 1.0)
    assert len(series.points) < POINTS_MAX
    assert max(series.points) == 1000.0
    screen = Screen("produce to t", chart=False)
    screen.point(1500.0, 3.0)
    screen.point(3000.0, 1.0)
    picture = screen.picture(60)
    assert picture[0] == "produce to t: 3.0k records/s"
    assert any("records/s" in line and "█" in line for line in picture[1:])
    assert any(line.endswith("ms p99") for line in picture)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_chart_and_the_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with Screen("produce to t", chart=True) as screen:
        screen.point(1000.0, 2.0)
        screen.say("1000 records sent")
        screen.point(3000.0, 5.0)
    shown = terminal.getvalue()
    assert "produce to t: 3.0k records/s" in shown
    assert shown.index("1000 records sent") < shown.rindex("ms p99")
    assert "█" in shown


@pytest.mark.long
@pytest.mark.needs_maven
def test_the_lines_are_those_of_kafkas_own_tools(run: Run) -> None:
    """Both tools, the same work, the same broker: every line of the one has the form of the other's."""
    if reason := available():
        pytest.skip(reason)
    with ApacheKafka(heap="256M") as kafka:
        at = ("--bootstrap-server", kafka.bootstrap)
        run("topics", "create", "t", *at)
        load: tuple[str, ...] = (
            "--topic",
            "t",
            "--num-records",
            "40000",
            "--record-size",
            "100",
            "--warmup-records",
            "10000",
        )
        load += ("--throughput", "20000", "--reporting-interval", "500", "--command-property", "acks=1", "linger.ms=1")
        theirs = kafka_tool("ProducerPerformance", *at, *load).stdout.splitlines()
        ours = run("perf", "produce", *at, *load).lines
        for lines in (theirs, ours):
            assert lines[0].startswith("Warmup first 10000 records.")
            assert re.fullmatch(TOTAL, lines[-2])[1] == "40000"  # type: ignore[index]
            assert re.fullmatch(TOTAL, lines[-1])[1] == "30000"  # type: ignore[index]
            assert any(re.fullmatch(WINDOW, line) for line in lines[1:-2])
        # On a busy machine a group takes long to form.
        read = ("--topic", "t", "--num-records", "80000", "--timeout", "60000")
        theirs = kafka_tool("ConsumerPerformance", *at, *read).stdout.splitlines()
        ours = run("perf", "consume", *at, *read).lines
        assert theirs[0] == ours[0]
        for lines in (theirs, ours):
            found = re.fullmatch(CONSUMED, lines[-1])
            assert found is not None, lines
            assert found[1] == "80000"
        detailed = (*read, "--show-detailed-stats", "--reporting-interval", "20")
        theirs = kafka_tool("ConsumerPerformance", *at, *detailed).stdout.splitlines()
        ours = run("perf", "consume", *at, *detailed).lines
        assert theirs[0] == ours[0]
        for lines in (theirs, ours):
            assert all(re.fullmatch(DETAILED, line) for line in lines[1:]), lines
        exchange = ("--topic", "e", "--num-records", "1001", "--producer-acks", "all", "--record-size", "100")
        theirs = kafka_tool("org.apache.kafka.tools.EndToEndLatency", *at, *exchange).stdout.splitlines()
        run("topics", "delete", "e", "--yes", *at)
        ours = run("perf", "latency", *at, *exchange).lines
        assert theirs[0] == ours[0]
        for lines in (theirs, ours):
            for line, pattern in zip(lines[1:5], [LATENCY[0], *LATENCY], strict=True):
                assert re.fullmatch(pattern, line), line
