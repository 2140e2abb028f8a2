"""The data in a directory, independent of the metadata, for messages that say what is still there."""

from __future__ import annotations

from penstock.broker.layout import METADATA_DIRECTORY, parse_partition_directory
from penstock.log import names
from penstock.runtime import Disk

NAMED_MAX = 5


def partitions_in(disk: Disk) -> list[tuple[str, str, int]]:
    """The directory, topic and index of every partition here."""
    found = []
    for name in disk.list(""):
        parsed = parse_partition_directory(name)
        if parsed is not None and name != METADATA_DIRECTORY and holds_partition(disk, name):
            found.append((name, *parsed))
    return found


def holds_partition(disk: Disk, directory: str) -> bool:
    """Whether a directory with such a name was created by a broker: `backup-2026` may be somebody else's."""
    return any(
        name == names.PARTITION_METADATA_NAME or names.offset_in(name, names.LOG_SUFFIX) is not None
        for name in disk.list(directory)
    )


def has_segments(disk: Disk, directory: str) -> bool:
    return any(names.offset_in(name, names.LOG_SUFFIX) is not None for name in disk.list(directory))


def log_bytes(disk: Disk, directory: str) -> int:
    """The size of the segments in a directory."""
    logs = [name for name in disk.list(directory) if names.offset_in(name, names.LOG_SUFFIX) is not None]
    return sum(disk.size(f"{directory}/{name}") for name in logs)


def remains_in(disk: Disk) -> str:
    """A description: the number of partitions, the topics, and the size."""
    partitions = partitions_in(disk)
    if not partitions:
        return "the directory contains no partitions"
    topics = list(dict.fromkeys(topic for _, topic, _ in partitions))
    some = ", ".join(topics[:NAMED_MAX]) + (", …" if len(topics) > NAMED_MAX else "")
    size = sum(log_bytes(disk, name) for name, _, _ in partitions)
    partitions_of_topics = f"{_plural(len(partitions), 'partition')} of {_plural(len(topics), 'topic')}"
    return f"{partitions_of_topics} ({some}), {size} bytes, are still there"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
