"""Checkpoint files: small files at the root of a data directory with facts about all its logs.

`recovery-point-offset-checkpoint`  up to which offset each log was synced; an unclean start checks only what follows
`cleaner-offset-checkpoint`         up to which offset each log is compacted
`log-start-offset-checkpoint`       the start of each log, if it is not the first record on disk (DeleteRecords)
`clean-shutdown-checkpoint`         everything needed to open the logs without reading them
`last-clean-shutdown-checkpoint`    the previous file, renamed by the start that found it

The first three are Kafka's text files (version, count, then `topic partition offset` lines) with a checksum that
Kafka ignores (`sealing`).

`clean-shutdown-checkpoint` is the last file that a clean stop writes. A start first renames it durably to
`last-clean-shutdown-checkpoint`. So if the file still has its first name, the logs have not been written since. It
lets ten thousand logs open without one system call each.

After an unclean stop the renamed file still helps. Its entry for a log stays true while the log only grows: a log whose
files have the same sizes need not be read, and any other only from the recorded end on. The entry is removed before a
log is truncated below that end or compacted (`LogDirectory.checkpoint`).

Both are a msgpack array behind a version and a checksum. An unreadable file is treated as absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

import msgspec
from crc32c import crc32c

from penstock.log.sealing import SealBroken, seal, unseal
from penstock.runtime import Disk

_TEXT_VERSION = 0
_CLEAN_VERSION = 1
_CLEAN_HEADER = Struct(">HI")


class CheckpointDamaged(Exception):
    """A checkpoint file cannot be parsed or fails its checksum."""


class SegmentState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    base_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    aborted: int = -1
    """The number of entries in the index of aborted transactions; -1 if unknown."""


class LogState(msgspec.Struct, frozen=True, array_like=True):
    """A log as a clean stop left it."""

    name: str
    start_offset: int
    end_offset: int
    segments: list[SegmentState]
    epochs: list[tuple[int, int]]
    first_timestamp: int
    """The largest timestamp in the active segment, which decides when to roll it; -1 if it is empty."""
    producers: int
    """The number of producers in the snapshot at the end offset; if 0, the snapshot need not be read."""
    seal: tuple[int, int, int, int] | None = None
    """Seal of the active segment's index, whose files are not synced."""
    transactions: int = -1
    """The number of open transactions in the snapshot at the end offset; -1 if unknown. Unless it is 0, the snapshot is
    read when the log is opened: readers of committed records must not pass an open transaction."""


def encode_offsets(offsets: Iterable[tuple[str, int]]) -> bytes:
    """`<topic>-<partition>` and offset of each log, in Kafka's text format."""
    lines = []
    for name, offset in offsets:
        topic, _, partition = name.rpartition("-")
        lines.append(f"{topic} {partition} {offset}")
    return seal("\n".join([str(_TEXT_VERSION), str(len(lines)), *lines, ""]))


def decode_offsets(data: bytes) -> dict[str, int]:
    """Raises CheckpointDamaged."""
    try:
        version, count, *lines = unseal(data).decode().splitlines()
        offsets = {}
        for line in lines:
            topic, partition, offset = line.split(" ")
            offsets[f"{topic}-{int(partition)}"] = int(offset)
        if int(version) != _TEXT_VERSION or int(count) != len(lines):
            raise CheckpointDamaged(f"version {version}, {count} entries announced, {len(lines)} found")
    except SealBroken as error:
        raise CheckpointDamaged(str(error)) from None
    except ValueError:
        raise CheckpointDamaged("not a checkpoint of offsets") from None
    return offsets


def read_offsets(disk: Disk, path: str) -> dict[str, int]:
    """The offsets in a file; empty if the file does not exist. Raises CheckpointDamaged."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return {}
    try:
        return decode_offsets(data)
    except CheckpointDamaged as error:
        raise CheckpointDamaged(f"{disk.root}/{path}: {error}") from None


def encode_clean_shutdown(logs: list[LogState]) -> bytes:
    body = msgspec.msgpack.encode(logs)
    return _CLEAN_HEADER.pack(_CLEAN_VERSION, crc32c(body)) + body


def decode_clean_shutdown(data: bytes) -> list[LogState]:
    """Raises CheckpointDamaged."""
    try:
        version, crc = _CLEAN_HEADER.unpack_from(data)
    except StructError:
        raise CheckpointDamaged("the file is too short") from None
    body = memoryview(data)[_CLEAN_HEADER.size :]
    if version != _CLEAN_VERSION or crc != crc32c(body):
        raise CheckpointDamaged("wrong version or checksum")
    try:
        return msgspec.msgpack.decode(body, type=list[LogState])
    except msgspec.MsgspecError as error:
        raise CheckpointDamaged(str(error)) from None


def read_clean_shutdown(disk: Disk, path: str) -> dict[str, LogState] | None:
    """The logs by name; None if the file is missing or damaged."""
    try:
        return {log.name: log for log in decode_clean_shutdown(disk.read_bytes(path))}
    except (FileNotFoundError, CheckpointDamaged):
        return None
