"""Client properties, parsed once into `ClientSettings`.

Names are those of Kafka's Java clients and of librdkafka; where the two differ, either is accepted. Properties that do
not concern a reader (`group.id`, `acks`, …) are ignored. Security properties are not: an `ssl.*`, `sasl.*` or
`security.*` property that is not understood raises `UnsupportedSetting` and is never skipped.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from penstock.client import login, tls
from penstock.client.errors import SettingsError, UnsupportedSetting
from penstock.client.sasl import SaslSettings
from penstock.client.tls import TlsSettings
from penstock.config import parse_host_port

MIB = 1024 * 1024
DEFAULT_PORT = 9092
DEFAULT_CLIENT_ID = "penstock"
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
INT32_MAX = 2**31 - 1
# The first record batch is returned even if it exceeds the requested size; this is room for the rest of the response.
FRAME_OVERHEAD_BYTES = MIB

_GUARDED = ("ssl.", "sasl.", "security.", "enable.ssl", "enable.sasl", "https.ca")
_KNOWN = tls.KNOWN | login.KNOWN | {"security.protocol", "security.providers"}

READ = _KNOWN | {
    "bootstrap.servers", "metadata.broker.list", "client.id", "check.crcs", "isolation.level", "fetch.max.bytes",
    "max.partition.fetch.bytes", "fetch.message.max.bytes", "receive.message.max.bytes", "fetch.max.wait.ms",
    "fetch.wait.max.ms", "fetch.min.bytes", "socket.connection.setup.timeout.ms", "request.timeout.ms",
    "socket.timeout.ms", "default.api.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms", "receive.buffer.bytes",
    "socket.receive.buffer.bytes",
}  # fmt: skip
"""Every property that is evaluated here."""
OF_CONSUMERS = READ | {
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "auto.offset.reset",
    "client.dns.lookup", "client.rack", "config.providers", "connections.max.idle.ms", "enable.auto.commit",
    "enable.metrics.push", "exclude.internal.topics", "group.id", "group.instance.id", "group.protocol",
    "group.remote.assignor", "heartbeat.interval.ms", "interceptor.classes", "key.deserializer", "max.poll.interval.ms",
    "max.poll.records", "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy",
    "metric.reporters", "metrics.num.samples", "metrics.recorder.level", "metrics.sample.window.ms",
    "partition.assignment.strategy", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "send.buffer.bytes",
    "session.timeout.ms", "socket.connection.setup.timeout.max.ms", "value.deserializer",
}  # fmt: skip
"""These and all other consumer properties of Java, to tell a misspelt name from one that does not concern a reader."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ClientSettings:
    """All settings of connections, clusters and fetches. Frozen and picklable; its repr hides secrets."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = DEFAULT_CLIENT_ID
    security_protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    """How long to retry before giving up; for a fetch, how long without any progress."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    receive_buffer_bytes: int = -1
    frame_bytes_max: int = 100 * MIB
    fetch_max_bytes: int = 50 * MIB
    partition_fetch_bytes: int = 8 * MIB
    """Eight times Kafka's default for consumers, because this client reads in bulk."""
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    check_crcs: bool = True
    read_committed: bool = False
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties these settings were read from, for callers that must pass them on."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Parses properties; SettingsError names the invalid one and the fix."""
        texts = {name: _text(value) for name, value in properties.items() if value is not None}
        for name in texts:
            if name.startswith(_GUARDED) and name not in _KNOWN:
                raise UnsupportedSetting(name, "is not known to this client")
        security = texts.get("security.protocol", "PLAINTEXT").upper()
        if security not in SECURITY_PROTOCOLS:
            raise SettingsError("security.protocol", f"{security} is not one of {', '.join(SECURITY_PROTOCOLS)}")
        if texts.get("security.providers"):
            raise UnsupportedSetting("security.providers", "names Java code, which cannot run here")
        numbers = _Numbers(texts)
        fetch_max_bytes = numbers.get(50 * MIB, 1, "fetch.max.bytes")
        partition_fetch_bytes = numbers.get(8 * MIB, 1, "max.partition.fetch.bytes", "fetch.message.max.bytes")
        frame_bytes_max = numbers.get(100 * MIB, 1000, "receive.message.max.bytes")
        isolation = texts.get("isolation.level", "read_uncommitted").lower()
        if isolation not in ("read_uncommitted", "read_committed"):
            raise SettingsError("isolation.level", f"{isolation} is neither read_uncommitted nor read_committed")
        return cls(
            bootstrap_servers=_addresses(texts),
            client_id=texts.get("client.id") or DEFAULT_CLIENT_ID,
            security_protocol=security,
            tls=tls.read(texts) if security.endswith("SSL") else None,
            sasl=login.read(texts) if security.startswith("SASL") else None,
            connect_timeout_ms=numbers.get(10_000, 1, "socket.connection.setup.timeout.ms"),
            request_timeout_ms=numbers.get(30_000, 1, "request.timeout.ms", "socket.timeout.ms"),
            api_timeout_ms=numbers.get(60_000, 1, "default.api.timeout.ms"),
            retry_backoff_ms=numbers.get(100, 1, "retry.backoff.ms"),
            retry_backoff_max_ms=numbers.get(1_000, 1, "retry.backoff.max.ms"),
            receive_buffer_bytes=numbers.get(-1, -1, "receive.buffer.bytes", "socket.receive.buffer.bytes"),
            frame_bytes_max=max(frame_bytes_max, min(fetch_max_bytes + FRAME_OVERHEAD_BYTES, INT32_MAX)),
            fetch_max_bytes=fetch_max_bytes,
            partition_fetch_bytes=partition_fetch_bytes,
            fetch_max_wait_ms=numbers.get(500, 0, "fetch.max.wait.ms", "fetch.wait.max.ms"),
            fetch_min_bytes=numbers.get(1, 1, "fetch.min.bytes"),
            check_crcs=texts.get("check.crcs", "true").lower() != "false",
            read_committed=isolation == "read_committed",
            properties=texts,
        )


