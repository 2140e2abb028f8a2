"""One channel to another node: a connection that is opened on demand, and reopened after it was lost.

The first request opens it. It starts with ApiVersions, so that nodes of different releases work together: each request
is then sent in the newest version that both support. After a failure the next attempt is delayed.

Any failure ends all requests on the channel with `PeerUnavailable`; the caller decides whether to retry. A request that
is not answered in time also closes the connection, because the answers to all later requests would wait for the
missing one.

After a network fault has ended, existing connections do not recover at once. TCP doubles the pause between two
retransmissions, so after a fault of 13 s the next one may be due 12 s later. A new connection works at once. So a
caller that expects an answer soon sets `silence_ms`: a connection that receives nothing for this long is closed.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker.net.peer_connection import PeerConnection, PeerUnavailable
from penstock.runtime import Future, Runtime, Timer
from penstock.wire.apis import ServedApi, api_named
from penstock.wire.codec import Limits, Message, decode, encode
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.headers import read_response_header, write_request_header
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from penstock.broker.security.outgoing import NodeLogin, PeerSecurity

CONNECT_TIMEOUT_MS = 2_000
"""To look up a name, and for the handshake of TCP, which kernels answer. Linux repeats that after 1 s and 3 s: the next
attempt comes before the second repetition."""
GREETING_TIMEOUT_MS = 3_000
"""Timeout for the first answer, which a busy process sends late."""
SILENCE_MS = 2_000
"""A healthy peer has sent something within this time, if the request is one that it can answer at once."""
LATE_MS = 250
"""A timer that fires this late means that this process was stalled: data received meanwhile are read first."""
BACKOFF_FIRST_MS = 20
BACKOFF_MAX_MS = 500
TRIED_LATELY_MS = 5_000
"""While requests wait for an unreachable peer, an attempt fails at least this often."""
PENDING_MAX = 10_000
"""Maximum of pending requests on one channel."""
ANSWER_LIMITS = Limits(max_elements=10_000_000)
API_VERSIONS_VERSION = 3
SASL_HANDSHAKE_VERSION = 1
SASL_AUTHENTICATE_VERSION = 2
SESSION_LIFE_USED = 0.85
"""A connection is replaced after this share of its login's lifetime."""

_SIZE = Struct(">i")

Address = tuple[str, int]


class Reply(NamedTuple):
    """A received answer: the frame without its length, and the position of the response in it."""

    version: int
    frame: bytes | bytearray
    position: int


class Call:
    """One pending request. Its wait, for a connection and then for the answer, can be ended from outside."""

    __slots__ = ("_error", "_future", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._future: Future[Any] | None = None
        self._error: PeerUnavailable | None = None

    def wait(self) -> Future[Any]:
        self._future = self._runtime.future()
        if self._error is not None:
            self._future.set_exception(self._error)
        return self._future

    def fail(self, error: PeerUnavailable) -> None:
        self._error = self._error or error
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)


class Patience:
    """The timeouts of one request: in total, and without any data from the peer."""

    __slots__ = (
        "_call",
        "_channel",
        "_deadline_ms",
        "_due_ms",
        "_heard",
        "_runtime",
        "_silence_ms",
        "_timeout_ms",
        "_timer",
    )

    def __init__(
        self, runtime: Runtime, channel: Channel, call: Call, timeout_ms: float, silence_ms: float | None
    ) -> None:
        self._runtime = runtime
        self._channel = channel
        self._call = call
        self._timeout_ms = timeout_ms
        self._silence_ms = timeout_ms if silence_ms is None else silence_ms
        self._deadline_ms = runtime.now_ms() + timeout_ms
        self._heard = channel.received_bytes
        self._due_ms = 0.0
        self._timer = self._wait(min(timeout_ms, self._silence_ms))

    def _wait(self, delay_ms: float) -> Timer:
        self._due_ms = self._runtime.now_ms() + delay_ms
        return self._runtime.call_later(delay_ms, self._time_has_come)

    def _time_has_come(self) -> None:
        now_ms = self._runtime.now_ms()
        heard = self._channel.received_bytes
        if now_ms >= self._deadline_ms:
            self._channel.expire(self._call, f"did not answer within {self._timeout_ms:.0f} ms")
        elif now_ms - self._due_ms > LATE_MS:
            self._timer = self._wait(min(LATE_MS, self._deadline_ms - now_ms))
        elif heard != self._heard or heard < 0:
            self._heard = heard
            self._timer = self._wait(min(self._silence_ms, self._deadline_ms - now_ms))
        else:
            self._channel.expire(self._call, f"has said nothing for {self._silence_ms:.0f} ms", self._silence_ms)

    def end(self) -> None:
        self._timer.cancel()


