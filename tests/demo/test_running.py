"""The demo as a whole: what it does to a directory, and that its books balance."""

from __future__ import annotations

import inspect
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from penstock.cli import exit_codes
from penstock.client import LATEST, ClientSettings, Cluster
from penstock.demo import choice, directory, runner
from penstock.demo.broker import BrokerProcess
from penstock.demo.screens import LineScreen
from penstock.demo.spark_job import Followed, SparkPipeline, restarts_allowed
from penstock.pipeline.dead_letter_headers import dead_letter_headers, origin_and_reason
from support.spark import require_spark
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMAND = [sys.executable, "-m", "penstock", "demo"]


def run_demo(data: Path, *options: str, timeout_s: float = 280) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [*COMMAND, "--data", str(data), "--port", "0", "--json", *options],
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_run_without_spark_adds_up(tmp_path: Path) -> None:
    code, summary, messages = run_demo(tmp_path / "demo", "--seconds", "3", "--no-spark", "--rate", "300")
    assert code == exit_codes.OK, messages
    assert summary["adds_up"]
    assert summary["engine"] == "a consumer group in plain Python"
    sent, outcome = summary["sent"], summary["outcome"]
    assert sent["events"] > 200
    assert sent["events"] == sum(outcome[name] for name in ("processed", "dead_lettered", "late", "duplicates"))
    assert outcome["dead_lettered"] == sent["on_purpose"]["bad"] > 0
    assert summary["results"]["hours"] > 3
    assert "penstock: ready on 127.0.0.1:" in messages
    assert not (tmp_path / "demo" / "broker" / "penstock.pid").exists(), "the broker was stopped in order"


@pytest.mark.timeout(600)
def test_a_run_on_spark_adds_up_to_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "demo"
    done = runner.run(
        runner.Options(data=data, port=0, seconds=2, rate=300),
        SparkPipeline(data, spark),
        make_screen=lambda: LineScreen(io.StringIO()),
        announce=lambda address: None,
        confirm=lambda leftovers: pytest.fail(f"the directory is new, but holds {leftovers}"),
    )
    check_run_on_spark(done.as_json(), data)
    assert spark.range(1).count() == 1, "a session that was there before is there afterwards"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_command_on_spark_adds_up_to_the_tables(tmp_path: Path) -> None:
    """In a process of its own, with the session that users get."""
    require_spark()
    code, summary, messages = run_demo(tmp_path / "demo", "--seconds", "4")
    assert code == exit_codes.OK, messages
    check_run_on_spark(summary, tmp_path / "demo")
    assert summary["outcome"]["late"] > 0, "some of what was sent late came behind the second batch"


def check_run_on_spark(summary: dict[str, Any], data: Path) -> None:
    assert summary["adds_up"], summary
    assert summary["engine"].startswith("Spark")
    assert [check["name"] for check in summary["checks"]] == ["events", "bad records", "archive", "money"]
    assert summary["outcome"]["archived"] == summary["sent"]["events"] - summary["sent"]["on_purpose"]["bad"] > 200
    assert summary["outcome"]["late"] <= summary["sent"]["on_purpose"]["late"]
    assert summary["results"]["visits"] > 20
    assert {path.name for path in (data / "tables").iterdir()} == set(directory.TABLES)
    assert {path.name for path in (data / "checkpoints").iterdir()} == set(directory.QUERIES)


