"""TLS between a socket's transport and a protocol of the engine.

    raw transport  ⇄  TlsProtocol (ciphertext)  ⇄  TlsTransport (plain text)  ⇄  the engine's protocol

A listener creates the engine's protocol when a connection is accepted, and calls its `connection_made` at once, before
the handshake: so the connection is admitted and counted from the start, and a peer that never finishes its handshake
uses one of the places that limits count. After the handshake `secured` tells the protocol who the peer is; only then
does it receive bytes. `TlsProtocol` does this itself, because uvloop reports a TLS connection only after its handshake.

Limits: a handshake takes at most `HANDSHAKE_MS`; at most `HANDSHAKES_MAX` are in progress on one node, and each pass of
the loop works on them for `HANDSHAKE_TURN_MS`, because their arithmetic takes a millisecond and requests must not wait
for a crowd that reconnects. Ciphertext is read in pieces of `READ_BYTES`; at most one of them waits while the engine
does not read.

Certificates can be replaced while connections are open (`Tls.update`): new handshakes use the new ones.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from asyncio import AbstractEventLoop, BufferedProtocol, Future, TimerHandle
from collections import deque
from typing import Any, Final, Protocol

from penstock.runtime import Buffer, TlsSettings, Transport
from penstock.runtime.tls_names import distinguished_name

HANDSHAKE_MS: Final = 10_000
"""How long a handshake may take, from the first byte of the connection."""
HANDSHAKES_MAX: Final = 1_000
"""Handshakes in progress at the same time. Further connections are closed; clients retry."""
HANDSHAKE_TURN_MS: Final = 2.0
READ_BYTES: Final = 64 * 1024
CIPHERTEXT_BYTES_MAX: Final = 128 * 1024
"""Undecrypted bytes of a connection that the engine does not read: those of one read and what OpenSSL has begun."""

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class Secured(Protocol):
    """The part of the engine's protocol that a TLS connection calls besides `BufferedProtocol`."""

    def secured(self, subject: str) -> None:
        """The handshake is done. `subject`: the verified name of the peer's certificate; empty if it has shown none."""

    def handshake_failed(self, reason: str) -> None:
        """The connection is about to be closed."""


class Tls:
    """The certificates and rules of one listener, or of this node's outgoing connections."""

    def __init__(self, loop: AbstractEventLoop, settings: TlsSettings, *, server: bool) -> None:
        self._loop = loop
        self._server = server
        self.context = _context(settings, server=server)
        self.check_host = settings.check_host
        self.handshaking = 0
        self._turns: deque[TlsProtocol] = deque()
        self._turn_queued = False
        self.buffer = bytearray(READ_BYTES)
        self.view = memoryview(self.buffer)

    def update(self, settings: TlsSettings) -> None:
        """Use other certificates from now on. Raises ValueError if they cannot be used; then nothing changes."""
        self.context = _context(settings, server=self._server)
        self.check_host = settings.check_host

    def protocol(self, inner: BufferedProtocol, host: str | None = None) -> TlsProtocol:
        """The protocol for a new connection; `host` is the expected name of a server."""
        return TlsProtocol(self._loop, self, inner, server=self._server, host=host)

    def queue_handshake(self, protocol: TlsProtocol) -> None:
        self._turns.append(protocol)
        if not self._turn_queued:
            self._turn_queued = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_queued = False
        until = time.monotonic() + HANDSHAKE_TURN_MS / 1000
        while self._turns:
            self._turns.popleft().shake_hands()
            if time.monotonic() >= until:
                break
        if self._turns:
            self._turn_queued = True
            # A timer, not `call_soon`: the loop reads sockets in between.
            self._loop.call_later(0, self._turn)


