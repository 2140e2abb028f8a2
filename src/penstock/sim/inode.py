"""One simulated file: its content in the page cache and on the platter, and the effect of a power loss.

Between two syncs the kernel writes pages back at any time and in any order. So after a power loss any subset of the
unsynced sectors may have been written, the size may have been written without the data (zeros), and a truncation may or
may not have happened. What a completed sync covered always survives. The model draws one of the outcomes that ext4 or
xfs could have produced:

- overwritten and appended sectors: none, all, a prefix, or any subset of them; a missing sector reads as its old bytes
  if the file had some, and as zeros otherwise;
- the size: up to the last sector written, anywhere after the synced size, or the newest size, zero-filled;
- truncations: a prefix of them, in order, since the journal is ordered. If one is lost, the old tail is back, and the
  page at the cut may already be overwritten, because that block was rewritten in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

__all__ = ["SECTOR_BYTES", "Inode", "SyncSnapshot"]

SECTOR_BYTES = 512
PAGE_BYTES = 4096


@dataclass(slots=True, frozen=True)
class _Range:
    """Bytes changed since the last sync; `version` is the change count at the youngest of them."""

    start: int
    end: int
    version: int


@dataclass(slots=True, frozen=True)
class _Cut:
    """A truncation that is not durable yet, with the previous content."""

    version: int
    size: int
    content: bytes
    dirty: list[_Range]


@dataclass(slots=True, frozen=True)
class SyncSnapshot:
    """The changes that one sync will make durable: those made before it was requested."""

    version: int
    size: int
    pieces: list[tuple[int, bytes]]


@dataclass(slots=True, eq=False)
class Inode:
    """The content of one file. Names are kept in the namespace."""

    number: int
    mtime_ms: int = 0
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    _version: int = 0
    _dirty: list[_Range] = field(default_factory=list)
    _cuts: list[_Cut] = field(default_factory=list)

    def write(self, data: bytes | memoryview, position: int) -> None:
        end = position + len(data)
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position:end] = data
        self._version += 1
        last = self._dirty[-1] if self._dirty else None
        if last is not None and last.end == position:
            self._dirty[-1] = _Range(last.start, end, self._version)
        else:
            self._dirty.append(_Range(position, end, self._version))

    def truncate(self, size: int) -> None:
        self._version += 1
        if size >= len(self.data):
            self.data.extend(bytes(size - len(self.data)))
            return
        self._cuts.append(_Cut(self._version, size, bytes(self.data), list(self._dirty)))
        del self.data[size:]
        self._dirty = [_Range(r.start, min(r.end, size), r.version) for r in self._dirty if r.start < size]

    @property
    def is_clean(self) -> bool:
        """Whether a power loss would change nothing."""
        return self.data == self.durable and not self._cuts

    def begin_sync(self) -> SyncSnapshot:
        pieces = [(r.start, bytes(self.data[r.start : r.end])) for r in self._dirty]
        return SyncSnapshot(self._version, len(self.data), pieces)

    def finish_sync(self, snapshot: SyncSnapshot) -> None:
        durable = self.durable
        for cut in self._cuts:
            if cut.version <= snapshot.version:
                del durable[cut.size :]
        for start, piece in snapshot.pieces:
            _overlay(durable, start, piece)
        durable.extend(bytes(max(0, snapshot.size - len(durable))))
        self._forget_up_to(snapshot.version)

    def fail_sync(self, snapshot: SyncSnapshot, rng: Random) -> None:
        """The device failed: the kernel reports it once, marks the pages clean, and may drop them from the cache."""
        for start, piece in snapshot.pieces:
            arrived = rng.randrange(len(piece) + 1) if rng.random() < 0.3 else 0
            if arrived and start <= len(self.durable) and not self._cuts:
                _overlay(self.durable, start, piece[:arrived])
        if rng.random() < 0.5:
            for start, piece in snapshot.pieces:
                end = min(start + len(piece), len(self.data))
                if start < end:
                    self.data[start:end] = self.durable[start:end].ljust(end - start, b"\0")
        self._dirty = [r for r in self._dirty if r.version > snapshot.version]

    def write_back(self, rng: Random) -> None:
        """The kernel writes back some dirty pages by itself."""
        if self._cuts:
            return
        for sector in _sectors(self._dirty):
            if rng.random() < 0.5:
                piece = self.data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]
                _overlay(self.durable, sector * SECTOR_BYTES, piece)

    def lose_power(self, rng: Random) -> None:
        """Replaces the content by one that the platter could hold."""
        kept = rng.randrange(len(self._cuts) + 1)
        platter = bytearray(self.durable)
        for cut in self._cuts[:kept]:
            del platter[cut.size :]
        states = [(cut.content, cut.dirty) for cut in self._cuts] + [(bytes(self.data), self._dirty)]
        content, dirty = states[kept]
        size_synced = len(platter)

        for sector in _arrived(_sectors(dirty), rng):
            _overlay(platter, sector * SECTOR_BYTES, content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
        if len(content) > size_synced:
            draw = rng.random()
            if draw < 0.2:
                platter.extend(bytes(max(0, len(content) - len(platter))))
            elif draw < 0.4:
                del platter[rng.randint(size_synced, max(size_synced, len(platter))) :]
        if kept < len(self._cuts) and rng.random() < 0.5:
            self._rewrite_page_at_cut(platter, self._cuts[kept], states[kept + 1][0], rng)

        self.data = platter
        self.durable = bytearray(platter)
        self._dirty = []
        self._cuts = []

    def flip_bit(self, position: int, bit: int) -> None:
        """Bit rot: changes the platter, and what is read from now on."""
        for content in (self.data, self.durable):
            if position < len(content):
                content[position] ^= 1 << bit

    @staticmethod
    def _rewrite_page_at_cut(platter: bytearray, cut: _Cut, later: bytes, rng: Random) -> None:
        start = cut.size - cut.size % PAGE_BYTES
        end = min(start + PAGE_BYTES, len(platter))
        end = min(end, start + SECTOR_BYTES * rng.randint(1, PAGE_BYTES // SECTOR_BYTES))
        if start < end:
            platter[start:end] = later[start:end].ljust(end - start, b"\0")

    def _forget_up_to(self, version: int) -> None:
        self._dirty = [r for r in self._dirty if r.version > version]
        self._cuts = [cut for cut in self._cuts if cut.version > version]


def _overlay(target: bytearray, start: int, piece: bytes | bytearray) -> None:
    if not piece:
        return
    if start > len(target):
        target.extend(bytes(start - len(target)))
    target[start : start + len(piece)] = piece


def _sectors(ranges: list[_Range]) -> list[int]:
    sectors: dict[int, None] = {}
    for r in ranges:
        for sector in range(r.start // SECTOR_BYTES, (r.end + SECTOR_BYTES - 1) // SECTOR_BYTES):
            sectors[sector] = None
    return sorted(sectors)


def _arrived(sectors: list[int], rng: Random) -> list[int]:
    draw = rng.random()
    if draw < 0.25:
        return []
    if draw < 0.45:
        return sectors
    if draw < 0.70:
        return sectors[: rng.randint(0, len(sectors))]
    share = rng.random()
    return [sector for sector in sectors if rng.random() < share]
