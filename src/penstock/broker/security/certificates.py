"""Key and trust stores: read at the start, and again when their files change.

A store is PEM text, inline in the configuration or in a file. Files are looked at every `CHECK_MS`, off the loop.
Changed ones are loaded for new connections; open connections continue. Files that cannot be read or do not fit together
are logged and the old certificates stay in use: an operator replaces key and certificate one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.config import ListenerSecurity
from penstock.runtime import Runtime, Tls, TlsSettings
from penstock.runtime.eventlog import EventLog

CHECK_MS = 5_000


class StoreError(Exception):
    """A key or trust store that cannot be used; the message says which and why, and repeats no secret."""


class _Watched(NamedTuple):
    what: str
    security: ListenerSecurity
    tls: Tls
    server: bool


class Certificates:
    """All TLS settings of a node."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._runtime = runtime
        self._events = events
        self._watched: list[tuple[_Watched, TlsSettings]] = []
        self._is_stopping: Callable[[], bool] = lambda: False
        self._running = False
        self.reloads = 0

    def of_listener(self, security: ListenerSecurity) -> Tls | None:
        """TLS for the connections that this listener accepts. Raises StoreError."""
        return self._open(security, server=True) if security.uses_tls else None

    def of_peers(self, security: ListenerSecurity) -> Tls | None:
        """TLS for this node's connections to listeners of this name on other nodes. Raises StoreError."""
        return self._open(security, server=False) if security.uses_tls else None

    def _open(self, security: ListenerSecurity, *, server: bool) -> Tls:
        settings = self._settings(security, server)
        try:
            tls = self._runtime.tls(settings, server=server)
        except ValueError as error:
            raise StoreError(f"listener {security.name}: {error}") from None
        what = f"listener {security.name}" if server else f"connections to {security.name}"
        self._watched.append((_Watched(what, security, tls, server), settings))
        return tls

    def _settings(self, security: ListenerSecurity, server: bool) -> TlsSettings:
        chain = security.ssl_keystore_certificate_chain or ""
        key = security.ssl_keystore_key or ""
        if security.ssl_keystore_location is not None:
            chain, key = self._read("ssl.keystore.location", security.ssl_keystore_location), ""
        trusted = security.ssl_truststore_certificates or ""
        if security.ssl_truststore_location is not None:
            trusted = self._read("ssl.truststore.location", security.ssl_truststore_location)
        return TlsSettings(
            certificate_chain=chain,
            private_key=key,
            key_password=security.ssl_key_password,
            trusted=trusted,
            client_auth=security.ssl_client_auth if server else "none",
            versions=security.ssl_enabled_protocols,
            ciphers=":".join(security.ssl_cipher_suites),
            check_host=security.ssl_endpoint_identification_algorithm == "https",
        )

    def _read(self, name: str, path: str) -> str:
        try:
            return self._runtime.read_file(path).decode()
        except OSError as error:
            raise StoreError(f"{name}={path} cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise StoreError(f"{name}={path} is not in PEM format; convert a JKS or PKCS12 store") from None

    # ---- while the node runs

    def watch(self, is_stopping: Callable[[], bool]) -> None:
        """Look for changed files until the node stops."""
        if self._watched and not self._running:
            self._running = True
            self._is_stopping = is_stopping
            self._runtime.call_later(CHECK_MS, self._check_later)

    def _check_later(self) -> None:
        if not self._is_stopping():
            self._runtime.spawn(self._check(), "check certificates")

    async def _check(self) -> None:
        try:
            for index, (watched, before) in enumerate(self._watched):
                try:
                    settings = await self._runtime.offload(self._settings, watched.security, watched.server)
                    if settings == before:
                        continue
                    watched.tls.update(settings)
                except (StoreError, ValueError) as error:
                    self._events.recurring(
                        "certificates not reloaded", str(error), used_by=watched.what, reason=str(error)
                    )
                    continue
                self._watched[index] = (watched, settings)
                self.reloads += 1
                self._events.info("certificates reloaded", used_by=watched.what)
        finally:
            self._runtime.call_later(CHECK_MS, self._check_later)
