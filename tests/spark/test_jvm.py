"""Where the standard error output of Spark's processes goes: not on the terminal, unless somebody needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.spark import jvm
from support.penstock import PenstockServer
from support.spark import require_spark
from support.terminal import run_in_terminal

SCRIPT = """
import sys
from penstock.spark import build_session
from penstock.pipeline import follow, to_table

spark = build_session()
address = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "hello", "startingOffsets": "earliest"}
print(len(spark.read.format("penstock").options(**address).load().limit(1).collect()))
hello = spark.readStream.format("penstock").options(**address).load()
follow(hello.writeStream.foreachBatch(to_table("lake/hello")).option("checkpointLocation", "checkpoints/hello").start())
"""

PIPELINE = """
CREATE STREAM hello WITH (topic = 'hello', format = 'text');
CREATE TABLE copied WITH (path = 'lake/copied') AS SELECT * FROM hello;
"""


@pytest.fixture
def broker() -> Iterator[str]:
    with PenstockServer() as server:
        producer = Producer({"bootstrap.servers": server.bootstrap})
        for number in range(2_000):
            producer.produce("hello", f"{number} {'x' * 200}")
        assert producer.flush(30) == 0
        yield server.bootstrap


def test_the_warning_of_every_start_is_left_out_and_all_else_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    others = set(threading.enumerate())
    with jvm._open_pipe() as writing:
        writing.write(b"WARNING: Using incubator modules: jdk.incubator.vector\n")
        writing.write(b"12:00:01 ERROR Executor: no space left on device\nlast words")
    # Read once, and after the last write: what is written while `readouterr` reads is lost.
    for thread in set(threading.enumerate()) - others:
        thread.join(30)
    assert capfd.readouterr().err == "12:00:01 ERROR Executor: no space left on device\nlast words"


READER_GONE = b"""\
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/daemon.py", line 264, in manager
    code = worker(sock, authenticated)
  File "/venv/lib/python3.11/site-packages/pyspark/daemon.py", line 95, in worker
    outfile.flush()
BrokenPipeError: [Errno 32] Broken pipe
"""


def test_only_the_traceback_of_a_worker_whose_reader_is_gone_is_left_out() -> None:
    def shown(text: bytes) -> bytes:
        return b"".join(jvm.without_noise(text.splitlines(keepends=True)))

    assert shown(b"before\n" + READER_GONE + b"after\n") == b"before\nafter\n"
    for other in (
        READER_GONE.replace(b"pyspark/daemon.py", b"job/mine.py"),
        READER_GONE.replace(b"BrokenPipeError: [Errno 32] Broken pipe", b"ValueError: a broken pipe"),
        READER_GONE[: READER_GONE.index(b"BrokenPipe")],
    ):
        assert shown(other + b"after\n") == other + b"after\n"
        assert shown(other) == other


def test_a_jvm_that_does_not_start_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a command that keeps the JVM's words off the terminal."""
    require_spark()
    java = tmp_path / "home" / "bin" / "spark-submit"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'Invalid maximum heap size: -Xmx1potato' >&2\necho 'Error: no JVM' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    log = tmp_path / "checkpoint" / "spark.log"
    with pytest.raises(jvm.JvmNotStarted) as caught:
        jvm.start_jvm({"spark.driver.memory": "1potato"}, log)
    assert str(caught.value) == (
        f"Spark's Java process did not start: Invalid maximum heap size: -Xmx1potato (more in {log})"
    )


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_script_shows_its_batches_and_nothing_else(tmp_path: Path, broker: str) -> None:
    """Also not the worker whose rows are not wanted any more after `limit(1)`, nor anything at Ctrl-C."""
    require_spark()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, broker],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line.partition(" in ")[0].strip())
            if "batch 0" in line:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
        assert process.wait(60) == 0
        assert process.stdout.read() == "1\n"
        stopped = "query: stopped; it resumes from its checkpoint"
        assert lines == ["query: starting; Ctrl-C stops it", "query: batch 0: 2,000 records", stopped]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("until", ["starting Spark", "starting the query"])
def test_ctrl_c_while_a_pipeline_starts_leaves_one_line(tmp_path: Path, broker: str, until: str) -> None:
    require_spark()
    (tmp_path / "p.sql").write_text(f"SET checkpoint = '{tmp_path}/checkpoint';\n{PIPELINE}")
    command = [sys.executable, "-m", "penstock", "pipeline", "run", str(tmp_path / "p.sql"), "-b", broker]
    code, written = run_in_terminal(command, 100, 30, until=until, timeout_s=200)
    assert code == 0
    after = written[written.rindex("\x1b[?25h") :]
    assert after.removeprefix("\x1b[?25h").split("\r\n")[-2:] == [
        "p stopped: 0 records read; run it again and it goes on where it stopped", ""
    ]  # fmt: skip
    for noise in ("Traceback", "CANNOT_OPEN_SOCKET", "WARNING", "^C"):
        assert noise not in written
