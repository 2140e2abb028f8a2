"""Kafka's protocol by hand, for the few requests that the client library does not have.

    with connect_to_coordinator(cluster, group) as coordinator:
        answer = coordinator.ask(ApiKey.OFFSET_DELETE, OffsetDeleteRequest(...), OffsetDeleteResponse)

One connection, one request at a time, in the newest version that both sides know. It goes the way that --command-config
names, as far as it is plain text or TLS, with or without SASL PLAIN; anything else is refused with the reason.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.cli import diagnosis, exit_codes
from penstock.cli.errors import CliError
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Limits, Message, WireError, decode_whole, encode
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import read_response_header, write_request_header
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.schema import versions_of

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster

R = TypeVar("R", bound=Message)

CLIENT_ID = "penstock-cli"
ANSWER_BYTES_MAX = 100 * 1024 * 1024
ANSWER_LIMITS = Limits(max_elements=5_000_000, max_tagged_fields=100_000)
# What every broker answers, and the first that tells its features.
API_VERSIONS_VERSION = 3
GROUP_KEY = 0
BACKOFF_S = 0.1

TRANSIENT = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""What passes by itself: the coordinator is being set up or moved."""


class CannotSpeak(CliError):
    """The way to this cluster is one that only the client library knows."""


class Broker:
    """A connection to one broker."""

    def __init__(self, cluster: Cluster, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self._cluster = cluster
        self._correlation_id = 0
        self._socket = _open(cluster, host, port)
        try:
            self.api_versions = self._exchange(
                ApiKey.API_VERSIONS,
                API_VERSIONS_VERSION,
                ApiVersionsRequest(client_software_name="penstock-cli", client_software_version="1"),
                ApiVersionsResponse,
            )
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def serves(self, api: ApiKey) -> bool:
        return any(one.api_key == api for one in self.api_versions.api_keys)

    def ask(self, api: ApiKey, request: Message, response: type[R]) -> R:
        """One request, in the newest version that both sides know."""
        for one in self.api_versions.api_keys:
            if one.api_key == api:
                ours = versions_of(type(request))
                version = min(one.max_version, ours[-1])
                if version >= max(one.min_version, ours[0]):
                    return self._exchange(api, version, request, response)
        raise CliError(
            f"{self.address} does not serve {type(request).__name__.removesuffix('Request')}",
            exit_codes.REFUSED,
            "this cluster is too old for that",
        )

    def _exchange(self, api: ApiKey, version: int, request: Message, response: type[R]) -> R:
        self._correlation_id += 1
        frame = bytearray(4)
        write_request_header(frame, api, version, self._correlation_id, CLIENT_ID)
        encode(request, version, frame)
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        try:
            self._socket.sendall(frame)
            (size,) = struct.unpack(">i", self._receive(4))
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise CliError(f"{self.address} answered with {size} bytes", exit_codes.FAILED)
            answer = self._receive(size)
            correlation_id, position = read_response_header(answer, api, version)
            if correlation_id != self._correlation_id:
                raise WireError("it answers another request")
            return decode_whole(response, version, answer, position, limits=ANSWER_LIMITS)
        except TimeoutError:
            raise self._cluster.unanswered(f"get an answer to {ApiKey(api).name}") from None
        except OSError:
            raise self._cluster.unreachable() from None
        except WireError as error:
            raise CliError(
                f"{self.address} answered {ApiKey(api).name} with what is no answer: {error}", exit_codes.FAILED
            ) from None

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionResetError
            data += chunk
        return bytes(data)

    def _authenticate(self) -> None:
        settings = self._cluster.properties
        if not _security(settings).startswith("sasl_"):
            return
        handshake = self.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        check(handshake.error_code, None, "authenticate")
        token = f"\0{settings.get('sasl.username', '')}\0{settings.get('sasl.password', '')}".encode()
        done = self.ask(
            ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse
        )
        check(done.error_code, done.error_message, "authenticate")


def connect(cluster: Cluster) -> Broker:
    """A connection to the first address of the bootstrap list that takes one."""
    failure: CliError | None = None
    for address in diagnosis.split_addresses(cluster.bootstrap_server):
        host, _, port = address.rpartition(":")
        try:
            return Broker(cluster, host.strip("[]"), int(port))
        except CannotSpeak:
            raise
        except CliError as error:
            failure = error
    raise failure or cluster.unreachable()


def connect_to_coordinator(cluster: Cluster, group: str) -> Broker:
    """A connection to the broker that coordinates a group; it may take a moment until there is one."""
    request = FindCoordinatorRequest(key=group, key_type=GROUP_KEY, coordinator_keys=[group])
    deadline_s = time.monotonic() + cluster.timeout_s
    with connect(cluster) as broker:
        while True:
            answer = broker.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
            found = answer.coordinators[0] if answer.coordinators else answer
            if found.error_code not in TRANSIENT or time.monotonic() > deadline_s:
                break
            time.sleep(BACKOFF_S)
    check(found.error_code, found.error_message, f"find the coordinator of {group}")
    return Broker(cluster, found.host, found.port)


def check(code: int, message: str | None, doing: str) -> None:
    """Raises what an error code in an answer means for the command."""
    if code != ErrorCode.NONE:
        raise error_of(code, message, doing)


def error_of(code: int, message: str | None, doing: str) -> CliError:
    """What an error code in an answer means for the command."""
    known = ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR
    exit_code, hint = _MEANING.get(known, (exit_codes.FAILED, ""))
    return CliError(f"could not {doing}: {message or known.message}", exit_code, hint)


_CODES = frozenset(ErrorCode)
_MEANING: dict[ErrorCode, tuple[int, str]] = {
    ErrorCode.GROUP_ID_NOT_FOUND: (exit_codes.NOT_FOUND, "`penstock groups list` shows the groups there are"),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        exit_codes.NOT_FOUND,
        "`penstock groups describe` shows where a group has offsets",
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        exit_codes.REFUSED,
        "the group reads this topic: stop its consumers, or have them unsubscribe, and try again",
    ),
    ErrorCode.NON_EMPTY_GROUP: (exit_codes.REFUSED, "stop the consumers of the group and try again"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (exit_codes.NOT_AUTHORIZED, ""),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (exit_codes.NOT_AUTHORIZED, ""),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (exit_codes.NOT_AUTHORIZED, ""),
    ErrorCode.SASL_AUTHENTICATION_FAILED: (exit_codes.NOT_AUTHORIZED, "check sasl.username and sasl.password"),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: (exit_codes.NOT_AUTHORIZED, ""),
}


def _security(settings: dict[str, str]) -> str:
    return settings.get("security.protocol", "plaintext").lower()


def _open(cluster: Cluster, host: str, port: int) -> socket.socket:
    settings = cluster.properties
    security = _security(settings)
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI"))
    if security.startswith("sasl_") and mechanism != "PLAIN":
        raise CannotSpeak(
            f"this needs requests that the client library does not have, and they cannot be sent with SASL {mechanism}",
            exit_codes.REFUSED,
            "use a listener with SASL PLAIN, TLS or plain text for it",
        )
    try:
        plain = socket.create_connection((host, port), cluster.timeout_s)
        if not security.endswith("ssl"):
            return plain
        return _tls(settings).wrap_socket(plain, server_hostname=host)
    except ssl.SSLError as error:
        raise CliError(f"no TLS with {host}:{port}: {error.reason or error}", exit_codes.UNREACHABLE) from None
    except OSError:
        raise cluster.unreachable() from None


def _tls(settings: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
    if settings.get("enable.ssl.certificate.verification", "true") == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.get("ssl.endpoint.identification.algorithm", "https") in ("none", ""):
        context.check_hostname = False
    if certificate := settings.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password"))
    return context
