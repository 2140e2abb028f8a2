"""How a record that could not be read is written: its own key and value, and in the headers why and where from.

The same headers as `penstock.pipeline.dead_letters` writes, which needs Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

TOPIC: Final = "penstock.error.topic"
PARTITION: Final = "penstock.error.partition"
OFFSET: Final = "penstock.error.offset"
REASON: Final = "penstock.error.reason"


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
