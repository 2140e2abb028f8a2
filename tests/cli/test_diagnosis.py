"""What is found at an address that should be a broker's."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.cli.diagnosis import accepts_connections, examine, split_addresses

Reply = Callable[[bytes], bytes | None]


@contextmanager
def listener(reply: Reply) -> Iterator[str]:
    """Answers one connection; None keeps it open without a word until the client gives up."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            answer = reply(connection.recv(1000))
            if answer is None:
                connection.recv(1000)
            else:
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        thread.join(10)
        server.close()


@pytest.fixture
def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def as_a_broker(request: bytes) -> bytes:
    (correlation_id,) = struct.unpack(">i", request[8:12])
    return struct.pack(">iihi", 10, correlation_id, 0, 0)


@pytest.mark.parametrize(
    ("reply", "timeout_s", "text", "advice"),
    [
        (lambda request: b"HTTP/1.1 400 Bad Request\r\n\r\n", 30, "HTTP", "listener"),
        (lambda request: b"\x15\x03\x03\x00\x02\x02\x46", 30, "TLS", "security.protocol=SSL"),
        (lambda request: b"", 30, "closed", "authentication"),
        (lambda request: b"220 mail.example ESMTP\r\n", 30, "not a Kafka broker", "port"),
        (lambda request: None, 1, "does not answer", "TLS port"),
    ],
    ids=["http", "tls", "closed", "other", "silent"],
)
def test_what_is_not_a_broker_is_recognised(reply: Reply, timeout_s: float, text: str, advice: str) -> None:
    with listener(reply) as address:
        (finding,) = examine([address], timeout_s=timeout_s)
    assert not finding.speaks_kafka
    assert text in finding.text
    assert advice in finding.advice


def test_a_broker_is_recognised() -> None:
    with listener(as_a_broker) as address:
        (finding,) = examine([address])
    assert finding.speaks_kafka


def test_a_closed_port_and_an_unknown_name_are_told_apart(closed_port: str) -> None:
    refused, unknown = examine([closed_port, "no-such-host.invalid:9092"])
    assert "refused" in refused.text
    assert "does not resolve" in unknown.text
    assert not accepts_connections([closed_port])


def test_addresses_get_the_usual_port() -> None:
    assert split_addresses("a, b:1,PLAINTEXT://c:2 ,[::1]:3,[::1],") == [
        "a:9092", "b:1", "c:2", "[::1]:3", "[::1]:9092",
    ]  # fmt: skip
