"""Subscriptions to client metrics (KIP-714): the settings of the resource type CLIENT_METRICS.

A subscription names the metrics that clients are asked for (prefixes of names, `*` for all), how often they push them,
and which clients it is for: `match` has patterns such as `client_id=web-.*`, all of which must match. Patterns are
RE2's, so that a match takes linear time; Kafka has Java's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from penstock.config.definitions import Definition, Importance, Kind, UpdateMode, at_least, parse
from penstock.config.tables import Section, prop
from penstock.wire.errors import ErrorCode, KafkaError

METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"
ALL_METRICS: Final = "*"
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
INTERVAL_MS_DEFAULT: Final = 300_000
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern can be about."""
PATTERN_BYTES_MAX: Final = 1_000
PATTERN_MEMORY_BYTES_MAX: Final = 1 << 16


class Telemetry(Section, title="Client metrics"):
    """Limits on the metrics that clients push."""

    telemetry_max_bytes: int = prop(
        "telemetry.max.bytes",
        Kind.INT,
        1_048_576,
        at_least(1),
        "The maximum size of the metrics that a client pushes at once, compressed (KIP-714).",
        importance=Importance.LOW,
    )


CLIENT_METRICS: Final[dict[str, Definition]] = {
    definition.name: definition
    for definition in (
        Definition(
            INTERVAL,
            Kind.INT,
            INTERVAL_MS_DEFAULT,
            None,
            "How often clients push the metrics.",
            UpdateMode.CLUSTER_WIDE,
            Importance.MEDIUM,
        ),
        Definition(
            MATCH,
            Kind.LIST,
            (),
            None,
            "The clients that are asked, as patterns such as client_id=web-.*; all must match.",
            UpdateMode.CLUSTER_WIDE,
            Importance.MEDIUM,
        ),
        Definition(
            METRICS,
            Kind.LIST,
            (),
            None,
            "The metrics that are asked for, as prefixes of their names; * is all.",
            UpdateMode.CLUSTER_WIDE,
            Importance.MEDIUM,
        ),
    )
}


class Pattern(Protocol):
    def fullmatch(self, text: bytes) -> object | None: ...


class Subscription(NamedTuple):
    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, Pattern], ...]

    def matches(self, client: Mapping[str, str]) -> bool:
        """`client`: values by the names of `MATCHED`."""
        return all(pattern.fullmatch(client[key].encode()) for key, pattern in self.match)


def subscription(name: str, settings: Mapping[str, str]) -> Subscription:
    """Raises KafkaError if the settings are invalid."""
    for key in settings:
        if key not in CLIENT_METRICS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        interval_ms = parse(CLIENT_METRICS[INTERVAL], settings.get(INTERVAL, str(INTERVAL_MS_DEFAULT)))
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Invalid value {settings[INTERVAL]} for {INTERVAL}: {error}"
        ) from None
    assert isinstance(interval_ms, int)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL}, interval must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (1 hour)",
        )
    match = tuple(_pattern(text) for text in _items(settings.get(MATCH, "")))
    return Subscription(name, tuple(_items(settings.get(METRICS, ""))), interval_ms, match)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _pattern(text: str) -> tuple[str, Pattern]:
    # Imported here: few clusters have subscriptions, and it would slow down every start.
    import re2

    key, equals, expression = (part.strip() for part in text.partition("="))
    reason = "it has no form like client_id=REGEX"
    if equals and expression and "=" not in expression and key in MATCHED:
        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES_MAX
        options.never_capture = True
        options.log_errors = False
        if len(expression.encode()) <= PATTERN_BYTES_MAX:
            try:
                pattern: Pattern = re2.compile(expression.encode(), options)
            except re2.error as error:
                reason = str(error)
            else:
                return key, pattern
        else:
            reason = f"the expression has more than {PATTERN_BYTES_MAX} bytes"
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text} ({reason})")
