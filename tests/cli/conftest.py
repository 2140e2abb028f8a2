"""The clusters that the commands are tested against: Penstock, and Apache Kafka where it can be had.

A test that asks for `bootstrap` runs once against each. One process of each serves a whole test session; tests keep
apart by the names of their topics.
"""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.running import Result, Run
from penstock.__main__ import main
from support.apache_kafka import ApacheKafka, available
from support.retention import KEPT_FOR_EVER
from support.server_process import die_with_parent

READY = re.compile(r"penstock: ready on (\S+:\d+)")
CLUSTERS = [pytest.param("apache-kafka", marks=pytest.mark.needs_maven), "penstock"]


@pytest.fixture(scope="session", params=CLUSTERS)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running cluster."""
    if request.param == "apache-kafka":
        if reason := available():
            pytest.skip(reason)
        with ApacheKafka(heap="256M", properties=KEPT_FOR_EVER) as kafka:
            yield kafka.bootstrap
    elif importlib.util.find_spec("penstock.broker.server") is None:
        pytest.skip("there is no broker in this tree")
    else:
        settings = [part for name, value in KEPT_FOR_EVER.items() for part in ("--set", f"{name}={value}")]
        with penstock_server(tmp_path_factory.mktemp("penstock"), *settings) as address:
            yield address


@pytest.fixture(autouse=True)
def no_profiles_of_the_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a current profile, and commands would use it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
def misadvertised(tmp_path: Path) -> Iterator[str]:
    """The address of a broker that tells its clients to connect where nothing is."""
    with penstock_server(tmp_path, "--set", "advertised.listeners=PLAINTEXT://127.0.0.1:1") as address:
        yield address


@contextmanager
def penstock_server(directory: Path, *options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "penstock", "server", "--listen", "127.0.0.1:0", "--data", str(directory / "data")]
    command += options
    with (directory / "events.log").open("wb") as events:
        process = subprocess.Popen([*die_with_parent(), *command], stdout=subprocess.PIPE, stderr=events, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if ready := READY.match(line):
                    yield ready[1]
                    break
            else:
                pytest.fail(f"penstock did not start:\n{(directory / 'events.log').read_text()}")
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test uses; it is not created."""
    return f"{re.sub('[^a-z0-9]+', '-', request.node.name.lower())[:80].strip('-')}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, with its input and outputs in memory."""

    def run(*arguments: object, stdin: str | bytes = b"") -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        output, messages = io.BytesIO(), io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            patch.setattr(sys, "stdout", io.TextIOWrapper(output, write_through=True))
            patch.setattr(sys, "stderr", io.TextIOWrapper(messages, write_through=True))
            code = main([str(argument) for argument in arguments])
            sys.stdout.flush()
            return Result(code, output.getvalue().decode(), messages.getvalue().decode())

    return run


@pytest.fixture
def on(run: Run, bootstrap: str) -> Run:
    """Runs a command against the cluster."""
    return lambda *arguments, stdin=b"": run(*arguments, "--bootstrap-server", bootstrap, stdin=stdin)