class Attempts:
    """For each address, since when this node has heard nothing from it though it tries. All channels share it."""

    def __init__(self, runtime: Runtime) -> None:
        self._now_ms = runtime.now_ms
        self._failing: dict[Address, tuple[float, float]] = {}
        """When the silence began, and when it was last noticed."""

    def failed(self, address: Address, silent_ms: float = 0.0) -> None:
        """A connection was closed after this long without data, or could not be opened."""
        now_ms = self._now_ms()
        first_ms, last_ms = self._failing.get(address, (now_ms - silent_ms, now_ms))
        self._failing[address] = (first_ms if now_ms - last_ms <= TRIED_LATELY_MS else now_ms - silent_ms, now_ms)

    def succeeded(self, address: Address) -> None:
        self._failing.pop(address, None)

    def silent_ms(self, address: Address) -> float:
        """For how long this node has failed to reach an address; 0 if it has not tried lately."""
        now_ms = self._now_ms()
        first_ms, last_ms = self._failing.get(address, (now_ms, now_ms))
        return now_ms - first_ms if now_ms - last_ms <= TRIED_LATELY_MS else 0.0


class Channel:
    """One connection to one address, reopened on demand."""

    def __init__(
        self, runtime: Runtime, address: Address, client_id: str, attempts: Attempts, security: PeerSecurity
    ) -> None:
        self._runtime = runtime
        self._security = security
        self._expires_ms: float | None = None
        """When the login must be renewed: the next request then opens a new connection."""
        self._attempts = attempts
        self._address = address
        self._client_id = client_id
        self._connection: PeerConnection | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._opening = False
        self._openers: list[Future[None]] = []
        self._greeting: Future[bytes | bytearray] | None = None
        self._attempt = 0
        self._failures = 0
        self._retry_at_ms = 0.0
        self._correlation_id = 0
        self._closed = False

    @property
    def name(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    @property
    def _waiting(self) -> int:
        return len(self._openers) + (len(self._connection.pending) if self._connection is not None else 0)

    @property
    def received_bytes(self) -> int:
        """Bytes received on the current connection; -1 while there is none."""
        return -1 if self._connection is None else self._connection.received_bytes

    async def exchange(
        self,
        call: Call,
        request: Message,
        version: int | None,
        timeout_ms: float,
        silence_ms: float | None = None,
    ) -> Reply:
        """Send a request and wait for its answer. `silence_ms`: close the connection after this long without data."""
        if self._waiting >= PENDING_MAX:
            raise PeerUnavailable(f"{self.name} has {PENDING_MAX} requests to answer already")
        patience = Patience(self._runtime, self, call, timeout_ms, silence_ms)
        try:
            if self._expires_ms is not None and self._runtime.now_ms() >= self._expires_ms:
                self._drop_expired()
            while self._connection is None:
                opened = call.wait()
                self._openers.append(opened)
                self._open()
                await opened
            api = api_named(type(request).__name__.removesuffix("Request"))
            spoken = self._spoken(api, version)
            return await self._send(call, api, request, spoken)
        finally:
            patience.end()

    async def _send(self, call: Call, api: ServedApi, request: Message, version: int) -> Reply:
        connection = self._connection
        assert connection is not None
        self._correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        number = self._correlation_id
        out = bytearray(4)
        write_request_header(out, api.key, version, number, self._client_id)
        encode(request, version, out)
        _SIZE.pack_into(out, 0, len(out) - 4)
        frame = await connection.request(number, out, call.wait())
        try:
            found, position = read_response_header(frame, api.key, version)
        except WireError as error:
            raise PeerUnavailable(f"the answer of {self.name} cannot be read: {error}", sent=True) from None
        assert found == number, "answers are told apart by their correlation id"
        return Reply(version, frame, position)

    def _spoken(self, api: ServedApi, wanted: int | None) -> int:
        low, high = self._versions.get(api.key, (0, -1))
        version = min(api.max_version if wanted is None else wanted, high)
        if version < max(low, api.min_version):
            spoken = f"{low}–{high}" if high >= 0 else "no version"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} speaks {spoken} of {api.name}, this node {api.min_version}–{api.max_version}",
            )
        return version

    def expire(self, call: Call, reason: str, silent_ms: float | None = None) -> None:
        """A request has timed out: close the connection. `silent_ms`: for how long no data came at all."""
        if silent_ms is not None and self._connection is not None:
            self._attempts.failed(self._address, silent_ms)
        call.fail(PeerUnavailable(f"{self.name} {reason}", sent=self._connection is not None))
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # ---- connecting

    def _open(self) -> None:
        if self._opening:
            return
        self._opening = True
        self._attempt += 1
        self._runtime.spawn(self._connect(self._attempt), f"connect {self.name}")

    async def _connect(self, attempt: int) -> None:
        wait_ms = self._retry_at_ms - self._runtime.now_ms()
        if wait_ms > 0:
            await self._runtime.sleep(wait_ms)
        timer = self._runtime.call_later(CONNECT_TIMEOUT_MS, self._give_up, attempt, "took no connection")
        connection: PeerConnection | None = None
        try:
            if self._closed:
                raise PeerUnavailable("this node is stopping")
            connection = await self._runtime.connect(
                *self._address, lambda: PeerConnection(self.name, self._lost), self._security.tls
            )
            if attempt != self._attempt:
                raise PeerUnavailable(f"{self.name} took the connection too late")
            timer.cancel()
            timer = self._runtime.call_later(GREETING_TIMEOUT_MS, self._give_up, attempt, "did not greet")
            versions = await self._greet(connection)
            if self._security.login is not None:
                await self._log_in(connection, self._security.login)
            if attempt != self._attempt or connection.lost:
                raise PeerUnavailable(f"{self.name} closed the connection at once")
            self._opened(connection, versions)
        except PeerUnavailable as error:
            self._failed(attempt, error)
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            self._failed(attempt, PeerUnavailable(f"{self.name}: {error}", refused=refused))
        except WireError as error:
            self._failed(attempt, PeerUnavailable(f"{self.name} does not speak this protocol: {error}"))
        except Exception as error:
            self._runtime.task_failed(f"connect {self.name}", error)
            self._failed(attempt, PeerUnavailable(f"{self.name}: {error!r}"))
        finally:
            timer.cancel()
            if connection is not None and connection is not self._connection:
                connection.abort()

    async def _greet(self, connection: PeerConnection) -> dict[int, tuple[int, int]]:
        """Request the peer's supported versions. It answers once it is ready to serve."""
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version="node")
        response: ApiVersionsResponse = await self._before_use(connection, request, API_VERSIONS_VERSION)
        if response.error_code != ErrorCode.NONE:
            raise PeerUnavailable(f"{self.name} did not say which versions it speaks")
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}

    async def _before_use(self, connection: PeerConnection, request: Message, version: int) -> Any:
        """Send a request on a connection that is not open for others yet."""
        api = api_named(type(request).__name__.removesuffix("Request"))
        out = bytearray(4)
        write_request_header(out, api.key, version, 0, self._client_id)
        encode(request, version, out)
        _SIZE.pack_into(out, 0, len(out) - 4)
        self._greeting = self._runtime.future()
        frame = await connection.request(0, out, self._greeting)
        _, position = read_response_header(frame, api.key, version)
        response, _ = decode(api.response, version, frame, position, limits=ANSWER_LIMITS)
        return response

    async def _log_in(self, connection: PeerConnection, login: NodeLogin) -> None:
        handshake: SaslHandshakeResponse = await self._before_use(
            connection, SaslHandshakeRequest(mechanism=login.mechanism), SASL_HANDSHAKE_VERSION
        )
        if handshake.error_code != ErrorCode.NONE:
            offered = ", ".join(handshake.mechanisms) or "no mechanism"
            raise PeerUnavailable(f"{self.name} offers {offered}, and this node wants to log in with {login.mechanism}")
        lifetime_ms = 0

        async def exchange(message: bytes) -> bytes:
            nonlocal lifetime_ms
            answer: SaslAuthenticateResponse = await self._before_use(
                connection, SaslAuthenticateRequest(auth_bytes=message), SASL_AUTHENTICATE_VERSION
            )
            if answer.error_code != ErrorCode.NONE:
                raise PeerUnavailable(f"{self.name} refused the login of this node: {answer.error_message}")
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        await login.run(exchange)
        lasts_ms = lifetime_ms * SESSION_LIFE_USED
        self._expires_ms = self._runtime.now_ms() + lasts_ms if lifetime_ms > 0 else None

    def _drop_expired(self) -> None:
        """The login expires soon (KIP-368): the next request opens a new connection. Answers that are due still come,
        on the old one, which its peer closes when it sees another request or after some idle time."""
        self._expires_ms = None
        connection, self._connection = self._connection, None
        if connection is not None and not connection.pending:
            connection.abort()

    def _opened(self, connection: PeerConnection, versions: dict[int, tuple[int, int]]) -> None:
        self._versions = versions
        self._connection = connection
        self._opening = False
        self._failures = 0
        self._retry_at_ms = 0.0
        self._attempts.succeeded(self._address)
        openers, self._openers = self._openers, []
        for opener in openers:
            conclude(opener)

    def _give_up(self, attempt: int, reason: str) -> None:
        self._failed(attempt, PeerUnavailable(f"{self.name} {reason} in time"))

    def _failed(self, attempt: int, error: PeerUnavailable) -> None:
        if attempt != self._attempt or not self._opening:
            return
        self._attempt += 1
        self._opening = False
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(error)
        self._failures += 1
        self._attempts.failed(self._address)
        backoff_ms = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(self._failures - 1, 10))
        self._retry_at_ms = self._runtime.now_ms() + backoff_ms * (0.8 + 0.4 * self._runtime.rng.random())
        openers, self._openers = self._openers, []
        for opener in openers:
            if not opener.done():
                opener.set_exception(error)

    # ---- what the connection reports

    def _lost(self, connection: PeerConnection) -> None:
        if connection is self._connection:
            self._connection = None

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.abort()
        self._failed(self._attempt, PeerUnavailable("this node is stopping"))


def conclude(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
