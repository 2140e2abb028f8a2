"""Real clients over every security protocol and mechanism, and as somebody they are not."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from security.secured_server import PASSWORD, USER, SecuredServer
from support import npm

WAYS = [
    ("SSL", None),
    *((protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
      for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
]  # fmt: skip
TIMEOUT_S = 30.0
every_way = pytest.mark.parametrize(("protocol", "mechanism"), WAYS)


@pytest.fixture(scope="module")
def server() -> Iterator[SecuredServer]:
    with SecuredServer() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        wanted: list[Any] = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for future in admin.alter_user_scram_credentials(wanted).values():
            future.result(TIMEOUT_S)
        yield server


@pytest.fixture
def topic(server: SecuredServer) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    return name


def librdkafka(server: SecuredServer, protocol: str, mechanism: str | None) -> dict[str, Any]:
    settings = server.librdkafka(protocol, mechanism)
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (server.issuer.token(), time.time() + 300)
    return settings


@every_way
def test_confluent_kafka(server: SecuredServer, topic: str, protocol: str, mechanism: str | None) -> None:
    settings = librdkafka(server, protocol, mechanism)
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        record = consumer.poll(TIMEOUT_S)
        assert record is not None
        assert record.value() == b"hello"
    finally:
        consumer.close()


class Tokens(AbstractTokenProvider):
    def __init__(self, server: SecuredServer, **config: Any) -> None:
        self._server = server

    def token(self) -> str:
        return self._server.issuer.token()


def kafka_python(server: SecuredServer, protocol: str, mechanism: str | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": server.address(protocol), "security_protocol": protocol}
    if "SSL" in protocol:
        settings |= {"ssl_cafile": str(server.directory / "ca.pem")}
    if protocol == "SSL":
        settings |= {
            "ssl_certfile": str(server.directory / "client.crt"),
            "ssl_keyfile": str(server.directory / "client.key"),
        }
    if mechanism == "OAUTHBEARER":
        settings |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Tokens(server)}
    elif mechanism is not None:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return settings


@every_way
def test_kafka_python(server: SecuredServer, topic: str, protocol: str, mechanism: str | None) -> None:
    settings = kafka_python(server, protocol, mechanism)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"hello").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, **settings, group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=int(TIMEOUT_S * 1000)
    )
    assert next(consumer).value == b"hello"
    consumer.close()


class AioTokens(AioTokenProvider):
    def __init__(self, server: SecuredServer) -> None:
        self._server = server

    async def token(self) -> str:
        return self._server.issuer.token()


@every_way
def test_aiokafka(server: SecuredServer, topic: str, protocol: str, mechanism: str | None) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": server.address(protocol), "security_protocol": protocol}
    if "SSL" in protocol:
        context = ssl.create_default_context(cafile=str(server.directory / "ca.pem"))
        if protocol == "SSL":
            context.load_cert_chain(server.directory / "client.pem")
        settings["ssl_context"] = context
    if mechanism == "OAUTHBEARER":
        settings |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": AioTokens(server)}
    elif mechanism is not None:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}

    async def round_trip() -> bytes | None:
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        await producer.send_and_wait(topic, b"hello")
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
        await consumer.start()
        record = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
        await consumer.stop()
        return record.value

    assert asyncio.run(round_trip()) == b"hello"


@pytest.mark.parametrize(("protocol", "mechanism"), [way for way in WAYS if way[1] != "OAUTHBEARER"])
def test_kcat(server: SecuredServer, topic: str, protocol: str, mechanism: str | None, tmp_path: Path) -> None:
    settings = server.librdkafka(protocol, mechanism)
    config = tmp_path / "kcat.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    run = ["kcat", "-F", str(config), "-t", topic]
    subprocess.run([*run, "-P"], input=b"hello\n", check=True, timeout=TIMEOUT_S, capture_output=True)
    done = subprocess.run([*run, "-C", "-e", "-q"], check=True, timeout=TIMEOUT_S, capture_output=True)
    assert done.stdout == b"hello\n"


@pytest.mark.needs_npm
@every_way
def test_kafkajs(server: SecuredServer, topic: str, protocol: str, mechanism: str | None) -> None:
    if reason := npm.package_missing("kafkajs", "2.2.4"):
        pytest.skip(reason)
    given: dict[str, Any] = {"broker": server.address(protocol), "username": USER, "password": PASSWORD}
    if "SSL" in protocol:
        given["ca"] = str(server.directory / "ca.pem")
    if protocol == "SSL":
        given |= {"key": str(server.directory / "client.key"), "cert": str(server.directory / "client.crt")}
    if mechanism is not None:
        given["mechanism"] = mechanism.lower()
    if mechanism == "OAUTHBEARER":
        given["token"] = server.issuer.token()
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("kafkajs_secured.js")), json.dumps(given), topic],
        env={**os.environ, "NODE_PATH": str(npm.CACHE / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "hello"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused(server: SecuredServer, mechanism: str) -> None:
    settings = {**server.librdkafka("SASL_SSL", mechanism), "sasl.password": "hunter2", "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=2)
    assert "hunter2" not in server.log_path.read_text()


def test_a_client_without_a_certificate_is_refused_where_one_is_required(server: SecuredServer) -> None:
    settings = {**server.librdkafka("SSL", None), "log_level": 0}
    del settings["ssl.certificate.location"], settings["ssl.key.location"]
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=2)


def test_a_tls_client_on_a_plaintext_port_is_refused_with_a_reason(server: SecuredServer) -> None:
    settings = {**server.librdkafka("SSL", None), "bootstrap.servers": server.bootstrap, "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=2)
    assert "this is a TLS client on a plaintext port" in server.log_path.read_text()


def test_no_secret_is_in_the_log_or_in_what_the_broker_tells_of_its_settings(server: SecuredServer) -> None:
    from confluent_kafka.admin import ConfigResource

    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert described["sasl.jaas.config"].value is None
    told = str({name: entry.value for name, entry in described.items()}) + server.log_path.read_text()
    assert PASSWORD not in told
    assert "PRIVATE KEY" not in told