class TlsProtocol(BufferedProtocol):
    """The lower half: ciphertext from and to the socket."""

    def __init__(
        self, loop: AbstractEventLoop, tls: Tls, inner: BufferedProtocol, *, server: bool, host: str | None
    ) -> None:
        self._loop = loop
        self._tls = tls
        self.inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = tls.context.wrap_bio(
            self._incoming, self._outgoing, server_side=server, server_hostname=host if tls.check_host else None
        )
        self._raw: Transport
        self._is_shaking = False
        self._is_done = False
        self._is_queued = False
        self._is_lost = False
        self._paused = False
        self._raw_paused = False
        self._timer: TimerHandle | None = None
        self._failure = ""
        self.ready: Future[None] | None = None if server else loop.create_future()
        """Outgoing connections: resolved when the handshake is done."""

    # ---- from the socket

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._raw = transport
        self.inner.connection_made(TlsTransport(self, transport))  # type: ignore[arg-type]
        if transport.is_closing():
            return
        tls = self._tls
        if tls.handshaking >= HANDSHAKES_MAX:
            self._fail(f"{HANDSHAKES_MAX} TLS handshakes are in progress")
            return
        self._is_shaking = True
        tls.handshaking += 1
        self._timer = self._loop.call_later(HANDSHAKE_MS / 1000, self._too_slow)
        if self.ready is not None:
            self.shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._tls.view

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._tls.view[:nbytes])
        if self._is_done:
            self.decrypt()
        elif self._is_shaking and not self._is_queued:
            if self.ready is not None:
                self.shake_hands()
            else:
                self._is_queued = True
                self._tls.queue_handshake(self)
        if self._incoming.pending > CIPHERTEXT_BYTES_MAX - READ_BYTES and not self._raw_paused:
            self._raw_paused = True
            self._raw.pause_reading()

    def eof_received(self) -> bool:
        if self._is_shaking:
            self._fail("the peer closed the connection during the TLS handshake")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._end_handshake()
        if self.ready is not None and not self.ready.done():
            reason = self._failure or "closed the connection during the TLS handshake"
            self.ready.set_exception(ConnectionResetError(reason))
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    # ---- the handshake

    def shake_hands(self) -> None:
        self._is_queued = False
        if self._is_lost or not self._is_shaking:
            return
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ValueError, OSError) as error:
            self._flush()  # the alert that says why
            self._fail(_explained(error))
            return
        self._flush()
        self._end_handshake()
        self._is_done = True
        certificate = self._object.getpeercert() or {}
        inner: Any = self.inner
        inner.secured(distinguished_name(certificate.get("subject", ())))
        if self.ready is not None and not self.ready.done():
            self.ready.set_result(None)
        self.decrypt()

    def _end_handshake(self) -> None:
        if self._is_shaking:
            self._is_shaking = False
            self._tls.handshaking -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._fail(f"the TLS handshake was not finished within {HANDSHAKE_MS // 1000} s")

    def _fail(self, reason: str) -> None:
        if self._failure or self._is_lost:
            return
        self._failure = reason
        self._end_handshake()
        inner: Any = self.inner
        inner.handshake_failed(reason)
        # `close`, not `abort`: the alert that was written tells the peer the reason.
        self._raw.close()

    # ---- plain text

    def decrypt(self) -> None:
        """Give the engine's protocol all bytes that are there, while it reads."""
        inner, read = self.inner, self._object.read
        is_empty = is_over = False
        try:
            while self._is_done and not self._paused and not self._is_lost and not is_empty and not is_over:
                buffer: Any = inner.get_buffer(-1)
                filled, size = 0, len(buffer)
                assert size, "a protocol that has no room does not read"
                try:
                    while filled < size and not is_over:
                        got: Any = read(size - filled, buffer[filled:])
                        filled += got
                        is_over = not got
                except ssl.SSLWantReadError:
                    is_empty = True
                except ssl.SSLZeroReturnError:
                    is_over = True
                if filled:
                    inner.buffer_updated(filled)
        except ssl.SSLError as error:
            self._fail(_explained(error))
            return
        if is_over and not self._is_lost:
            # The peer has said goodbye. Some wait half a minute for the same from us.
            self.say_goodbye()
            self._raw.close()
            return
        if self._outgoing.pending:
            self._flush()  # an answer to a key update
        if self._raw_paused and not self._is_lost and self._incoming.pending <= CIPHERTEXT_BYTES_MAX - READ_BYTES:
            self._raw_paused = False
            self._raw.resume_reading()

    def encrypt(self, data: Buffer) -> None:
        assert self._is_done, "nothing is written before the handshake is done"
        try:
            self._object.write(data)
        except ssl.SSLError as error:
            self._fail(_explained(error))
            return
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._is_lost and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self.decrypt)

    def say_goodbye(self) -> None:
        if self._is_done and not self._is_lost and not self._raw.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self._object.unwrap()
            self._flush()


