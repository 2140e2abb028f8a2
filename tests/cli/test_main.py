"""The command as a whole: what it loads, what it says, and how it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import Run
from penstock import __version__
from penstock.cli import exit_codes

COMMANDS = [
    (),
    ("topics",),
    ("topics", "create"),
    ("topics", "list"),
    ("topics", "describe"),
    ("topics", "alter"),
    ("topics", "delete"),
    ("configs",),
    ("configs", "describe"),
    ("configs", "alter"),
    ("groups",),
    ("groups", "list"),
    ("groups", "describe"),
    ("groups", "members"),
    ("groups", "reset-offsets"),
    ("groups", "delete"),
    ("groups", "delete-offsets"),
    ("cluster",),
    ("cluster", "describe"),
    ("produce",),
    ("consume",),
    ("log",),
    ("log", "dump"),
    ("log", "verify"),
]


@pytest.fixture
def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(run: Run, command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.code == exit_codes.OK
    assert "Usage: penstock" in result.output
    if len(command) != 1 or command[0] in ("produce", "consume"):
        assert "Examples" in result.output


def test_the_overview_names_the_broker_too(run: Run) -> None:
    result = run("--help")
    for name in ("server", "up", "topics", "configs", "groups", "cluster", "produce", "consume", "log"):
        assert name in result.output


def test_the_version(run: Run) -> None:
    assert run("--version").output == f"penstock {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("frob",),
        ("topics", "create"),
        ("topics", "list", "--frob"),
        ("topics", "create", "t", "--partitions", "0"),
        ("topics", "create", "t", "--config", "retention.ms"),
        ("topics", "create", "t", "--replica-assignment", "a:b"),
        ("topics", "create", "t", "--replica-assignment", "1", "--partitions", "2"),
        ("topics", "alter", "t"),
        ("topics", "delete", "t"),
        ("configs", "describe"),
        ("configs", "alter", "--topic", "t"),
        ("groups", "list", "--state", "Happy"),
        ("groups", "list", "--type", "share"),
        ("groups", "describe"),
        ("groups", "describe", "g", "--all"),
        ("groups", "describe", "g", "--window", "soon"),
        ("groups", "describe", "g", "--interval", "0s"),
        ("groups", "describe", "g", "--samples", "1"),
        ("groups", "delete", "g"),
        ("groups", "delete-offsets", "g"),
        ("groups", "reset-offsets", "g", "--topic", "t"),
        ("groups", "reset-offsets", "g", "--to-earliest"),
        ("groups", "reset-offsets", "g", "--all-topics", "--topic", "t", "--to-earliest"),
        ("groups", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--to-latest"),
        ("groups", "reset-offsets", "g", "--topic", "t", "--to-datetime", "soon"),
        ("groups", "reset-offsets", "g", "--topic", "t", "--by-duration", "1y"),
        ("groups", "reset-offsets", "g", "--topic", "t", "--by-duration", "P1D", "--to-datetime", "now"),
        ("groups", "reset-offsets", "g", "--topic", "t", "--to-offset", "-1"),
        ("groups", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute", "--dry-run"),
        ("groups", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--json", "--export"),
        ("groups", "reset-offsets", "g", "--topic", "t:x", "--to-earliest"),
        ("groups", "reset-offsets", "g", "--from-file", "no-such-file"),
        ("produce", "t", "--timestamp", "soon"),
        ("produce", "t", "--key-separator", ""),
        ("produce", "t", "--property", "no.such=1"),
        ("produce", "t", "no-such-file"),
        ("consume", "t", "--offset", "some"),
        ("consume", "t", "--offset", "1", "--from-beginning"),
        ("consume", "t", "--from-time", "soon"),
        ("consume", "t", "--format", "xml"),
        ("topics", "list", "--command-config", "no-such-file"),
    ],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.code == exit_codes.USAGE
    assert result.output == ""
    assert result.messages


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("topics", "create", "t"),
        ("topics", "describe", "t"),
        ("topics", "delete", "t", "--yes"),
        ("topics", "alter", "t", "--partitions", "2", "--yes"),
        ("configs", "describe", "--topic", "t"),
        ("configs", "describe", "--all-brokers"),
        ("configs", "alter", "--topic", "t", "--add", "a=b"),
        ("groups", "list"),
        ("groups", "describe", "g"),
        ("groups", "members", "g"),
        ("groups", "reset-offsets", "g", "--topic", "t", "--to-earliest"),
        ("groups", "delete", "g", "--yes"),
        ("groups", "delete-offsets", "g", "--topic", "t", "--yes"),
        ("cluster", "describe"),
        ("consume", "t"),
        ("produce", "t"),
    ],
    ids=" ".join,
)
def test_a_cluster_that_is_not_there_is_told_at_once(run: Run, command: tuple[str, ...], closed_port: str) -> None:
    result = run(*command, "--bootstrap-server", closed_port, "--timeout", 60, stdin="x\n")
    assert result.code == exit_codes.UNREACHABLE
    assert f"cannot reach a Kafka cluster at {closed_port}" in result.messages
    assert "connection refused" in result.messages
    assert "penstock up" in result.messages


def test_the_address_may_come_from_the_environment(run: Run, closed_port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVER", closed_port)
    assert closed_port in run("topics", "list").messages


def test_client_settings_may_come_from_a_file(run: Run, tmp_path: Path, closed_port: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text("no.such.setting=1\n")
    result = run("topics", "list", "--command-config", file, "--bootstrap-server", closed_port)
    assert result.code == exit_codes.USAGE
    assert "no.such.setting" in result.messages
    # Java's way to give name and password is understood, so that one file serves both worlds.
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=org.example.PlainLoginModule required username="me" password="secret";\n'
    )
    result = run("topics", "list", "--command-config", file, "--bootstrap-server", closed_port)
    assert result.code == exit_codes.UNREACHABLE


def test_a_port_that_is_not_a_brokers_is_told(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = run("topics", "list", "--bootstrap-server", address, "--timeout", 0.1)
    assert result.code == exit_codes.UNREACHABLE
    assert "does not answer" in result.messages


@pytest.mark.parametrize("command", [("topics", "describe", "t"), ("consume", "t"), ("produce", "t")], ids=" ".join)
def test_brokers_that_advertise_the_wrong_address_are_told(
    run: Run, command: tuple[str, ...], misadvertised: str
) -> None:
    result = run(*command, "--bootstrap-server", misadvertised, "--timeout", 0.5, stdin="x\n")
    assert result.code == exit_codes.UNREACHABLE
    assert "127.0.0.1:1: nothing listens there" in result.messages
    assert "advertised.listeners" in result.messages


@pytest.mark.parametrize("command", ["server", "up"])
def test_the_brokers_process_loads_no_command_line_packages(command: str, tmp_path: Path) -> None:
    # A file where the data directory should be: the command goes as far as it can without listening.
    (tmp_path / "file").write_text("")
    program = (
        "import sys\n"
        "from penstock.__main__ import main\n"
        f"assert main([{command!r}, '--data', 'file', '--set', 'num.partitions=3']) == 78\n"
        "print([name for name in ('typer', 'pydantic', 'rich', 'confluent_kafka') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "the data directory file cannot be used" in done.stderr
    assert done.stdout.strip() == "[]"


def test_shells_can_complete_commands() -> None:
    asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock topics de", "COMP_CWORD": "2"}
    environment = {**os.environ, **asked}
    done = subprocess.run(
        [sys.executable, "-m", "penstock"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["describe", "delete"]
