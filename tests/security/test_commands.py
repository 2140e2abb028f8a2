"""`penstock up --secure`, `penstock security`, `penstock users` and `penstock format`, as a user runs them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.config import parse_properties
from support.ports import free_ports
from support.waiting import wait_until

TIMEOUT_S = 60.0


def penstock(*arguments: str, given: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def parsed(text: str) -> Any:
    return json.loads(text)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of `penstock up --secure`, while it runs."""
    data = tmp_path_factory.mktemp("secured") / "data"
    port = str(free_ports(1)[0] % 20_000 + 20_000)
    with (data.parent / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "up", "--secure", "--data", str(data), "--port", port],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(lambda: "ready. Any Kafka client" in (data.parent / "log").read_text())
            yield data
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def test_one_file_is_enough_for_commands_and_for_librdkafka(secured: Path) -> None:
    config = ["--command-config", str(secured / "client.properties")]
    penstock("topics", "create", "hello", *config)
    penstock("produce", "hello", *config, given="one\n")
    assert "one" in penstock("consume", "hello", "--from-beginning", "--until-end", *config)
    producer = Producer(parse_properties((secured / "client.properties").read_text()))
    producer.produce("hello", b"two")
    assert producer.flush(TIMEOUT_S) == 0


def test_files_with_secrets_are_for_their_owner_only(secured: Path) -> None:
    for path in (secured / "client.properties", *(secured / "security").glob("*key*"), secured / "security/node-1.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_users_are_created_listed_changed_and_deleted(secured: Path) -> None:
    config = ["--command-config", str(secured / "client.properties")]
    made = parsed(penstock("users", "create", "ann", "--generate", "--json", *config))
    listed = parsed(penstock("users", "list", "--json", *config))
    assert [entry["user"] for entry in listed] == ["admin", "ann"]
    own = secured.parent / "ann.properties"
    admin = parse_properties((secured / "client.properties").read_text())
    changed = {**admin, "sasl.username": "ann", "sasl.password": made["password"]}
    own.write_text("".join(f"{name}={value}\n" for name, value in changed.items()))
    assert "hello" not in penstock("topics", "list", "--command-config", str(own)), "nothing was granted to her"
    penstock("users", "create", "ann", "--generate", *config, code=5)
    penstock("users", "password", "ann", "--password-file", "-", *config, given="another-secret\n")
    penstock("topics", "list", "--command-config", str(own), "--timeout", "3", code=7)
    penstock("users", "delete", "ann", "--yes", *config)
    penstock("users", "delete", "ann", "--yes", *config, code=4)


def test_a_short_password_and_a_password_on_no_terminal_are_refused(secured: Path) -> None:
    config = ["--command-config", str(secured / "client.properties")]
    assert "at least" in penstock("users", "create", "bob", "--password-file", "-", *config, given="short\n", code=2)
    assert "not a terminal" in penstock("users", "create", "bob", *config, code=2)


def test_a_listener_is_checked(secured: Path) -> None:
    address = parse_properties((secured / "client.properties").read_text())["bootstrap.servers"]
    found = parsed(penstock("security", "check", address, "--ca", str(secured / "security/ca.pem"), "--json"))
    assert found["security.protocol"] == "SASL_SSL"
    assert found["certificate.trusted"] == "yes"
    assert found["tls.versions"] == "TLSv1.2, TLSv1.3"
    assert "expires in" in penstock("security", "check", address, "--days", "9999", code=10)


def test_init_writes_what_a_cluster_needs_once(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    penstock("security", "init", str(directory), "--host", "127.0.0.1", "--nodes", "3")
    names = sorted(os.listdir(directory))
    assert {"ca.pem", "ca-key.pem", "client.properties", "node-3.pem", "node-3.properties", "data"} <= set(names)
    settings = parse_properties((directory / "node-2.properties").read_text())
    assert settings["super.users"] == "User:admin;User:node-1;User:node-2;User:node-3"
    penstock("security", "init", str(directory), code=5)


def test_format_takes_a_user_whose_password_is_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("node-secret\n")
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://127.0.0.1:9092\n")
    user = f"SCRAM-SHA-512=[name=node,password-file={secret}]"
    made = parsed(penstock("format", "--config", str(config), "--add-scram", user, "--json"))
    assert made["users"] == 1
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert b"node-secret" not in stored
    penstock("format", "--config", str(config), "--add-scram", user, code=5)
    assert "iterations" in penstock(
        "format", "--config", str(config), "--add-scram", f"SCRAM-SHA-256=[name=a,password-file={secret},iterations=1]",
        code=2,
    )  # fmt: skip