def test_ctrl_c_ends_it_with_a_balance(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--data", str(tmp_path / "demo"), "--port", "0", "--json", "--no-spark", "--rate", "300"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stderr:
        if "sent" in line and "sent 0 " not in line:
            break
    rest = threading.Thread(target=process.stderr.read, daemon=True)
    rest.start()
    process.send_signal(signal.SIGINT)
    summary = json.loads(process.stdout.read())
    assert process.wait(60) == exit_codes.OK
    assert summary["adds_up"]
    rest.join(10)
    process.stdout.close()
    process.stderr.close()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_it_on_spark_and_a_second_one_does_not_wait(tmp_path: Path, presses: int) -> None:
    """As a terminal sends it: to all processes of the command."""
    require_spark()
    process = subprocess.Popen(
        [*COMMAND, "--data", str(tmp_path / "demo"), "--port", "0", "--json", "--rate", "300"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    told = []
    pressed = 0
    try:
        for line in process.stderr:
            told.append(line)
            if (pressed == 0 and "(running)" in line) or (0 < pressed < presses and "Ctrl-C again" in line):
                pressed += 1
                os.killpg(process.pid, signal.SIGINT)
        summary = json.loads(process.stdout.read())
        assert process.wait(60) == (exit_codes.OK if presses == 1 else exit_codes.UNHEALTHY), told
        assert pressed == presses
        assert summary["adds_up"] is (presses == 1)
        wait_until(lambda: not processes_of(process.pid))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def processes_of(group: int) -> list[str]:
    """The processes of a group that have not ended, by their names."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            state, _, its_group = rest.split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(name)
    return found


def test_a_run_on_a_taken_port_says_so_and_keeps_the_data(tmp_path: Path) -> None:
    data = leave_a_demo(tmp_path / "demo")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--data", str(data), "--port", str(port), "--no-spark", "--yes"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == exit_codes.FAILED
    assert f"port {port} cannot be used" in done.stderr
    assert "--port P" in done.stderr
    assert (data / "tables" / "hours" / "part").exists()


def leave_a_demo(data: Path) -> Path:
    """A directory as an earlier demo leaves it, with a table of the user's in it."""
    directory.prepare(data)
    for name in ("shop.clicks-0", "shop.clicks-1", "hello-0"):
        (data / "broker" / name).mkdir()
    for name in ("hours", "mine"):
        (data / "tables" / name).mkdir()
        (data / "tables" / name / "part").write_text("")
    return data


def test_a_second_demo_replaces_its_own_topics_and_keeps_the_users(tmp_path: Path) -> None:
    """`make run`, a topic of one's own beside it, and `make run` again."""
    data = tmp_path / "demo"
    first, _, messages = run_demo(data, "--seconds", "1", "--no-spark", "--rate", "300")
    assert first == exit_codes.OK, messages
    with BrokerProcess(data / "broker", 0, tmp_path / "log") as broker:
        producer = Producer({"bootstrap.servers": broker.wait_until_ready()})
        producer.produce("hello", "still here")
        assert producer.flush(30) == 0
    (data / "tables" / "mine").mkdir()

    refused = subprocess.run(
        [*COMMAND, "--data", str(data), "--port", "0", "--no-spark", "--seconds", "1"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == exit_codes.USAGE
    assert "holds an earlier demo: the topics shop.clicks, shop.orders" in refused.stderr
    assert "--yes" in refused.stderr
    assert topic_sizes(data, tmp_path / "log")["shop.clicks"] > 0, "without an answer nothing is removed"

    second, summary, messages = run_demo(data, "--seconds", "1", "--no-spark", "--rate", "300", "--yes")
    assert second == exit_codes.OK, messages
    assert summary["adds_up"], "the second run's books do not hold the first one's events"
    sizes = topic_sizes(data, tmp_path / "log")
    assert sizes["hello"] == 1
    assert sizes["shop.clicks"] < summary["sent"]["events"] + 2
    assert (data / "tables" / "mine").is_dir()


def topic_sizes(data: Path, log: Path) -> dict[str, int]:
    """How many records each topic of a stopped demo holds."""
    with BrokerProcess(data / "broker", 0, log) as broker:
        settings = ClientSettings.from_properties({"bootstrap.servers": broker.wait_until_ready()})
        with Cluster(settings) as cluster:
            places = {
                (name, partition.partition): LATEST
                for name, topic in cluster.topics().items()
                for partition in topic.partitions
                if not topic.is_internal
            }
            sizes: Counter[str] = Counter()
            for place, listed in cluster.list_offsets(places).items():
                sizes[place[0]] += listed.offset
            return dict(sizes)


def test_only_what_is_the_demos_counts_as_left_over(tmp_path: Path) -> None:
    data = leave_a_demo(tmp_path / "demo")
    leftovers = directory.find_leftovers(data)
    assert leftovers.topics == ("shop.clicks",)
    assert str(leftovers) == "the topics shop.clicks; the tables hours"
    leftovers.remove_files()
    assert [path.name for path in (data / "tables").iterdir()] == ["mine"]
    assert not directory.find_leftovers(tmp_path / "new")


def test_a_directory_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(directory.DirectoryRefused, match="not the directory of an earlier demo"):
        directory.find_leftovers(tmp_path)


def test_a_directory_whose_broker_runs_is_left_alone(tmp_path: Path) -> None:
    directory.prepare(tmp_path)
    (tmp_path / "broker" / "penstock.pid").write_text(f"{os.getpid()}\n")
    with pytest.raises(directory.DirectoryRefused, match="in use"):
        directory.find_leftovers(tmp_path)


def test_what_is_missing_for_spark_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choice, "NEEDED", ("no_such_package",))
    chosen = choice.choose_pipeline(tmp_path, no_spark=False)
    assert "no no_such_package here" in chosen.notice
    assert "pip install 'penstock-streaming[spark]'" in chosen.notice
    assert chosen.pipeline.title == "a consumer group in plain Python"
    monkeypatch.setattr(choice, "NEEDED", ())
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("penstock.spark.java._packaged", lambda: None)
    assert "Spark needs Java 17 or newer" in choice.choose_pipeline(tmp_path, no_spark=False).notice
    assert choice.choose_pipeline(tmp_path, no_spark=True).notice == ""


def progress(batch: int, *, ran: bool = True, late: int = 0, duplicates: int = 0, end: int = 0) -> dict[str, Any]:
    return {
        "batchId": batch,
        "durationMs": {"addBatch": 5, "triggerExecution": 9} if ran else {"latestOffset": 1},
        "processedRowsPerSecond": 100.0,
        "stateOperators": [
            {
                "numRowsTotal": 7,
                "numRowsDroppedByWatermark": late,
                "customMetrics": {"numDroppedDuplicateRows": duplicates},
            }
        ],
        "sources": [{"endOffset": {"$penstock": {}, "shop.clicks": {"0": end}}}],
    }


def test_each_batch_counts_once_and_a_report_of_nothing_counts_none() -> None:
    followed = Followed(lambda: None, None)  # type: ignore[arg-type,return-value]
    followed.take(progress(0, late=2, duplicates=1, end=10))
    followed.take(progress(0, late=2, duplicates=1, end=10))
    followed.take(progress(1, ran=False, end=10))
    assert followed.idle
    assert followed.batch == 0
    followed.take(progress(1, late=3, end=20))
    assert (followed.late, followed.duplicates, followed.batch, followed.idle) == (5, 1, 1, False)
    assert followed.positions == {("shop.clicks", 0): 20}


def test_a_query_may_be_late_more_often_than_it_may_fail() -> None:
    late = restarts_allowed(RuntimeError("[STREAM_FAILED] … Python worker failed to connect back."))
    assert late > restarts_allowed(ValueError("no")) == restarts_allowed(None)


def test_dead_letters_say_why_and_where_from() -> None:
    headers = dead_letter_headers("shop.clicks", 1, 22, "not JSON")
    assert origin_and_reason([("own", b"1"), *headers]) == (("shop.clicks", 1, 22), "not JSON")


def test_the_page_explains_every_option_and_topic() -> None:
    from penstock.cli.demo import demo
    from penstock.demo.topics import TOPICS

    page = (Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "demo.md").read_text(encoding="utf-8")
    for name in inspect.signature(demo).parameters:
        assert f"--{name.replace('_', '-')}" in page, name
    for topic in TOPICS:
        assert topic.name in page, topic.name
