"""Requests that the client library does not have go the same secured way, or say why they cannot."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cli.running import Result, Run
from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.protocol import CannotSpeak, connect, error_of
from support.apache_kafka import ApacheKafka, available

WAIT_S = 90
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="it" user_me="it";'


@contextmanager
def secured_kafka(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A Kafka that wants TLS and a password: its address, and the client settings that satisfy it."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    both = directory / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": LOGIN,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "it",
        "ssl.ca.location": str(certificate),
    }
    kafka = ApacheKafka(heap="256M", properties=properties)
    try:
        kafka.start(wait=False)
        _wait(kafka.bootstrap, settings)
        yield kafka.bootstrap, settings
    finally:
        kafka.close()


def _wait(bootstrap: str, settings: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200, **settings})
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        try:
            admin.list_topics(timeout=1)
        except KafkaException:
            continue
        return
    pytest.fail("the secured Kafka did not start")


@pytest.mark.compat
@pytest.mark.needs_maven
def test_requests_by_hand_are_encrypted_and_authenticated(run: Run, tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    config = tmp_path / "client.properties"
    with secured_kafka(tmp_path) as (bootstrap, settings):

        def on(*arguments: object, **changes: str) -> Result:
            config.write_text("".join(f"{key}={value}\n" for key, value in {**settings, **changes}.items()))
            return run(*arguments, "--bootstrap-server", bootstrap, "--command-config", config)

        assert on("topics", "create", "orders").code == exit_codes.OK
        assert on("groups", "reset-offsets", "g", "--topic", "orders", "--to-offset", 0, "--execute").code == 0
        assert on("groups", "describe", "g").code == exit_codes.OK
        features = json.loads(on("cluster", "describe", "--json").output)["features"]
        assert features["metadata.version"] > 0
        deleted = on("groups", "delete-offsets", "g", "--topic", "orders", "--yes")
        assert (deleted.code, deleted.lines[1:]) == (exit_codes.OK, ["orders\t0\t0\tyes"])

        config.write_text("".join(f"{key}={value}\n" for key, value in {**settings, "sasl.password": "x"}.items()))
        with pytest.raises(CliError, match="authenticate") as refused, connect(Cluster(bootstrap, config, 10)):
            pass
        assert refused.value.code == exit_codes.NOT_AUTHORIZED


def test_a_way_that_only_the_library_knows_is_told(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n")
    with pytest.raises(CannotSpeak, match="GSSAPI"), connect(Cluster("127.0.0.1:1", config, 1)):
        pass


def test_a_setting_that_cannot_be_is_told_with_its_name(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n")
    with pytest.raises(CliError, match="sasl") as refused, connect(Cluster("127.0.0.1:1", config, 1)):
        pass
    assert refused.value.code == exit_codes.USAGE


def test_codes_that_are_not_known_are_told_too() -> None:
    assert "could not do it" in error_of(12_345, None, "do it").message
    assert error_of(69, None, "do it").code == exit_codes.NOT_FOUND
