"""The headers of a dead letter: why a record could not be read, and where it came from. Pure.

    penstock.error.reason      why it does not parse
    penstock.error.topic       where it came from
    penstock.error.partition
    penstock.error.offset
    penstock.error.timestamp   the record's own, in milliseconds
    penstock.error.pipeline    who could not parse it
    penstock.error.source      as which of its streams

All of them are text, and stand behind the record's own headers. The first four are there whoever wrote the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REASON: Final = "penstock.error.reason"
TOPIC: Final = "penstock.error.topic"
PARTITION: Final = "penstock.error.partition"
OFFSET: Final = "penstock.error.offset"
TIMESTAMP: Final = "penstock.error.timestamp"
PIPELINE: Final = "penstock.error.pipeline"
SOURCE: Final = "penstock.error.source"

Header = tuple[str, str | bytes | None]
"""As the client library has it."""


def dead_letter_headers(topic: str, partition: int, offset: int, reason: str) -> list[Header]:
    return [
        (REASON, reason.encode()),
        (TOPIC, topic.encode()),
        (PARTITION, str(partition).encode()),
        (OFFSET, str(offset).encode()),
    ]


def origin_and_reason(headers: Sequence[Header]) -> tuple[tuple[str, int, int], str]:
    """(topic, partition, offset) of the record, and why it could not be read."""
    named = {name: _text(value) for name, value in headers}
    return (named[TOPIC], int(named[PARTITION]), int(named[OFFSET])), named[REASON]


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
