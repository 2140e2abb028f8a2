"""Paths below the root of a disk, real or simulated."""

from __future__ import annotations

__all__ = ["TEMPORARY_SUFFIX", "join", "normal", "split"]

TEMPORARY_SUFFIX = ".tmp"


def normal(path: str) -> str:
    """The normal form of a path; the root is ''."""
    if path in ("", "."):
        return ""
    assert not path.startswith("/"), f"{path!r}: paths are relative to the root of the disk"
    assert ".." not in path.split("/"), f"{path!r} leaves the root of the disk"
    return path.rstrip("/")


def split(path: str) -> tuple[str, str]:
    """(directory, name)."""
    directory, _, name = path.rpartition("/")
    return directory, name


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
