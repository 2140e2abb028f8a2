"""The names of a log's files: the same as Kafka's, so that its tools can read them."""

from __future__ import annotations

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
CLEANED_SUFFIX = ".cleaned"
"""Suffix of files that a compaction is writing. They are useless after a restart."""
SWAP_SUFFIX = ".swap"
"""Suffix of a compacted segment that is complete and durable but has not replaced the old segments yet."""
DELETED_DIRECTORY_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
"""Suffix of directories that were set aside: see `penstock.log.strays`."""

EPOCHS_NAME = "leader-epoch-checkpoint"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
START_OFFSETS_NAME = "log-start-offset-checkpoint"
CLEANER_OFFSETS_NAME = "cleaner-offset-checkpoint"
HIGH_WATERMARKS_NAME = "replication-offset-checkpoint"
CLEAN_SHUTDOWN_NAME = "clean-shutdown-checkpoint"
LAST_CLEAN_SHUTDOWN_NAME = "last-clean-shutdown-checkpoint"
PARTITION_METADATA_NAME = "partition.metadata"
"""Names the topic of this log. Written by the creator of the directory, and as durable as the records next to it."""

NAME_BYTES_MAX = 255

_DIGITS = 20


def path_of(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset:020d}{suffix}"


def offset_in(name: str, suffix: str) -> int | None:
    """The offset in a file name that has this suffix; None for other names."""
    digits = name[:_DIGITS]
    if name[_DIGITS:] == suffix and len(digits) == _DIGITS and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def aside(directory: str, unique: str, suffix: str) -> str:
    """The new name of a directory that is being deleted or set aside. Long names are truncated to a valid length, as in
    Kafka."""
    parent, slash, name = directory.rpartition("/")
    tail = f".{unique}{suffix}"
    return parent + slash + name[: NAME_BYTES_MAX - len(tail)] + tail


def parent_of(directory: str) -> str:
    return directory.rpartition("/")[0]
