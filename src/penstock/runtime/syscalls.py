"""System calls that complete the whole request, or raise."""

from __future__ import annotations

import errno
import os

from penstock.runtime import Buffer
from penstock.runtime.paths import TEMPORARY_SUFFIX

__all__ = ["CLOSED", "FILE_MODE", "read_fully", "replace_bytes", "sync_directory", "write_rest"]

CLOSED = -1
FILE_MODE = 0o644


def write_rest(descriptor: int, data: Buffer, position: int, written: int) -> None:
    """After a short write: writes the rest, so that the kernel reports the reason (a full disk raises ENOSPC here)."""
    view = memoryview(data)
    while written < len(view):
        count = os.pwrite(descriptor, view[written:], position + written)
        if count == 0:
            raise OSError(errno.EIO, f"short write: {written} of {len(view)} bytes")
        written += count


def read_fully(descriptor: int, size: int, position: int) -> bytes:
    data = os.pread(descriptor, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    have = len(data)
    while have < size:
        data = os.pread(descriptor, size - have, position + have)
        if not data:
            break
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def replace_bytes(real: str, data: bytes) -> None:
    temporary = real + TEMPORARY_SUFFIX
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        written = os.pwrite(descriptor, data, 0)
        if written != len(data):
            write_rest(descriptor, data, 0, written)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, real)
    sync_directory(os.path.dirname(real))


def sync_directory(real: str) -> None:
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
