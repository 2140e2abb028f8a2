"""Names of a simulated disk: directories whose changes are durable only after `sync_dir`.

Every change of a name (create, rename, unlink, mkdir) is a journal entry until its directory is synced. A power loss
keeps a prefix of the journal, since ext4 and xfs commit their journals in order. Syncing one directory does not commit
the changes of others. Many file systems do that today, but it must not be relied on.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

from penstock.runtime.paths import split
from penstock.sim.inode import Inode

__all__ = ["Directory", "JournalEntry", "Namespace"]


NAME_BYTES_MAX = 255


@dataclass(slots=True, eq=False)
class Directory:
    number: int
    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)


Node = Inode | Directory


@dataclass(slots=True, frozen=True)
class _Change:
    """Sets `name` in `directory` to `node`, or removes it."""

    directory: Directory
    name: str
    node: Node | None


@dataclass(slots=True, eq=False)
class JournalEntry:
    """Changes that are applied together or not at all."""

    changes: tuple[_Change, ...]
    is_durable: bool = False

    def commit(self) -> None:
        if self.is_durable:
            return
        self.is_durable = True
        for change in self.changes:
            if change.node is None:
                change.directory.durable.pop(change.name, None)
            else:
                change.directory.durable[change.name] = change.node


class Namespace:
    """The tree of names, as programs see it and as it is on the platter."""

    def __init__(self) -> None:
        self._numbers = 0
        self.root = Directory(self._next_number())
        self._journal: list[JournalEntry] = []

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in path.split("/") if path else ():
            if not isinstance(node, Directory):
                return None
            below = node.entries.get(name)
            if below is None:
                return None
            node = below
        return node

    def file(self, path: str) -> Inode:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def create(self, path: str, mtime_ms: int) -> Inode:
        parent, name = split(path)
        inode = Inode(self._next_number(), mtime_ms)
        self._commit(_Change(self.directory(parent), name, inode))
        return inode

    def mkdir(self, path: str) -> None:
        """Creates one directory; its parent must exist."""
        parent, name = split(path)
        self._commit(_Change(self.directory(parent), name, Directory(self._next_number())))

    def remove(self, path: str) -> None:
        parent, name = split(path)
        self._commit(_Change(self.directory(parent), name, None))

    def rename(self, source: str, target: str) -> None:
        node = self.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
        (source_parent, source_name), (target_parent, target_name) = split(source), split(target)
        replaced = self.find(target)
        if isinstance(replaced, Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        if replaced is not None and isinstance(node, Directory) != isinstance(replaced, Directory):
            raise OSError(errno.ENOTDIR, "a file and a directory cannot replace each other", target)
        self._commit(
            _Change(self.directory(source_parent), source_name, None),
            _Change(self.directory(target_parent), target_name, node),
        )

    def begin_sync(self, directory: Directory) -> list[JournalEntry]:
        """The changes so far that touch `directory`, and those they depend on, oldest first."""
        touched = {directory.number}
        chosen: list[JournalEntry] = []
        for entry in reversed(self._journal):
            numbers = [change.directory.number for change in entry.changes]
            if any(number in touched for number in numbers):
                chosen.append(entry)
                touched.update(numbers)
        chosen.reverse()
        return chosen

    def finish_sync(self, entries: list[JournalEntry]) -> None:
        for entry in entries:
            entry.commit()
        self._journal = [entry for entry in self._journal if not entry.is_durable]

    def lose_power(self, rng: Random) -> None:
        kept = rng.choice((0, len(self._journal), rng.randint(0, len(self._journal))))
        for entry in self._journal[:kept]:
            entry.commit()
        self._journal = []
        self._reload(self.root)
        for inode in self.files():
            inode.lose_power(rng)

    def files(self) -> list[Inode]:
        """Every file once, ordered by name."""
        found: list[Inode] = []
        stack: list[Node] = [self.root]
        while stack:
            node = stack.pop()
            if isinstance(node, Directory):
                stack += [node.entries[name] for name in sorted(node.entries, reverse=True)]
            else:
                found.append(node)
        return found

    def _reload(self, directory: Directory) -> None:
        directory.entries = dict(directory.durable)
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._reload(node)

    def _commit(self, *changes: _Change) -> None:
        for change in changes:
            if len(change.name.encode()) > NAME_BYTES_MAX:
                raise OSError(errno.ENAMETOOLONG, "file name too long", change.name)
        for change in changes:
            if change.node is None:
                change.directory.entries.pop(change.name, None)
            else:
                change.directory.entries[change.name] = change.node
        self._journal.append(JournalEntry(changes))

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers
