"""A model of TLS for the simulation: it costs round trips and can fail, but nothing is encrypted.

OpenSSL's randomness and clock would make a run impossible to repeat. In the model a certificate is one line of text,

    CN=node-1;issuer=ca;until=1800000000000

and a trust store lists the issuers that are trusted, one per line. Both ends exchange their certificate in a first
message, then plain bytes follow. Whoever speaks something else, shows no certificate that is required, one that has
expired, or one of an unknown issuer is refused, as by the real thing.
"""

from __future__ import annotations

from asyncio import BufferedProtocol, Future
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime import Buffer, Tls, TlsSettings, Transport

if TYPE_CHECKING:
    from penstock.sim.runtime import SimRuntime

HELLO: Final = b"\x16\x03SIM"
HANDSHAKE_MS: Final = 10_000
HELLO_BYTES_MAX: Final = 4_096
READ_BYTES: Final = 65_536


class SimTls:
    def __init__(self, runtime: SimRuntime, settings: TlsSettings, *, server: bool) -> None:
        self.runtime = runtime
        self.settings = settings
        self.server = server
        self.update(settings)

    def update(self, settings: TlsSettings) -> None:
        if self.server and not settings.certificate_chain:
            raise ValueError("a TLS listener needs a key store")
        self.settings = settings

    def refusal(self, certificate: str) -> str | None:
        """Why a peer's certificate is refused."""
        required = not self.server or self.settings.client_auth == "required"
        if not certificate:
            return "the peer has shown no certificate" if required else None
        fields = dict(part.partition("=")[::2] for part in certificate.split(";"))
        if fields.get("issuer", "") not in self.settings.trusted.split("\n"):
            return "the peer's certificate is refused: unknown authority"
        if float(fields.get("until", "inf")) < self.runtime.wall_ms():
            return "the peer's certificate is refused: certificate has expired"
        return None


def with_tls(factory: Callable[[], Any], tls: Tls | None, host: str = "") -> Callable[[], Any]:
    if tls is None:
        return factory
    assert isinstance(tls, SimTls)
    return lambda: SimTlsProtocol(tls, factory())


class SimTlsProtocol(BufferedProtocol):
    def __init__(self, tls: SimTls, inner: BufferedProtocol) -> None:
        self._tls = tls
        self.inner = inner
        self._runtime = tls.runtime
        self._received = bytearray()
        self._buffer = bytearray(READ_BYTES)
        self._done = False
        self._failed = False
        self._raw: Transport
        self.ready: Future[None] = tls.runtime.future()

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._raw = transport
        self.inner.connection_made(SimTlsTransport(transport))  # type: ignore[arg-type]
        self._timer = self._runtime.call_later(HANDSHAKE_MS, self._fail, "the TLS handshake was not finished")
        if not self._tls.server and not transport.is_closing():
            self._say_hello()

    def _say_hello(self) -> None:
        shows = self._tls.settings.certificate_chain.encode()
        self._raw.write(HELLO + len(shows).to_bytes(2, "big") + shows)

    def get_buffer(self, sizehint: int) -> Any:
        if self._done:
            return self.inner.get_buffer(sizehint)
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        if self._done:
            self.inner.buffer_updated(nbytes)
            return
        self._received += self._buffer[:nbytes]
        head = bytes(self._received[: len(HELLO)])
        if head != HELLO[: len(head)]:
            self._fail("the peer does not speak TLS; a client there needs security.protocol=SSL or SASL_SSL")
            return
        start = len(HELLO) + 2
        if len(self._received) < start:
            return
        size = int.from_bytes(self._received[len(HELLO) : start], "big")
        if size > HELLO_BYTES_MAX:
            self._fail("a certificate that is too long")
            return
        if len(self._received) >= start + size:
            self._meet(self._received[start : start + size].decode(), bytes(self._received[start + size :]))

    def _meet(self, certificate: str, rest: bytes) -> None:
        refusal = self._tls.refusal(certificate)
        if refusal is not None:
            self._fail(refusal)
            return
        self._timer.cancel()
        self._done = True
        if self._tls.server:
            self._say_hello()
        inner: Any = self.inner
        inner.secured(certificate.partition(";")[0])
        if not self.ready.done():
            self.ready.set_result(None)
        while rest:
            target: Any = self.inner.get_buffer(-1)
            part = rest[: len(target)]
            target[: len(part)] = part
            rest = rest[len(part) :]
            self.inner.buffer_updated(len(part))

    def _fail(self, reason: str) -> None:
        if self._failed or self._done:
            return
        self._failed = True
        inner: Any = self.inner
        inner.handshake_failed(reason)
        self._raw.close()

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if not self.ready.done():
            self.ready.set_exception(ConnectionResetError("closed the connection during the TLS handshake"))
            self.ready.exception()  # nobody may be waiting for it
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


class SimTlsTransport:
    """Plain bytes, but no way around it: as with real TLS there is no direct socket."""

    def __init__(self, raw: Transport) -> None:
        self._raw = raw

    def write(self, data: Buffer) -> None:
        self._raw.write(data)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)
