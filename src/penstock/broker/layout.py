"""The names of files in a data directory. They are Kafka's names where Kafka has such files."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from crc32c import crc32c

from penstock.wire.uuids import UUID_TEXT_SIZE, parse_uuid

META_PROPERTIES = "meta.properties"
METADATA_DIRECTORY = "__cluster_metadata-0"
QUORUM_STATE_PATH = f"{METADATA_DIRECTORY}/quorum-state"


def partition_directory(topic: str, index: int) -> str:
    return f"{topic}-{index}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) if this is a partition's directory."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        return None
    return topic, int(number)


class OwnerState(Enum):
    """How far the content of a `partition.metadata` can be trusted."""

    CHECKED = "checked"
    UNCHECKED = "unchecked"
    """Without a checksum: written by Kafka or an earlier release."""
    TORN = "torn"
    """Missing, truncated or zero-filled, as a crash may leave a new file."""
    DAMAGED = "damaged"
    """Corrupt in a way that a crash cannot cause."""


class Owner(NamedTuple):
    topic_id: str
    """Empty if it cannot be read."""
    state: OwnerState


_VERSION_LINE = "version: 0\n"
_TOPIC_LINE = "topic_id: "
_CHECKSUM_LINE = "\ncrc32c: "


def partition_metadata_text(topic_id: str) -> bytes:
    """Kafka's file, with an additional line that Kafka ignores: a checksum of the first two."""
    head = f"{_VERSION_LINE}{_TOPIC_LINE}{topic_id}"
    return f"{head}{_CHECKSUM_LINE}{crc32c(head.encode()):08x}".encode()


def parse_partition_metadata(data: bytes) -> Owner:
    """Parse the file; empty data means that it is missing."""
    text = data.decode("ascii", errors="replace")
    head, line, checksum = text.partition(_CHECKSUM_LINE)
    topic_id = head.removeprefix(_VERSION_LINE + _TOPIC_LINE).strip()
    named = head.startswith(_VERSION_LINE + _TOPIC_LINE) and _is_uuid(topic_id)
    if line and named and checksum == f"{crc32c(head.encode()):08x}":
        return Owner(topic_id, OwnerState.CHECKED)
    if named and not line and head.rstrip() == f"{_VERSION_LINE}{_TOPIC_LINE}{topic_id}":
        return Owner(topic_id, OwnerState.UNCHECKED)
    return Owner("", OwnerState.TORN if _is_torn(text) else OwnerState.DAMAGED)


def _is_uuid(text: str) -> bool:
    try:
        parse_uuid(text)
    except ValueError:
        return False
    return True


def _is_torn(text: str) -> bool:
    """Whether this is the beginning of such a file, perhaps followed by zeros."""
    begun = text.rstrip("\0")
    fixed = _VERSION_LINE + _TOPIC_LINE
    return fixed.startswith(begun) or (begun.startswith(fixed) and _may_begin(begun[len(fixed) :]))


def _may_begin(rest: str) -> bool:
    """Whether a topic id and a checksum may begin like this."""
    topic_id, tail = rest[:UUID_TEXT_SIZE], rest[UUID_TEXT_SIZE:]
    known = len(_CHECKSUM_LINE)
    return (
        all(c.isalnum() or c in "-_" for c in topic_id)
        and (_CHECKSUM_LINE.startswith(tail) or tail.startswith(_CHECKSUM_LINE))
        and len(tail) < known + 8
    )
