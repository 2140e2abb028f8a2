"""Damages the files of a stopped node, and examines what is left on its disk.

Any file may be damaged, anywhere: a bit flips, the file ends early, or its end is all zeros. Only undetectable damage
is left out: offset, length and epoch of a batch below the recovery point of its log, which no checksum covers and no
start reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from random import Random
from typing import NamedTuple

from penstock.log import names
from penstock.log.checkpoints import CheckpointDamaged, decode_offsets
from penstock.sim.disk import SimDisk
from penstock.sim.namespace import Directory
from penstock.sim.trials.schedule import LOAD_TOPIC, METADATA, Fault, Kind
from penstock.wire.records import LENGTH_OVERHEAD

__all__ = ["UNPROTECTED_BYTES", "Damaged", "all_files", "batches", "damage", "still_there", "synced_batch", "torn_end"]

UNPROTECTED_BYTES = 16
"""The start of a batch: offset, length and epoch, which no checksum covers."""


class Damaged(NamedTuple):
    """A file, and the position from which it is damaged."""

    kind: Kind
    path: str
    position: int
    offset: int
    """For a log: the first offset of the batch at that position; everything before it is intact."""

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def is_log(self) -> bool:
        return self.path.endswith(names.LOG_SUFFIX)


def damage(disk: SimDisk, fault: Fault, pattern: str, rng: Random) -> Damaged | None:
    """Damages one of the files that match; None if all of them are empty."""
    if fault.kind is Kind.REMOVE:
        return _remove(disk, rng)
    paths = [path for path in all_files(disk) if _matches(path, pattern) and disk.content(path)]
    if not paths:
        return None
    path = rng.choice(paths)
    content = disk.content(path)
    position = min(int(fault.value * len(content)), len(content) - 1)
    batch = synced_batch(disk, path, position)
    if batch is not None and fault.kind is Kind.FLIP and position - batch < UNPROTECTED_BYTES:
        position = min(position + UNPROTECTED_BYTES, len(content) - 1)
    offset = _offset_at(content, position) if path.endswith(names.LOG_SUFFIX) else 0
    inode = disk.namespace.file(path)
    match fault.kind:
        case Kind.FLIP:
            inode.flip_bit(position, rng.randrange(8))
        case Kind.TEAR:
            inode.truncate(position)
        case _:
            inode.write(bytes(len(content) - position), position)
    return Damaged(fault.kind, path, position, offset)


def _remove(disk: SimDisk, rng: Random) -> Damaged | None:
    """Removes the directory of a partition. (Only one that a checkpoint lists: others would not be missed.)"""
    if disk.namespace.find(names.RECOVERY_POINTS_NAME) is None:
        return None
    listed = decode_offsets(disk.content(names.RECOVERY_POINTS_NAME))
    found = [name for name in listed if name.startswith(f"{LOAD_TOPIC}-") and disk.namespace.find(name) is not None]
    if not found:
        return None
    name = rng.choice(sorted(found))
    disk.namespace.remove(name)
    return Damaged(Kind.REMOVE, name, 0, 0)


def still_there(disk: SimDisk, values: Iterable[bytes]) -> set[bytes]:
    """Those of these values that are on the disk, in any file."""
    everything = b"\xff".join(disk.content(path) for path in all_files(disk))
    return {value for value in values if value in everything}


def torn_end(content: bytes) -> bytes:
    """An incomplete batch at the end of a log file; empty if there is none."""
    end = max((at + size for at, size in batches(content)), default=0)
    rest = content[end:]
    size = LENGTH_OVERHEAD + int.from_bytes(rest[8:LENGTH_OVERHEAD], "big", signed=True)
    return rest if len(rest) < max(size, LENGTH_OVERHEAD) else b""


def all_files(disk: SimDisk) -> list[str]:
    return sorted(_below(disk.namespace.root, ""))


def synced_batch(disk: SimDisk, path: str, position: int) -> int | None:
    """The start of the batch at a position, if it is below the recovery point of its log. (The metadata log is read
    from its beginning at every start.)"""
    directory = path.partition("/")[0]
    if not path.endswith(names.LOG_SUFFIX) or directory.startswith(METADATA):
        return None
    if disk.namespace.find(names.RECOVERY_POINTS_NAME) is None:
        return None
    try:
        recovery_point = decode_offsets(disk.content(names.RECOVERY_POINTS_NAME)).get(directory, 0)
    except CheckpointDamaged:
        return None
    content = disk.content(path)
    start = max((at for at, _ in batches(content) if at <= position), default=0)
    return start if _offset_at(content, start) < recovery_point else None


def batches(data: bytes) -> Iterator[tuple[int, int]]:
    """(position, size) of each complete batch of a log file."""
    position = 0
    while position + LENGTH_OVERHEAD <= len(data):
        size = LENGTH_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big")
        if size <= LENGTH_OVERHEAD or position + size > len(data):
            return
        yield position, size
        position += size


def _offset_at(content: bytes, position: int) -> int:
    start = max((at for at, _ in batches(content) if at <= position), default=0)
    return int.from_bytes(content[start : start + 8], "big")


def _below(directory: Directory, prefix: str) -> Iterator[str]:
    for name, node in directory.entries.items():
        if isinstance(node, Directory):
            yield from _below(node, f"{prefix}{name}/")
        else:
            yield prefix + name


def _matches(path: str, pattern: str) -> bool:
    """Matches component by component: `*` does not match a slash."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
