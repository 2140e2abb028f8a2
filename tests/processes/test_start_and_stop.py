"""`penstock server` as a process: how it starts, what it refuses, how it stops."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from penstock.runtime.exits import EXIT_CONFIG, EXIT_IN_USE, EXIT_UNAVAILABLE, EXIT_USAGE
from support.ports import free_ports

SERVER = [sys.executable, "-m", "penstock", "server"]
UP = [sys.executable, "-m", "penstock", "up"]
READY = re.compile(r"penstock: ready on 127\.0\.0\.1:(\d+) ")


class Running:
    """A server started in the foreground, its ready line read."""

    def __init__(self, *arguments: str, command: Sequence[str] = SERVER) -> None:
        self.process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = READY.match(line)
        assert found, (line, self.process.communicate(timeout=10))
        self.port = int(found[1])

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=30)

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


def refusal(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([*SERVER, *arguments], capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


def test_it_starts_says_where_it_listens_and_stops_cleanly(tmp_path: Path) -> None:
    with Running("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0") as server:
        pid_file = tmp_path / "data" / "penstock.pid"
        assert int(pid_file.read_text()) == server.process.pid
        with socket.create_connection(("127.0.0.1", server.port), timeout=5):
            pass
        code, events = server.stop()
    assert code == 0, events
    assert not pid_file.exists()
    assert "stopped" in events


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with Running("--data", str(tmp_path), "--listen", "127.0.0.1:0"):
        code, message = refusal("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert code == EXIT_IN_USE
    assert "in use by another broker" in message
    assert "--data" in message


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with Running("--data", str(tmp_path / "a"), "--listen", "127.0.0.1:0") as server:
        code, message = refusal("--data", str(tmp_path / "b"), "--listen", f"127.0.0.1:{server.port}")
    assert code == EXIT_UNAVAILABLE
    assert "--listen" in message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "log.segment.bytes=soon"], "log.segment.bytes"),
        (["--set", "no-equals-sign"], "no-equals-sign"),
        (["--listen", "nowhere"], "nowhere"),
        (["--set", "log.dirs=a,b"], "--brokers 2"),
        (["--config", "/does/not/exist.properties"], "exist.properties"),
    ],
)
def test_a_bad_configuration_is_refused_with_what_to_do(arguments: list[str], said: str) -> None:
    code, message = refusal(*arguments)
    assert code == EXIT_CONFIG
    assert said in message


def test_an_unknown_option_is_a_usage_error() -> None:
    code, message = refusal("--colour", "blue")
    assert code == EXIT_USAGE
    assert "--colour" in message


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with Running("--data", str(tmp_path), "--listen", "127.0.0.1:0") as server:
        server.stop()
    code, message = refusal("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--node-id", "7")
    assert code == EXIT_CONFIG
    assert "node 1" in message


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not touch")
    code, message = refusal("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert code == EXIT_CONFIG
    assert "thesis.tex" in message
    assert (tmp_path / "thesis.tex").read_text() == "do not touch"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    code, message = refusal("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert code == EXIT_CONFIG
    assert "permission" in message


def test_properties_come_from_a_file_and_options_are_stronger(tmp_path: Path) -> None:
    port, other = free_ports(2)
    config = tmp_path / "server.properties"
    config.write_text(
        "# as for Kafka\nprocess.roles=broker,controller\nnode.id=3\n"
        f"listeners=PLAINTEXT://127.0.0.1:{other},CONTROLLER://127.0.0.1:{free_ports(1)[0]}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path / 'data'}\nnum.network.threads=8\n"
    )
    with Running("--config", str(config), "--listen", f"127.0.0.1:{port}") as server:
        assert server.port == port
        assert (tmp_path / "data" / "meta.properties").exists()
        _, events = server.stop()
    assert "num.network.threads" in events
    assert "--brokers" in events


def test_up_takes_properties_from_a_file_and_from_options(tmp_path: Path) -> None:
    port, other = free_ports(2)
    config = tmp_path / "server.properties"
    config.write_text(f"listeners=PLAINTEXT://127.0.0.1:{port}\nnum.partitions=5\nlog.retention.hours=24\n")
    given = ["--config", str(config), "--set", "num.partitions=7", "--data", str(tmp_path / "data")]
    with Running(*given, command=UP) as server:
        assert server.port == port
        broker = ConfigResource(ConfigResource.Type.BROKER, "1")
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        settings = admin.describe_configs([broker])[broker].result(30)
        assert (settings["num.partitions"].value, settings["log.retention.hours"].value) == ("7", "24")
        admin.create_topics([NewTopic("t", 3)])["t"].result(30)
        _, events = server.stop()
    assert [line for line in events.splitlines() if " WARN " in line or " ERROR " in line] == []
    with Running(*given, "--port", str(other), command=UP) as server:
        assert server.port == other


def test_up_refuses_what_is_no_setting(tmp_path: Path) -> None:
    command = [*UP, "--data", str(tmp_path), "--set", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_CONFIG
    assert "'nonsense' is not of the form key=value" in done.stderr


def test_metrics_are_served_under_kafkas_names(tmp_path: Path) -> None:
    (metrics,) = free_ports(1)
    where = f"127.0.0.1:{metrics}"
    server = Running("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics", where)
    with server, urllib.request.urlopen(f"http://{where}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert "kafka_controller_kafkacontroller_activecontrollercount 1" in text
    assert "kafka_server_replicamanager_underreplicatedpartitions 0" in text


def test_events_are_json_on_request(tmp_path: Path) -> None:
    import json

    with Running("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--log-format", "json") as server:
        _, events = server.stop()
    assert [json.loads(line)["event"] for line in events.splitlines()][-1] == "stopped"
