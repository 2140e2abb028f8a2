"""One connection: versions, order, and brokers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from client.scripted import MemoryLog, ScriptedBroker
from penstock.client import (
    AuthenticationFailed,
    ClientError,
    ClientSettings,
    Connection,
    ConnectionFailed,
    ProtocolError,
    RequestTimedOut,
    UnsupportedApi,
)
from penstock.client.connection import HANDSHAKE_FRAME_BYTES_MAX
from penstock.client.settings import Address
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeResponse

SCRAM = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "u",
    "sasl_password": "p",
}


def connect(broker: ScriptedBroker, **properties: object) -> Connection:
    settings = broker.settings(**properties)
    return Connection(settings, settings.bootstrap_servers[0])


def test_the_newest_version_that_both_know_is_used() -> None:
    with ScriptedBroker(versions={ApiKey.METADATA: 5}) as broker:
        MemoryLog(broker)
        with connect(broker) as connection:
            assert connection.version_of(MetadataRequest) == 5
            answer = connection.call(MetadataRequest(topics=None), MetadataResponse)
    assert [topic.name for topic in answer.topics] == ["t"]
    assert [version for api, version, _ in broker.asked if api == ApiKey.METADATA] == [5]


def test_an_old_broker_tells_its_versions_in_version_0() -> None:
    answers = iter([ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE])

    def versions(request: Message, version: int) -> ApiVersionsResponse:
        keys = [ApiVersion(api_key=ApiKey.METADATA, max_version=1)]
        return ApiVersionsResponse(error_code=next(answers), api_keys=keys)

    with ScriptedBroker({ApiKey.API_VERSIONS: versions}) as broker, connect(broker) as connection:
        assert connection.version_of(MetadataRequest) == 1
        assert not connection.serves(ApiKey.FETCH)


def test_a_request_that_the_broker_does_not_serve_is_not_sent() -> None:
    with ScriptedBroker(versions={ApiKey.METADATA: -1}) as broker, connect(broker) as connection:
        with pytest.raises(UnsupportedApi, match="Metadata"):
            connection.call(MetadataRequest(), MetadataResponse)
        assert not connection.closed


def test_requests_may_be_sent_ahead_of_answers() -> None:
    with ScriptedBroker() as broker:
        MemoryLog(broker)
        with connect(broker) as connection:
            sent = [connection.send(MetadataRequest()) for _ in range(5)]
            assert connection.in_flight == 5
            for one in sent:
                assert connection.receive(one, MetadataResponse).brokers
            assert connection.in_flight == 0


def frame(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (struct.pack(">i", 101 * 1024 * 1024), ProtocolError),
        (struct.pack(">i", -1), ProtocolError),
        (struct.pack(">i", 0), ProtocolError),
        (frame(1), ProtocolError),
        (frame(999), ProtocolError),
        (frame(2, b"\0" + b"\xff" * 30), ProtocolError),
        (frame(2, b"\0" + struct.pack(">i", 0) + b"\xff\xff\xff\xff\x0f" + bytes(50)), ProtocolError),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolError),
        (None, ConnectionFailed),
    ],
)
def test_what_is_no_answer_closes_the_connection(answer: bytes | None, error: type[ClientError]) -> None:
    with (
        ScriptedBroker({ApiKey.METADATA: lambda *_: answer}) as broker,
        connect(broker) as connection,
    ):
        with pytest.raises(error):
            connection.call(MetadataRequest(), MetadataResponse)
        assert connection.closed
        with pytest.raises(ConnectionFailed, match="is closed"):
            connection.call(MetadataRequest(), MetadataResponse)


def test_an_answer_that_does_not_come_ends_in_time() -> None:
    done = threading.Event()

    def never(request: Message, version: int) -> None:
        done.wait(10)

    with ScriptedBroker({ApiKey.METADATA: never}) as broker:
        with connect(broker) as connection, pytest.raises(RequestTimedOut, match="Metadata"):
            connection.call(MetadataRequest(), MetadataResponse, timeout_ms=50)
        done.set()
        assert connection.closed


@contextmanager
def raw_listener(answer: bytes) -> Iterator[ClientSettings]:
    """Something that answers the first bytes it gets with these, and then nothing more."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(ConnectionResetError):
            connection.recv(4096)
            connection.sendall(answer)
            connection.recv(4096)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield ClientSettings.from_properties({"bootstrap.servers": address, "request.timeout.ms": 1000})
    finally:
        thread.join()
        listener.close()


