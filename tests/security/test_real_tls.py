"""Real TLS: nodes that authenticate each other, clients that log in over TLS, certificates that change."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.runtime.authority import Authority
from penstock.testing import Cluster
from penstock.testing.security import ClusterSecurity

TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, secure=True) as cluster:
        yield cluster


def security_of(cluster: Cluster) -> ClusterSecurity:
    assert cluster.security is not None
    return cluster.security


def test_three_nodes_with_mutual_tls_replicate_and_clients_log_in(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=3)
    cluster.produce("t", [str(number) for number in range(100)])
    assert len(cluster.consume("t", 100)) == 100


def test_large_records_pass_through_tls_in_both_directions(cluster: Cluster) -> None:
    cluster.create_topic("large")
    value = bytes(range(256)) * 3_500
    producer = Producer({**cluster.client_settings(), "acks": "all", "linger.ms": 0})
    for _ in range(20):
        producer.produce("large", value)
    assert producer.flush(TIMEOUT_S) == 0
    found = cluster.consume("large", 20)
    assert all(record.value == value for record in found)


@pytest.mark.parametrize("change", [{"sasl.password": "hunter2"}, {"sasl.username": "nobody"}])
def test_a_wrong_password_and_an_unknown_user_are_refused(cluster: Cluster, change: dict[str, str]) -> None:
    admin = AdminClient({**cluster.client_settings(), **change})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    assert any("login failed" in node.log for node in cluster.nodes)
    assert "hunter2" not in cluster.logs()


def test_a_client_that_does_not_trust_the_authority_sends_no_password(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(Authority.new("another").certificate)
    admin = AdminClient({**cluster.client_settings(), "ssl.ca.location": str(other)})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def handshake(port: int, context: ssl.SSLContext) -> None:
    """A handshake, and one read: with TLS 1.3 a client learns only then that its certificate was refused."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        secured.settimeout(1)
        try:
            if secured.recv(1) == b"":
                raise ConnectionError("closed")
        except TimeoutError:
            return


def client_context(cluster: Cluster, name: str = "", **changes: object) -> ssl.SSLContext:
    security = security_of(cluster)
    context = ssl.create_default_context(cadata=security.authority.certificate)
    if name:
        authority = changes.get("authority", security.authority)
        assert isinstance(authority, Authority)
        lifetime = changes.get("lifetime", timedelta(days=1))
        assert isinstance(lifetime, timedelta)
        path = security.directory / "test-client.pem"
        path.write_text(authority.issue(name, lifetime=lifetime).store)
        context.load_cert_chain(path)
    return context


def controller_port(cluster: Cluster) -> int:
    listeners = cluster.node(1).settings["listeners"]
    return int(listeners.rpartition(":")[2])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(cluster: Cluster, version: ssl.TLSVersion) -> None:
    context = client_context(cluster, "somebody")
    context.minimum_version = context.maximum_version = version
    handshake(controller_port(cluster), context)


def test_a_listener_for_nodes_wants_a_certificate_that_it_trusts_and_that_is_valid(cluster: Cluster) -> None:
    port = controller_port(cluster)
    handshake(port, client_context(cluster, "somebody"))
    with pytest.raises(OSError):
        handshake(port, client_context(cluster))
    with pytest.raises(OSError):
        handshake(port, client_context(cluster, "somebody", authority=Authority.new("another")))
    with pytest.raises(OSError):
        handshake(port, client_context(cluster, "somebody", lifetime=timedelta(minutes=-10)))
    told = cluster.node(1).log
    assert "has shown no certificate" in told or "certificate is refused" in told


def test_whoever_does_not_speak_tls_is_refused_with_a_reason(cluster: Cluster) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": cluster.node(1).address, "log_level": 0}).list_topics(timeout=2)
    cluster.wait_until(lambda: "does not speak TLS" in cluster.node(1).log, "log the reason")


def test_certificates_are_renewed_without_a_restart_and_without_dropping_connections(cluster: Cluster) -> None:
    security = security_of(cluster)
    cluster.create_topic("renewed")
    producer = Producer({**cluster.client_settings(), "acks": "all"})
    lost: list[object] = []

    def send() -> None:
        producer.produce("renewed", b"x", on_delivery=lambda error, _: lost.append(error) if error else None)
        assert producer.flush(TIMEOUT_S) == 0

    send()
    before = server_certificate(cluster)
    security.renew(1)
    cluster.wait_until(lambda: server_certificate(cluster) != before, "show the new certificate")
    send()
    assert lost == []
    assert "certificates reloaded" in cluster.node(1).log


def server_certificate(cluster: Cluster) -> bytes:
    context = client_context(cluster)
    with (
        socket.create_connection(("127.0.0.1", cluster.node(1).port), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert(binary_form=True)
        assert found is not None
        return found


def test_a_certificate_that_cannot_be_used_is_not_taken_up(cluster: Cluster) -> None:
    path = security_of(cluster).directory / "node-2.pem"
    good = path.read_text()
    path.write_text("-----BEGIN NONSENSE-----")
    cluster.wait_until(lambda: "certificates not reloaded" in cluster.node(2).log, "refuse it")
    path.write_text(good)
    consumer = Consumer({**cluster.client_settings(), "group.id": "g"})
    try:
        assert consumer.list_topics(timeout=TIMEOUT_S).brokers
    finally:
        consumer.close()


def test_a_node_that_was_killed_comes_back_and_catches_up_over_tls(cluster: Cluster) -> None:
    cluster.create_topic("killed")
    cluster.node(2).kill()
    cluster.produce("killed", ["while one is away"])
    cluster.node(2).start()
    cluster.await_ready()
    cluster.wait_until(lambda: sorted(cluster.in_sync("killed")) == [1, 2, 3], "have all replicas in sync")
