"""How the files of a log are called: as Kafka calls them, so that its tools read them."""

from __future__ import annotations

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
DELETED_DIRECTORY_SUFFIX = "-delete"

EPOCHS_NAME = "leader-epoch-checkpoint"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
START_OFFSETS_NAME = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN_NAME = "clean-shutdown-checkpoint"
LAST_CLEAN_SHUTDOWN_NAME = "last-clean-shutdown-checkpoint"

_DIGITS = 20


def path_of(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset:020d}{suffix}"


def offset_in(name: str, suffix: str) -> int | None:
    """The offset that a file name states, if it is one with this suffix."""
    digits = name[:_DIGITS]
    if name[_DIGITS:] == suffix and len(digits) == _DIGITS and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def parent_of(directory: str) -> str:
    return directory.rpartition("/")[0]
