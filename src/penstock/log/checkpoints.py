"""What a data directory knows about all its logs: small files at its root.

`recovery-point-offset-checkpoint`  up to which offset each log was synced; after an unclean stop the rest is checked
`cleaner-offset-checkpoint`         up to which offset each log is compacted; what follows it is dirty
`log-start-offset-checkpoint`       where each log starts, if not at the first record it holds (DeleteRecords)
`clean-shutdown-checkpoint`         everything that is needed to open the logs without looking at them
`last-clean-shutdown-checkpoint`    the same, since the start that found it

The first three are Kafka's text files (version, count, then `topic partition offset` lines) with a checksum that Kafka
passes over (`sealing`). The fourth is written as
the last thing of a clean stop and renamed to the fifth, durably, as the first thing of a start: while it has its first
name, nobody has written to the logs since. With it ten thousand logs open without one system call each.

Under its second name it helps a start after an unclean stop. What it says of a log stays true while the log only
grows, so a log whose files have the same sizes need not be read, and another only from there on. A log that is cut
below that end, or compacted, is taken out of the file first (`LogDirectory.checkpoint`).

Both are a msgpack array behind a version and a checksum; one that cannot be read is as if it were not there.
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
    """A checkpoint file does not hold what it should."""


class SegmentState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    base_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int


class LogState(msgspec.Struct, frozen=True, array_like=True):
    """A log as a clean stop left it."""

    name: str
    start_offset: int
    end_offset: int
    segments: list[SegmentState]
    epochs: list[tuple[int, int]]
    first_timestamp: int
    """Of the active segment: when to roll it depends on it. -1 if it is empty."""
    producers: int
    """How many there are in the snapshot at the end offset; with 0 it need not be read."""
    seal: tuple[int, int, int, int] | None = None
    """Of the index of the active segment, which is not synced."""


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
    """An absent file holds nothing. Raises CheckpointDamaged."""
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
        raise CheckpointDamaged("cut off") from None
    body = memoryview(data)[_CLEAN_HEADER.size :]
    if version != _CLEAN_VERSION or crc != crc32c(body):
        raise CheckpointDamaged("wrong version or checksum")
    try:
        return msgspec.msgpack.decode(body, type=list[LogState])
    except msgspec.MsgspecError as error:
        raise CheckpointDamaged(str(error)) from None


def read_clean_shutdown(disk: Disk, path: str) -> dict[str, LogState] | None:
    """The logs by name, or None if there is no such file, or it is damaged."""
    try:
        return {log.name: log for log in decode_clean_shutdown(disk.read_bytes(path))}
    except (FileNotFoundError, CheckpointDamaged):
        return None