def test_a_tls_listener_is_recognised() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x46"
    with raw_listener(alert) as settings, pytest.raises(AuthenticationFailed, match="speaks TLS"):
        Connection(settings, settings.bootstrap_servers[0])


def test_before_it_is_known_who_is_there_answers_are_small() -> None:
    too_large = struct.pack(">i", HANDSHAKE_FRAME_BYTES_MAX + 1)
    with raw_listener(too_large) as settings, pytest.raises(ProtocolError, match="is this a Kafka broker"):
        Connection(settings, settings.bootstrap_servers[0])


def test_nobody_there_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = ClientSettings.from_properties({"bootstrap.servers": f"127.0.0.1:{port}"})
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}: nothing listens there"):
        Connection(settings, settings.bootstrap_servers[0])
    with pytest.raises(ConnectionFailed, match="does not resolve"):
        Connection(settings, Address("no.such.host.invalid", 9092))


# Logins


def test_a_broker_that_skips_its_proof_is_not_believed() -> None:
    """A SCRAM server that says "fine" to anything has not shown that it knows the password."""
    handlers: dict[ApiKey, Any] = {
        ApiKey.SASL_HANDSHAKE: lambda *_: SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]),
        ApiKey.SASL_AUTHENTICATE: lambda *_: SaslAuthenticateResponse(auth_bytes=b""),
    }
    with ScriptedBroker(handlers) as broker, pytest.raises(AuthenticationFailed, match="an invalid SCRAM challenge"):
        connect(broker, **SCRAM)


def test_a_login_that_is_refused_says_why() -> None:
    handlers: dict[ApiKey, Any] = {
        ApiKey.SASL_HANDSHAKE: lambda *_: SaslHandshakeResponse(mechanisms=["PLAIN"]),
        ApiKey.SASL_AUTHENTICATE: lambda *_: SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="Authentication failed: wrong"
        ),
    }
    with ScriptedBroker(handlers) as broker, pytest.raises(AuthenticationFailed, match="Authentication failed: wrong"):
        connect(broker, **SCRAM | {"sasl_mechanism": "PLAIN"})
    assert [request.auth_bytes for request in broker.requests(ApiKey.SASL_AUTHENTICATE)] == [b"\0u\0p"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "words"),
    [(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "only PLAIN, GSSAPI"), (ErrorCode.ILLEGAL_SASL_STATE, "requires no login")],
)
def test_a_mechanism_that_the_broker_does_not_take_is_named(code: ErrorCode, words: str) -> None:
    answer = SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN", "GSSAPI"])
    with (
        ScriptedBroker({ApiKey.SASL_HANDSHAKE: lambda *_: answer}) as broker,
        pytest.raises(AuthenticationFailed, match=words),
    ):
        connect(broker, **SCRAM)


def test_a_session_with_an_end_is_left_before_it() -> None:
    lifetimes = iter([100_000, 0, 1])

    def authenticate(request: Message, version: int) -> SaslAuthenticateResponse:
        assert isinstance(request, SaslAuthenticateRequest)
        return SaslAuthenticateResponse(session_lifetime_ms=next(lifetimes))

    handlers: dict[ApiKey, Any] = {
        ApiKey.SASL_HANDSHAKE: lambda *_: SaslHandshakeResponse(mechanisms=["PLAIN"]),
        ApiKey.SASL_AUTHENTICATE: authenticate,
    }
    with ScriptedBroker(handlers) as broker:
        plain = SCRAM | {"sasl_mechanism": "PLAIN"}
        with connect(broker, **plain) as long, connect(broker, **plain) as endless, connect(broker, **plain) as short:
            while not short.expired:
                pass
            assert not long.expired
            assert not endless.expired
