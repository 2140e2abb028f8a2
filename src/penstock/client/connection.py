"""One connection to one broker: connects, negotiates versions, authenticates, then exchanges requests and responses.

A connection that failed in any way is closed and never reused: a late response to an old request could be taken for
the response to a new one. The owner opens another connection.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from penstock.client import sasl, tls, tokens
from penstock.client.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    ProtocolError,
    RequestTimedOut,
    UnsupportedApi,
)
from penstock.client.settings import Address, ClientSettings
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Limits, Message, WireError, decode_whole, encode
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import read_response_header, write_request_header
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.index import MESSAGES
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.schema import versions_of

R = TypeVar("R", bound=Message)

SOFTWARE_NAME: Final = "penstock-client"
SOFTWARE_VERSION: Final = "1"
# All recent brokers know this version; an older one answers with version 0 and the versions it knows (KIP-511).
API_VERSIONS_VERSION: Final = 3
# Responses before authentication must be small.
HANDSHAKE_FRAME_BYTES_MAX: Final = 1024 * 1024
ANSWER_LIMITS: Final = Limits(max_elements=5_000_000, max_tagged_fields=100_000)
IN_FLIGHT_MAX: Final = 16
SASL_ROUNDS_MAX: Final = 8
# A connection is replaced after this share of its session's lifetime (KIP-368), before the session expires.
SESSION_LIFE_USED: Final = 0.85

_SIZE = struct.Struct(">i")
_KEYS: Final = {messages.name: ApiKey(key) for key, messages in MESSAGES.items()}
_TLS_RECORD = b"\x15\x03"  # the start of a TLS alert, which a TLS listener sends in response to plain text


class Sent(NamedTuple):
    """A request that was sent and awaits its response."""

    api: ApiKey
    version: int
    correlation_id: int


class Credentials:
    """Login state that all connections of a client share: a TLS context, and a token until it expires."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._token: tokens.Token | None = None
        self.tls = tls.context_of(settings.tls) if settings.tls is not None else None
        oauth = settings.sasl.oauth if settings.sasl is not None else None
        self._https = tls.context_of(oauth.tls) if oauth is not None and oauth.token_endpoint_url is not None else None

    def mechanism(self) -> sasl.Mechanism:
        """Starts a new exchange of the configured mechanism."""
        who = self._settings.sasl
        assert who is not None, "called only when SASL is configured"
        if who.mechanism == sasl.PLAIN:
            return sasl.Plain(who.username, who.password)
        if who.mechanism == sasl.OAUTHBEARER:
            assert who.oauth is not None
            if self._token is None or self._token.use_until_s <= time.time():
                self._token = tokens.obtain(who.oauth, self._https, self._settings.connect_timeout_ms / 1000)
            return sasl.OAuthBearer(self._token.text, who.oauth.extensions)
        return sasl.Scram(who.mechanism, who.username, who.password, token_auth=who.token_auth)

    def forget_token(self) -> None:
        self._token = None


