"""Merges a producer's or consumer's settings: Java's or librdkafka's names, split into ours and librdkafka's.

Producer("localhost:9092", linger_ms=0)                        # underscores for dots, as keywords
Producer("localhost:9092", {"linger.ms": 0, "security.protocol": "SSL"})
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.client import defaults
from penstock.client.errors import SettingsError
from penstock.client.librdkafka import librdkafka_properties

Callback = Callable[..., Any]

CALLBACKS = frozenset({"error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_commit", "logger"})
"""Settings that take a callable in confluent-kafka; their names have real underscores."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Options:
    """Settings, split by who uses them."""

    properties: dict[str, str]
    """All settings by name, as text, defaults included."""
    native: dict[str, Any]
    """The settings for confluent-kafka, under its names, without callbacks."""
    callbacks: dict[str, Callback | logging.Logger] = field(default_factory=dict)

    @property
    def client_id(self) -> str:
        return self.properties["client.id"]

    def number(self, name: str, *, smallest: int = 0) -> int:
        """A required whole number; raises SettingsError if it is invalid."""
        text = self.properties[name]
        try:
            value = int(text)
        except ValueError:
            raise SettingsError(name, f"{text!r} is not a whole number") from None
        if value < smallest:
            raise SettingsError(name, f"{value} is less than {smallest}")
        return value

    def flag(self, name: str) -> bool:
        text = self.properties[name].lower()
        if text not in ("true", "false"):
            raise SettingsError(name, f"{text!r} is neither true nor false")
        return text == "true"


def producer_options(
    bootstrap_servers: str | Iterable[str], properties: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> Options:
    given, callbacks = _gather(bootstrap_servers, properties, keywords)
    texts = _with_defaults(given, defaults.PRODUCER, "producer")
    if texts["enable.idempotence"].lower() == "true" and texts["acks"].lower() not in ("all", "-1"):
        if "enable.idempotence" in given:
            raise SettingsError("acks", "idempotence needs acks=all: leave out one of the two")
        texts["enable.idempotence"] = "false"
    if texts.get("transactional.id"):
        if texts["enable.idempotence"].lower() != "true":
            raise SettingsError("transactional.id", "transactions need idempotence and acks=all: leave out the others")
        texts.setdefault("transaction.timeout.ms", defaults.TRANSACTION_TIMEOUT_MS)
        for name in ("delivery.timeout.ms", "request.timeout.ms"):
            # librdkafka demands it: a record that is still being sent when its transaction has ended can only fail.
            if name not in given and texts["transaction.timeout.ms"].isdecimal():
                texts[name] = str(min(int(texts[name]), int(texts["transaction.timeout.ms"])))
    native = dict(librdkafka_properties(texts))
    native["socket.timeout.ms"] = given.get("socket.timeout.ms", texts["request.timeout.ms"])
    return Options(texts, native, callbacks)


def consumer_options(
    bootstrap_servers: str | Iterable[str], properties: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> Options:
    given, callbacks = _gather(bootstrap_servers, properties, keywords)
    texts = _with_defaults(given, defaults.CONSUMER, "consumer")
    if texts.get("group.protocol", "classic").lower() == "consumer":
        for name in defaults.CLASSIC_ONLY:
            if name in given:
                raise SettingsError(name, "is set by the broker with group.protocol=consumer: leave it out")
            del texts[name]
    native = dict(librdkafka_properties(texts))
    # Java's timeout for every request; librdkafka's consumers know it as the socket timeout.
    native["socket.timeout.ms"] = given.get("socket.timeout.ms", native.pop("request.timeout.ms"))
    # Commits are decided here: librdkafka would count records as done when it delivers them.
    native["enable.auto.commit"] = "false"
    native["enable.auto.offset.store"] = "false"
    native.pop("auto.commit.interval.ms", None)
    return Options(texts, native, callbacks)


def refused(error: Exception) -> SettingsError:
    """librdkafka's error about a setting as a SettingsError; its text names the setting."""
    reason = error.args[0] if error.args else error
    text = reason.str() if hasattr(reason, "str") else str(reason)
    named = text.split('"')
    return SettingsError(named[1] if len(named) > 1 else "settings", text)


def _gather(
    bootstrap_servers: str | Iterable[str], properties: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> tuple[dict[str, str], dict[str, Callback | logging.Logger]]:
    servers = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
    named: dict[str, object] = {"bootstrap.servers": servers, **(properties or {})}
    for name, value in keywords.items():
        named[name if name in CALLBACKS or name == "log_level" else name.replace("_", ".")] = value
    callbacks: dict[str, Callback | logging.Logger] = {}
    texts: dict[str, str] = {}
    for name, value in named.items():
        if value is None:
            continue
        if name in CALLBACKS:
            if not callable(value) and not isinstance(value, logging.Logger):
                raise SettingsError(name, f"{value!r} cannot be called")
            callbacks[name] = value
        elif isinstance(value, bool):
            texts[name] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            texts[name] = str(value).strip()
        elif isinstance(value, (list, tuple)):
            texts[name] = ",".join(str(one) for one in value)
        else:
            raise SettingsError(name, f"{value!r} is neither text nor a number")
    return texts, callbacks


ALIASES = {
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
"""librdkafka's aliases of settings that have a default here; a given alias overrides the default."""


def _with_defaults(given: dict[str, str], table: Mapping[str, defaults.Default], kind: str) -> dict[str, str]:
    for alias, name in ALIASES.items():
        if alias in given and name in table:
            if name in given:
                raise SettingsError(alias, f"is an alias of {name}, which is set too: leave out one of the two")
            value = given.pop(alias)
            given[name] = str(int(value) * 1024) if alias == "queue.buffering.max.kbytes" else value
    texts = {name: default.value for name, default in table.items()} | given
    if not texts.get("client.id"):
        texts["client.id"] = f"penstock-{kind}-{next(_numbers)}"
    return texts
