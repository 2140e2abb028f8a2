"""What is where in a data directory. Names are Kafka's where Kafka has them."""

from __future__ import annotations

META_PROPERTIES = "meta.properties"
METADATA_DIRECTORY = "__cluster_metadata-0"
QUORUM_STATE_PATH = f"{METADATA_DIRECTORY}/quorum-state"
STRAY_SUFFIX = "-stray"
"""Of directories that were set aside because nobody knows whose they are. Removing them is left to people."""
UUID_TEXT_LENGTH = 22


def partition_directory(topic: str, index: int) -> str:
    return f"{topic}-{index}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) if this is a partition's directory."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        return None
    return topic, int(number)


def partition_metadata_text(topic_id: str) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()


def parse_partition_metadata(data: bytes) -> str | None:
    """The topic id, or None where the file is not whole (the broker crashed while it wrote it)."""
    lines = data.decode(errors="replace").splitlines()
    if len(lines) < 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        return None
    topic_id = lines[1].removeprefix("topic_id: ").strip()
    whole = len(topic_id) == UUID_TEXT_LENGTH and topic_id.isascii() and topic_id.isprintable()
    return topic_id if whole else None
