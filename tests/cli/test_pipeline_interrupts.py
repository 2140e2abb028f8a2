"""Ctrl-C while a command of `penstock pipeline` waits for Spark."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import exit_codes
from penstock.cli.pipeline_watch import _Watch
from penstock.cli.pipeline_work import with_spark
from penstock.pipeline.progress import QueryFigures
from penstock.pipeline.running import STARTING_SPARK
from penstock.pipeline.status import RunStatus, read_status, status_path
from penstock.stop_flag import StopFlag
from support.spark import require_spark

PIPELINE = "CREATE STREAM s (x INT) WITH (topic = 's');\nCREATE TABLE t WITH (path = 'lake/t') AS SELECT * FROM s;\n"


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Spark replaces the handler of SIGINT in a process that has a session."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_work_that_does_not_end_is_left_at_once() -> None:
    begun, never = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        never.wait()

    interrupting = threading.Thread(target=lambda: begun.wait() and signal.raise_signal(signal.SIGINT))
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        with_spark(work)
    interrupting.join()
    never.set()


def test_the_error_of_the_work_is_the_commands_own() -> None:
    def work() -> None:
        raise ValueError("told")

    with pytest.raises(ValueError, match="told"):
        with_spark(work)
    assert with_spark(lambda: 5) == 5


def test_a_run_that_is_stopped_while_spark_starts_is_not_waited_for(tmp_path: Path) -> None:
    stop = StopFlag()
    watch = _Watch(False, stop)
    status = RunStatus("shop", str(tmp_path), "once", queries={"t": QueryFigures("t", "table t")})
    status.doing = STARTING_SPARK
    watch.take(status)
    assert watch.abandoned() is None
    stop.set()
    found = watch.abandoned()
    assert found is not None
    assert (found.state, found.queries["t"].state) == ("stopped", "stopped")
    saved = read_status(status_path(str(tmp_path)) or Path())
    assert saved is not None
    assert saved.state == "stopped"
    status.doing = "starting the query t"
    watch.take(status)
    assert watch.abandoned() is None, "queries that run are stopped first"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes in /proc")
def test_ctrl_c_in_the_middle_of_a_call_to_spark_prints_nothing(tmp_path: Path) -> None:
    require_spark()
    (tmp_path / "shop.sql").write_text(PIPELINE)
    command = [sys.executable, "-m", "penstock", "pipeline", "validate", "shop.sql", "--no-cluster"]
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.execv(command[0], command)
    output, sent, deadline_s = b"", False, time.monotonic() + 200
    while time.monotonic() < deadline_s:
        if not sent and any(_children(java) for java in _children(process)):
            # Spark's JVM has started a process of Python, as it does for the first stream: a call is under way.
            os.write(terminal, b"\x03")
            sent = True
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                output += os.read(terminal, 65536)
            except OSError:
                break
    _, status = os.waitpid(process, 0)
    text = output.decode()
    assert sent, text
    assert os.waitstatus_to_exitcode(status) == exit_codes.INTERRUPTED, text
    assert " ".join(text.split()) == "starting Spark, which takes 5 to 10 seconds on an idle machine ^C"


def _children(process: int) -> list[int]:
    found = []
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            found += [int(one) for one in (task / "children").read_text().split()]
    except OSError:
        pass
    return found