class TlsTransport:
    """The upper half: the transport that the engine's protocol sees."""

    __slots__ = ("_protocol", "_raw")

    def __init__(self, protocol: TlsProtocol, raw: Transport) -> None:
        self._protocol = protocol
        self._raw = raw

    def write(self, data: Buffer) -> None:
        if len(data) and not self._raw.is_closing():
            self._protocol.encrypt(data)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._protocol.pause()

    def resume_reading(self) -> None:
        self._protocol.resume()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def close(self) -> None:
        self._protocol.say_goodbye()
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "tls":
            return self._protocol
        return self._raw.get_extra_info(name, default)


def _context(settings: TlsSettings, *, server: bool) -> ssl.SSLContext:
    """Raises ValueError, which says what is wrong and never repeats a key or a password."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    versions = [VERSIONS[name] for name in settings.versions if name in VERSIONS]
    if len(versions) != len(settings.versions) or not versions:
        raise ValueError(f"ssl.enabled.protocols must name some of {', '.join(VERSIONS)}")
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        if settings.ciphers:
            context.set_ciphers(settings.ciphers)
    except ssl.SSLError:
        raise ValueError("ssl.cipher.suites names no cipher that OpenSSL knows") from None
    if server:
        context.verify_mode = CLIENT_AUTH[settings.client_auth]
    else:
        context.check_hostname = settings.check_host
        context.verify_mode = ssl.CERT_REQUIRED
    if settings.trusted:
        try:
            context.load_verify_locations(cadata=settings.trusted)
        except (ssl.SSLError, ValueError):
            raise ValueError("the trust store holds no readable certificate in PEM format") from None
    elif not server:
        context.load_default_certs()
    if settings.certificate_chain:
        load_key_pair(context, settings)
    elif server:
        raise ValueError("a TLS listener needs a key store (ssl.keystore.location, or ssl.keystore.key and a chain)")
    return context


def load_key_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """OpenSSL reads keys from files only: a memory file, which no other user can open, and no disk keeps."""
    text = settings.private_key + "\n" + settings.certificate_chain
    descriptor = os.memfd_create("penstock-keys", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: settings.key_password or "")
    except (ssl.SSLError, OSError, ValueError):
        raise ValueError(
            "the key store holds no private key with the certificate that belongs to it, or ssl.key.password is wrong"
        ) from None
    finally:
        os.close(descriptor)


_EXPLAINED: Final = {
    "HTTP_REQUEST": "this is an HTTP client on a TLS port",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS; a client there needs security.protocol=SSL or SASL_SSL",
    "CERTIFICATE_VERIFY_FAILED": "the peer's certificate is refused",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has shown no certificate, and ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not know the authority that signed this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer finds this node's certificate expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer refuses this node's certificate",
    "UNSUPPORTED_PROTOCOL": "the peer supports no TLS version that is enabled here (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "the peer supports no cipher that is enabled here",
}


def _explained(error: Exception) -> str:
    reason = getattr(error, "reason", None) or ""
    text = _EXPLAINED.get(reason, f"TLS failed: {reason or error}")
    verify = getattr(error, "verify_message", None)
    return f"{text}: {verify}" if verify else text