class Connection:
    """A socket to a broker, ready for requests."""

    def __init__(self, settings: ClientSettings, address: Address, credentials: Credentials | None = None) -> None:
        self.address = address
        self.closed = False
        self._settings = settings
        self._credentials = credentials or Credentials(settings)
        self._client_id = settings.client_id
        self._correlation_id = 0
        self._in_flight: list[Sent] = []
        self._frame_bytes_max = HANDSHAKE_FRAME_BYTES_MAX
        self._versions: dict[int, tuple[int, int]] = {}
        self.api_versions = ApiVersionsResponse()
        """The broker's API versions, and the features of its cluster."""
        self._expires_s: float | None = None
        self._answered = 0
        self._socket = self._open()
        try:
            self._agree_on_versions()
            if settings.sasl is not None:
                self._authenticate(settings.sasl.mechanism)
        except BaseException:
            self.close()
            raise
        self._frame_bytes_max = settings.frame_bytes_max

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    @property
    def expired(self) -> bool:
        """Whether the session will soon need re-authentication; if so, use a new connection instead."""
        return self._expires_s is not None and time.monotonic() > self._expires_s

    @property
    def in_flight(self) -> int:
        """The number of requests that await a response."""
        return len(self._in_flight)

    def serves(self, api: ApiKey) -> bool:
        return api in self._versions

    def version_of(self, request: type[Message]) -> int:
        """The newest version of a request that both sides know; raises UnsupportedApi if there is none."""
        api = _key_of(request)
        first, last = self._versions.get(api, (0, -1))
        ours = versions_of(request)
        version = min(last, ours[-1])
        if version < max(first, ours[0]):
            raise UnsupportedApi(
                f"{self.address} serves {MESSAGES[api].name} "
                + (f"in versions {first} to {last}, this client {ours[0]} to {ours[-1]}" if last >= 0 else "not at all")
            )
        return version

    def call(
        self, request: Message, response: type[R], *, version: int | None = None, timeout_ms: int | None = None
    ) -> R:
        """Sends one request and waits for its response."""
        return self.receive(self.send(request, version=version), response, timeout_ms=timeout_ms)

    def send(self, request: Message, *, version: int | None = None) -> Sent:
        """Sends a request; call `receive` for the responses, in the order of sending."""
        assert len(self._in_flight) < IN_FLIGHT_MAX, "too many requests in flight: receive responses first"
        if self.closed:
            raise ConnectionFailed(f"the connection to {self.address} is closed")
        if version is None:
            version = self.version_of(type(request))
        self._correlation_id = self._correlation_id + 1 & 0x7FFF_FFFF
        sent = Sent(_key_of(type(request)), version, self._correlation_id)
        frame = bytearray(_SIZE.size)
        write_request_header(frame, sent.api, version, sent.correlation_id, self._client_id)
        encode(request, version, frame)
        _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
        try:
            self._socket.settimeout(self._settings.request_timeout_ms / 1000)
            self._socket.sendall(frame)
        except TimeoutError:
            self.close()
            raise RequestTimedOut(f"{self.address} did not take a {MESSAGES[sent.api].name} request in time") from None
        except OSError as error:
            self.close()
            raise self._broken(error) from None
        self._in_flight.append(sent)
        return sent

    def receive(self, sent: Sent, response: type[R], *, timeout_ms: int | None = None) -> R:
        """The response to `sent`, which must be the oldest request in flight. Record data are views of one buffer."""
        assert self._in_flight[:1] == [sent], "responses arrive in the order of the requests"
        deadline_s = time.monotonic() + (timeout_ms or self._settings.request_timeout_ms) / 1000
        try:
            frame = self._frame(sent, deadline_s)
            correlation_id, position = read_response_header(frame, sent.api, sent.version)
            if correlation_id != sent.correlation_id:
                raise ProtocolError(f"{self.address} answered request {correlation_id}, not {sent.correlation_id}")
            answer = decode_whole(response, sent.version, frame, position, limits=ANSWER_LIMITS)
        except TimeoutError:
            self.close()
            raise RequestTimedOut(
                f"{self.address} did not answer {MESSAGES[sent.api].name} in time: consider a longer request.timeout.ms"
            ) from None
        except WireError as error:
            self.close()
            name = MESSAGES[sent.api].name
            raise ProtocolError(f"{self.address} sent an invalid {name} v{sent.version} response: {error}") from None
        except OSError as error:
            self.close()
            raise self._broken(error) from None
        except BaseException:
            self.close()
            raise
        del self._in_flight[0]
        self._answered += 1
        return answer

    def _frame(self, sent: Sent, deadline_s: float) -> memoryview:
        prefix = self._read(_SIZE.size, deadline_s)
        (size,) = _SIZE.unpack(prefix)
        if not 4 <= size <= self._frame_bytes_max:
            if bytes(prefix[:2]) == _TLS_RECORD:
                raise AuthenticationFailed(
                    f"{self.address} speaks TLS: set security.protocol=SSL, or SASL_SSL if it also requires a login"
                )
            raise ProtocolError(
                f"{self.address} sent a response of {size} bytes to {MESSAGES[sent.api].name}, the limit is "
                f"{self._frame_bytes_max}: is this a Kafka broker? If it is, raise receive.message.max.bytes"
            )
        return self._read(size, deadline_s)

    def _read(self, size: int, deadline_s: float) -> memoryview:
        view = memoryview(bytearray(size))
        position = 0
        while position < size:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            received = self._socket.recv_into(view[position:])
            if not received:
                raise ConnectionResetError
            position += received
        return view

    def _open(self) -> socket.socket:
        settings = self._settings
        try:
            plain = socket.create_connection(self.address, settings.connect_timeout_ms / 1000)
        except socket.gaierror as error:
            raise ConnectionFailed(f"{self.address}: the name does not resolve ({error.strerror})") from None
        except ConnectionRefusedError:
            raise ConnectionFailed(f"{self.address}: nothing listens there (connection refused)") from None
        except TimeoutError:
            raise ConnectionFailed(f"{self.address}: no connection within {settings.connect_timeout_ms} ms") from None
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(f"{self.address}: {getattr(error, 'strerror', None) or error}") from None
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.receive_buffer_bytes > 0:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            context = self._credentials.tls
            return plain if context is None else context.wrap_socket(plain, server_hostname=self.address.host)
        except BaseException as error:
            plain.close()
            if isinstance(error, OSError | ValueError):
                raise self._no_tls(error) from None
            raise

    def _agree_on_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        sent = self.send(request, version=API_VERSIONS_VERSION)
        # An older broker answers with version 0 and an error code, from which the versions it knows can be read.
        answer = self._api_versions(sent)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.call(ApiVersionsRequest(), ApiVersionsResponse, version=0)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, doing=f"agree on versions with {self.address}")
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        self.api_versions = answer

    def _api_versions(self, sent: Sent) -> ApiVersionsResponse:
        deadline_s = time.monotonic() + self._settings.request_timeout_ms / 1000
        try:
            frame = self._frame(sent, deadline_s)
        except TimeoutError:
            raise RequestTimedOut(f"{self.address} did not answer ApiVersions: is this a Kafka broker?") from None
        except OSError as error:
            raise self._broken(error) from None
        del self._in_flight[0]
        try:
            correlation_id, position = read_response_header(frame, sent.api, sent.version)
            if correlation_id != sent.correlation_id:
                raise WireError(f"its response is to request {correlation_id}")
            try:
                return decode_whole(ApiVersionsResponse, sent.version, frame, position, limits=ANSWER_LIMITS)
            except WireError:
                return decode_whole(ApiVersionsResponse, 0, frame, position, limits=ANSWER_LIMITS)
        except WireError as error:
            raise ProtocolError(f"{self.address} does not speak Kafka's protocol: {error}") from None

    def _authenticate(self, name: str) -> None:
        handshake = self.call(SaslHandshakeRequest(mechanism=name), SaslHandshakeResponse, version=1)
        if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(handshake.mechanisms[:20]) or "nothing"
            raise AuthenticationFailed(f"{self.address} does not offer SASL {name}, only {offered}: see sasl.mechanism")
        if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed(f"{self.address} requires no login: use a security.protocol without SASL_")
        if handshake.error_code != ErrorCode.NONE:
            raise AuthenticationFailed(str(BrokerError(handshake.error_code, doing=f"log in to {self.address}")))
        mechanism = self._credentials.mechanism()
        message: bytes | None = mechanism.first()
        for _ in range(SASL_ROUNDS_MAX):
            assert message is not None
            answer = self.call(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
            if answer.error_code != ErrorCode.NONE:
                self._credentials.forget_token()
                raise AuthenticationFailed(
                    f"{self.address} refused the login with SASL {name}: {answer.error_message or 'no reason given'}"
                )
            message = mechanism.answer(bytes(answer.auth_bytes))
            if message is None:
                if not mechanism.complete:
                    raise AuthenticationFailed(f"{self.address} ended the login before it proved its identity")
                if answer.session_lifetime_ms > 0:
                    self._expires_s = time.monotonic() + answer.session_lifetime_ms * SESSION_LIFE_USED / 1000
                return
        raise AuthenticationFailed(f"the login to {self.address} took more than {SASL_ROUNDS_MAX} messages")

    def _broken(self, error: OSError) -> ConnectionFailed:
        if isinstance(error, ssl.SSLError):
            return self._no_tls(error)
        hint = ""
        if self._answered <= 1 and self._settings.sasl is None:
            hint = ": if it requires a login or TLS, set security.protocol"
        return ConnectionFailed(f"{self.address} closed the connection{hint}")

    def _no_tls(self, error: OSError | ValueError) -> ConnectionFailed:
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted ({error.verify_message}): see ssl.truststore.location"
            if "ostname mismatch" in str(error) or "IP address mismatch" in str(error):
                why = f"its certificate is for another name ({error.verify_message}): see bootstrap.servers"
            return AuthenticationFailed(f"{self.address}: {why}")
        if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return AuthenticationFailed(f"{self.address} does not speak TLS: use a security.protocol without SSL")
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "") and "CERT" in (error.reason or ""):
            return AuthenticationFailed(f"{self.address} requires a client certificate: see ssl.keystore.location")
        if isinstance(error, TimeoutError):
            return ConnectionFailed(f"{self.address}: the TLS handshake timed out: does it speak TLS?")
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
            # A plain-text listener does this, but so does a broker that is stopping, so it is retriable.
            return ConnectionFailed(f"{self.address} closed the connection in the TLS handshake: does it speak TLS?")
        return ConnectionFailed(f"{self.address}: the TLS handshake failed: {getattr(error, 'reason', None) or error}")


def _key_of(request: type[Message]) -> ApiKey:
    return _KEYS[request.__name__.removesuffix("Request")]
