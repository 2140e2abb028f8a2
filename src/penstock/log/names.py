"""How the files of a log are called: as Kafka calls them, so that its tools read them."""

from __future__ import annotations

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
CLEANED_SUFFIX = ".cleaned"
"""Of what a compaction is writing. Of no use to anyone else."""
SWAP_SUFFIX = ".swap"
"""Of a compacted segment that is complete and durable, and on its way to its place."""
DELETED_DIRECTORY_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
"""Of directories that were set aside: see `penstock.log.strays`."""

EPOCHS_NAME = "leader-epoch-checkpoint"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
START_OFFSETS_NAME = "log-start-offset-checkpoint"
CLEANER_OFFSETS_NAME = "cleaner-offset-checkpoint"
HIGH_WATERMARKS_NAME = "replication-offset-checkpoint"
CLEAN_SHUTDOWN_NAME = "clean-shutdown-checkpoint"
LAST_CLEAN_SHUTDOWN_NAME = "last-clean-shutdown-checkpoint"
PARTITION_METADATA_NAME = "partition.metadata"
"""Says whose log this is. Whoever makes the directory writes it; it is as durable as the records beside it."""

NAME_BYTES_MAX = 255

_DIGITS = 20


def path_of(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset:020d}{suffix}"


def offset_in(name: str, suffix: str) -> int | None:
    """The offset that a file name states, if it is one with this suffix."""
    digits = name[:_DIGITS]
    if name[_DIGITS:] == suffix and len(digits) == _DIGITS and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def aside(directory: str, unique: str, suffix: str) -> str:
    """What a directory is called that is on its way out. Long names are cut, as in Kafka, so that they stay names."""
    parent, slash, name = directory.rpartition("/")
    tail = f".{unique}{suffix}"
    return parent + slash + name[: NAME_BYTES_MAX - len(tail)] + tail


def parent_of(directory: str) -> str:
    return directory.rpartition("/")[0]