def unknown_names(properties: Iterable[str]) -> dict[str, str | None]:
    """Names that no Kafka consumer knows, each with its closest match. Java warns about them too."""
    found: dict[str, str | None] = {}
    for name in sorted(set(properties) - OF_CONSUMERS):
        close = difflib.get_close_matches(name, sorted(OF_CONSUMERS), n=1, cutoff=0.8)
        found[name] = close[0] if close else None
    return found


class _Numbers:
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def get(self, default: int, smallest: int, *names: str) -> int:
        """The value of the first of these names that is set."""
        for name in names:
            text = self._texts.get(name)
            if text is None:
                continue
            try:
                value = int(text)
            except ValueError:
                raise SettingsError(name, f"{text!r} is not a whole number") from None
            if not smallest <= value <= INT32_MAX:
                raise SettingsError(name, f"{value} is not between {smallest} and {INT32_MAX}")
            return value
        return default


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _addresses(texts: Mapping[str, str]) -> tuple[Address, ...]:
    text = texts.get("bootstrap.servers") or texts.get("metadata.broker.list") or ""
    addresses = []
    for item in text.split(","):
        name = item.strip().rpartition("://")[2]
        if not name:
            continue
        has_port = name.endswith("]") is False and ":" in name
        try:
            host, port = parse_host_port(name if has_port else f"{name}:{DEFAULT_PORT}")
        except ValueError as error:
            raise SettingsError("bootstrap.servers", str(error)) from None
        if not host or not port:
            raise SettingsError("bootstrap.servers", f"{name!r} is not HOST:PORT")
        addresses.append(Address(host, port))
    if not addresses:
        raise SettingsError("bootstrap.servers", "is not set: name at least one broker as HOST:PORT")
    return tuple(addresses)
