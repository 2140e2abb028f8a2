"""Strays: directories and parts of logs that were set aside because they may be the only copy of some data.

Nothing is deleted only because the metadata does not mention it: the metadata may be wrong, and the data cannot be
recreated. Such a directory is renamed to `<name>.<unique>-stray` (Kafka's suffix), and brokers ignore it. A file in it
records its original name, when it was set aside, and why. Two other things are kept in the same way, in directories of
their own: the ends of logs that a recovery cut off, and damaged metadata files.

Strays are removed after `penstock.stray.retention.ms`, and only by a broker whose metadata is intact. Until then
`penstock log strays` lists them, and `penstock log restore` restores a directory under its original name.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.log import names
from penstock.runtime import Disk, Runtime

NOTE_NAME = "stray.json"
FOR_EVER = -1


class Note(msgspec.Struct, frozen=True, rename="camel"):
    """The description stored in a stray."""

    name: str
    """The original directory, or the one that its files were taken from."""
    set_aside_ms: int
    reason: str
    is_part: bool = False
    """The stray holds only some files of that directory, which still exists."""


class Stray(msgspec.Struct, frozen=True):
    directory: str
    note: Note | None
    """None if an earlier release, or Kafka, set it aside."""

    @property
    def name(self) -> str:
        """The original name, from the note if there is one: long directory names were truncated."""
        if self.note is not None:
            return self.note.name
        return self.directory.removesuffix(names.STRAY_SUFFIX).rpartition(".")[0]


class StrayError(Exception):
    """A stray cannot be restored; the message says why."""


def strays_in(disk: Disk, path: str = "") -> list[Stray]:
    found = []
    for name in disk.list(path):
        directory = f"{path}/{name}" if path else name
        # A plain file with such a name was not created by a broker.
        if name.endswith(names.STRAY_SUFFIX) and disk.list(directory):
            found.append(Stray(directory, _read_note(disk, directory)))
    return found


class Strays:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.count = 0
        """The strays found by the last `look`."""

    def look(self) -> None:
        self.count = len(strays_in(self._runtime.disk))

    async def set_aside(self, directory: str, reason: str) -> str:
        """Rename a directory, durably. Returns its new name."""
        disk = self._runtime.disk
        await self._write_note(directory, Note(directory, self._runtime.wall_ms(), reason))
        aside = self._new_name(directory)
        disk.rename(directory, aside)
        await disk.sync_dir(names.parent_of(directory))
        return aside

    async def set_files_aside(self, directory: str, files: Sequence[str], reason: str) -> str:
        """Move some files of a directory into a new stray, durably. Returns its name; empty if there are no files."""
        if not files:
            return ""
        aside = await self.begin_part(directory, reason)
        disk = self._runtime.disk
        for name in files:
            disk.rename(f"{directory}/{name}", f"{aside}/{name}")
        await disk.sync_dir(aside)
        await disk.sync_dir(directory)
        return aside

    async def begin_part(self, directory: str, reason: str) -> str:
        """Create a stray for files of this directory. Returns its name."""
        disk = self._runtime.disk
        aside = self._new_name(directory)
        disk.mkdir(aside)
        await self._write_note(aside, Note(directory, self._runtime.wall_ms(), reason, is_part=True))
        await disk.sync_dir(names.parent_of(aside))
        return aside

    async def remove_expired(self, retention_ms: int) -> list[str]:
        """Remove strays older than the retention time. Returns their names."""
        disk, now_ms = self._runtime.disk, self._runtime.wall_ms()
        removed = []
        for stray in strays_in(disk):
            if stray.note is None:
                # It has no date: its retention time starts now.
                await self._write_note(stray.directory, Note(stray.name, now_ms, "set aside by another release"))
            elif retention_ms != FOR_EVER and now_ms - stray.note.set_aside_ms >= retention_ms:
                doomed = names.aside(stray.directory, self._runtime.uuid().hex(), names.DELETED_DIRECTORY_SUFFIX)
                disk.rename(stray.directory, doomed)
                await disk.sync_dir("")
                await self._runtime.offload(disk.rmtree, doomed)
                removed.append(stray.directory)
        self.look()
        return removed

    async def restore(self, directory: str) -> str:
        """Rename a stray back to its original name. Returns the name. Raises StrayError."""
        disk = self._runtime.disk
        stray = next((found for found in strays_in(disk) if found.directory == directory), None)
        if stray is None:
            raise StrayError(f"no stray named {directory} exists")
        if stray.note is not None and stray.note.is_part:
            raise StrayError(f"{directory} holds only parts of {stray.name} and cannot be restored as a directory")
        if not _is_plain(stray.name):
            raise StrayError(f"{directory}/{NOTE_NAME} names {stray.name!r}, which is not the name of a partition")
        if disk.exists(stray.name):
            raise StrayError(f"{stray.name} already exists; move it away first")
        disk.unlink(f"{directory}/{NOTE_NAME}")
        disk.rename(directory, stray.name)
        await disk.sync_dir("")
        return stray.name

    def _new_name(self, directory: str) -> str:
        return names.aside(directory, self._runtime.uuid().hex(), names.STRAY_SUFFIX)

    async def _write_note(self, directory: str, note: Note) -> None:
        await self._runtime.disk.replace_bytes(f"{directory}/{NOTE_NAME}", msgspec.json.encode(note))


def _is_plain(name: str) -> bool:
    """Whether a name is safe to restore. Anyone may have written the note: its name must not lead outside the data
    directory or overwrite a broker's other files."""
    topic, _, number = name.rpartition("-")
    return bool(topic) and "/" not in name and number.isascii() and number.isdigit()


def _read_note(disk: Disk, directory: str) -> Note | None:
    path = f"{directory}/{NOTE_NAME}"
    if not disk.exists(path):
        return None
    try:
        return msgspec.json.decode(disk.read_bytes(path), type=Note)
    except msgspec.DecodeError:
        return None
