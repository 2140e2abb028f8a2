"""A real Spark cluster on loopback: a master and workers from the pip package, through `spark-class`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from penstock.spark.java import find_java
from support.ports import free_ports
from support.server_process import die_with_parent

LOOPBACK = "127.0.0.1"
READY_TIMEOUT_S = 90
STOP_TIMEOUT_S = 20
POLL_S = 0.2
EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """A master and some workers, each a process of its own. Each worker starts one executor per application."""

    def __init__(
        self, workers: int = 2, *, worker_cores: int = 1, worker_memory: str = "1g", hosts: bool = False
    ) -> None:
        """With `hosts`, each worker seems to be on a host of its own: Spark speculates only on another host."""
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.directory = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
        self._worker_count = workers
        self._hosts = [f"127.0.0.{number + 2}" if hosts else LOOPBACK for number in range(workers)]
        self._worker_options = ["--cores", str(worker_cores), "--memory", worker_memory]
        self._port, self._web_port = free_ports(2)
        self.master = f"spark://{LOOPBACK}:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._start(
                "org.apache.spark.deploy.master.Master",
                ["--host", LOOPBACK, "--port", str(self._port), "--webui-port", str(self._web_port)],
            )
            self._wait("the master", lambda: self._state() is not None)
            for number, host in enumerate(self._hosts):
                self._start(
                    "org.apache.spark.deploy.worker.Worker",
                    [
                        "--host", host, "--webui-port", "0", "--work-dir", str(self.directory / f"work-{number}"),
                        *self._worker_options, self.master,
                    ],
                )  # fmt: skip
            self._wait("the workers", lambda: self._alive_workers() == self._worker_count)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def executors(self) -> list[psutil.Process]:
        """The executor processes of all applications, oldest first."""
        found = [executor for worker in self._processes[1:] for executor in executors_below(worker.pid)]
        return sorted(found, key=lambda process: process.create_time())

    def kill_executor(self) -> int:
        """Kills the oldest executor as a crash would, with the Python workers that hang on it; returns its pid."""
        executor = self.executors()[0]
        executor.kill()
        executor.wait(STOP_TIMEOUT_S)
        return executor.pid

    def logs(self) -> str:
        """The ends of all logs, for the message of a test that failed."""
        texts = []
        for path in sorted([*self.directory.glob("*.log"), *self.directory.glob("work-*/*/*/stderr")]):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            texts.append("\n".join([f"--- {path.relative_to(self.directory)}", *lines[-30:]]))
        return "\n".join(texts)

    def close(self) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, name: str, arguments: list[str]) -> None:
        log = self.directory / f"{len(self._processes)}-{name.rpartition('.')[2]}.log"
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [*die_with_parent(), str(self.home / "bin" / "spark-class"), name, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=cluster_environment(self.home),
                    start_new_session=True,
                )
            )

    def _wait(self, what: str, is_done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not is_done():
            ended = [process.args for process in self._processes if process.poll() is not None]
            assert not ended, f"{what} ended while starting:\n{self.logs()}"
            assert time.monotonic() < deadline_s, f"no {what} within {READY_TIMEOUT_S} s:\n{self.logs()}"
            time.sleep(POLL_S)

    def _alive_workers(self) -> int:
        workers = (self._state() or {}).get("workers")
        return sum(worker["state"] == "ALIVE" for worker in workers) if isinstance(workers, list) else 0

    def _state(self) -> dict[str, object] | None:
        """What the master tells about itself on its page for programs."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._web_port}/json/", timeout=5) as answer:
                state: dict[str, object] = json.loads(answer.read())
                return state
        except (OSError, urllib.error.URLError, json.JSONDecodeError):
            return None


def executors_below(pid: int) -> list[psutil.Process]:
    """The executors that a process has started: a worker's, or those of a driver with the master `local-cluster`."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if EXECUTOR_CLASS in child.cmdline():
                    found.append(child)
    return found


def cluster_environment(home: Path) -> dict[str, str]:
    """Of a node: Java, loopback, small heaps; nothing of this process's own Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON", "SPARK_"))}
    return {
        **kept,
        "JAVA_HOME": str(find_java().spark_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        # A Python that a job does not name is none that could work by chance.
        "PATH": os.pathsep.join(
            part for part in kept.get("PATH", "").split(os.pathsep) if part != str(Path(sys.executable).parent)
        ),
    }
