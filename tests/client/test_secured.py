"""TLS and SASL as Apache Kafka wants them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from client.secured_kafka import KEY_PASSWORD, PASSWORD, USER, Certificates, SecuredKafka, login
from penstock.client import (
    LATEST,
    AuthenticationFailed,
    ClientSettings,
    Cluster,
    ConnectionFailed,
    SettingsError,
    TopicPartition,
    cluster,
    connection,
    fetch_range,
    librdkafka_properties,
)
from support.apache_kafka import available

pytestmark = [pytest.mark.needs_maven, pytest.mark.compat, pytest.mark.timeout(240)]

ORDERS = TopicPartition("orders", 0)
RECORDS = 100

LOGINS = {
    "PLAIN": login("PLAIN", username=USER, password=PASSWORD),
    "SCRAM-SHA-256": login("SCRAM-SHA-256", username=USER, password=f"{USER}-scram"),
    "SCRAM-SHA-512": login("SCRAM-SHA-512", username=USER, password=f"{USER}-scram"),
    "OAUTHBEARER": login("OAUTHBEARER", unsecuredLoginStringClaim_sub=USER),
}


@pytest.fixture(scope="module")
def kafka(certificates: Certificates) -> Iterator[SecuredKafka]:
    if reason := available():
        pytest.skip(reason)
    with SecuredKafka(certificates) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce(ORDERS.topic, b"order %d" % number, partition=0)
        assert producer.flush(30) == 0
        yield running


@pytest.fixture
def trust(certificates: Certificates) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.ca)}


@pytest.fixture
def identity(certificates: Certificates) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates.client)}


def properties_for(kafka: SecuredKafka, protocol: str, *more: Mapping[str, str]) -> dict[str, str]:
    properties = {
        "bootstrap.servers": kafka.addresses[protocol],
        "security.protocol": protocol,
        "default.api.timeout.ms": "20000",
    }
    for one in more:
        properties |= one
    return properties


def read_all(properties: Mapping[str, str]) -> int:
    """How many records of the topic can be read so."""
    with Cluster(ClientSettings.from_properties(properties)) as client:
        end = client.list_offsets({ORDERS: LATEST})[ORDERS].offset
        return max(piece.next_position for piece in fetch_range(client, *ORDERS, 0, end))


@pytest.mark.parametrize("mechanism", LOGINS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_every_login_is_accepted(kafka: SecuredKafka, trust: dict[str, str], mechanism: str, protocol: str) -> None:
    certificates = trust if protocol == "SASL_SSL" else {}
    assert read_all(properties_for(kafka, protocol, LOGINS[mechanism], certificates)) == RECORDS


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_at_once(kafka: SecuredKafka, mechanism: str) -> None:
    wrong = login(mechanism, username=USER, password="guess")
    with pytest.raises(AuthenticationFailed, match=f"refused the login with SASL {mechanism}") as caught:
        read_all(properties_for(kafka, "SASL_PLAINTEXT", wrong))
    assert "guess" not in str(caught.value)


def test_a_token_that_is_expired_is_refused(kafka: SecuredKafka) -> None:
    expired = login("OAUTHBEARER", unsecuredLoginStringClaim_sub=USER, unsecuredLoginLifetimeSeconds="-10")
    with pytest.raises(AuthenticationFailed, match="OAUTHBEARER"):
        read_all(properties_for(kafka, "SASL_PLAINTEXT", expired))


def test_a_session_that_ends_is_followed_by_another(kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SESSION_LIFE_USED", 0.0)
    with Cluster(ClientSettings.from_properties(properties_for(kafka, "SASL_PLAINTEXT", LOGINS["PLAIN"]))) as client:
        first = client.leader(*ORDERS)
        assert first.expired
        assert client.leader(*ORDERS) is not first
        assert len(list(fetch_range(client, *ORDERS, 0, RECORDS))) > 0


# Certificates


def test_a_client_certificate_opens_the_door(
    kafka: SecuredKafka, certificates: Certificates, trust: dict[str, str], identity: dict[str, str]
) -> None:
    assert read_all(properties_for(kafka, "SSL", trust, identity)) == RECORDS
    locked = identity | {"ssl.keystore.location": str(certificates.locked_client), "ssl.key.password": KEY_PASSWORD}
    assert read_all(properties_for(kafka, "SSL", trust, locked)) == RECORDS
    key, certificate = (certificates.directory / f"client.{kind}" for kind in ("key", "crt"))
    inline = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.read_text(),
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates.ca.read_text(),
    }
    assert read_all(properties_for(kafka, "SSL", inline)) == RECORDS
    as_librdkafka = {
        "ssl.ca.location": str(certificates.ca),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }
    assert read_all(properties_for(kafka, "SSL", as_librdkafka, {"ssl.enabled.protocols": "TLSv1.2"})) == RECORDS


def test_without_a_client_certificate_the_door_stays_shut(kafka: SecuredKafka, trust: dict[str, str]) -> None:
    with pytest.raises(AuthenticationFailed, match=r"requires a client certificate.*ssl\.keystore\.location"):
        read_all(properties_for(kafka, "SSL", trust))


def test_a_broker_whose_authority_is_not_trusted_is_not_talked_to(kafka: SecuredKafka) -> None:
    with pytest.raises(AuthenticationFailed, match=r"not trusted.*ssl\.truststore\.location"):
        read_all(properties_for(kafka, "SASL_SSL", LOGINS["PLAIN"]))


def test_a_certificate_for_another_name_is_not_accepted_unless_asked(
    kafka: SecuredKafka, trust: dict[str, str]
) -> None:
    port = kafka.addresses["SASL_SSL"].rpartition(":")[2]
    elsewhere = {"bootstrap.servers": f"localhost:{port}"}
    with pytest.raises(AuthenticationFailed, match="for another name"):
        read_all(properties_for(kafka, "SASL_SSL", LOGINS["PLAIN"], trust, elsewhere))
    unchecked = {"ssl.endpoint.identification.algorithm": ""}
    assert read_all(properties_for(kafka, "SASL_SSL", LOGINS["PLAIN"], trust, elsewhere, unchecked)) == RECORDS


def test_the_wrong_kind_of_listener_is_named(
    kafka: SecuredKafka, trust: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "FIRST_CONTACT_TIMEOUT_S", 0.5)
    plain = {"bootstrap.servers": kafka.bootstrap}
    with pytest.raises(ConnectionFailed, match="does it speak TLS"):
        read_all(properties_for(kafka, "SSL", trust, plain))
    with pytest.raises(AuthenticationFailed, match="requires no login"):
        read_all(properties_for(kafka, "SASL_PLAINTEXT", LOGINS["PLAIN"], plain))
    with pytest.raises(AuthenticationFailed, match="speaks TLS"):
        read_all({"bootstrap.servers": kafka.addresses["SASL_SSL"], "security.protocol": "PLAINTEXT"})


def test_files_that_are_not_there_or_no_certificates_are_named(
    kafka: SecuredKafka, certificates: Certificates, trust: dict[str, str], tmp_path: Path
) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("hello")
    locked = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates.locked_client)}
    for wrong, words in (
        ({"ssl.truststore.location": str(tmp_path / "none")}, r"none: No such file"),
        ({"ssl.truststore.location": str(nonsense)}, r"nonsense\.pem"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(nonsense)}, r"nonsense\.pem"),
        (locked | {"ssl.key.password": "wrong"}, r"ssl\.key\.password"),
        (locked, r"ssl\.key\.password"),
    ):
        with pytest.raises(SettingsError, match=words):
            read_all(properties_for(kafka, "SSL", trust, wrong))


# The fall-back


@pytest.mark.parametrize("mechanism", LOGINS)
def test_the_translation_for_librdkafka_logs_in_too(kafka: SecuredKafka, trust: dict[str, str], mechanism: str) -> None:
    properties = librdkafka_properties(properties_for(kafka, "SASL_SSL", LOGINS[mechanism], trust))
    consumer = Consumer(properties | {"group.id": "g"})
    try:
        assert ORDERS.topic in consumer.list_topics(timeout=20).topics
    finally:
        consumer.close()
