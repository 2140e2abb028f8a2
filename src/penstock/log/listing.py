"""The parts from which a `Log` is built, and the content of its directory at a start."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log import names
from penstock.log.aborted import UNKNOWN_COUNT
from penstock.log.checkpoints import LogState
from penstock.log.cutting import Cut
from penstock.log.epochs import EpochCache, EpochsDamaged, decode_epochs
from penstock.log.indexes import IndexCache
from penstock.log.producers import ProducerState, SnapshotDamaged, decode_snapshot
from penstock.log.segment import OPEN_END, Segment
from penstock.log.snapshots import NO_SNAPSHOT
from penstock.runtime import Disk


@dataclass(slots=True)
class LogParts:
    """The parts from which a `Log` is built."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    durable_end: int
    epochs: EpochCache
    producers: ProducerState | None
    snapshot_offset: int
    damage: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Files marked as deleted, still to be unlinked."""
    obsolete: list[Segment] = field(default_factory=list)
    """Segments below the start offset, still to be removed."""
    rebuilt: list[Segment] = field(default_factory=list)
    """Closed segments whose indexes were rebuilt, still to be synced."""
    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_whole: bool = False
    """Whether the end that was cut off contained valid batches."""
    cuts: list[Cut] = field(default_factory=list)
    """The pieces of it that were set aside."""


def from_state(disk: Disk, directory: str, state: LogState, cache: IndexCache) -> LogParts:
    """The parts of a log as a clean stop recorded them."""
    segments = []
    ends = [segment.base_offset for segment in state.segments[1:]]
    for segment, end_offset in zip(state.segments, [*ends, OPEN_END][: len(state.segments)], strict=True):
        segments.append(
            Segment(
                disk,
                directory,
                segment.base_offset,
                cache,
                size_bytes=segment.size_bytes,
                end_offset=end_offset,
                max_timestamp=segment.max_timestamp,
                max_timestamp_offset=segment.max_timestamp_offset,
                aborted_count=segment.aborted,
            )
        )
    if segments:
        segments[-1].first_timestamp = state.first_timestamp
        segments[-1].set_seal(state.seal)
    else:
        segments.append(Segment.create(disk, directory, state.end_offset, cache))
    return LogParts(
        segments=segments,
        start_offset=state.start_offset,
        end_offset=state.end_offset,
        durable_end=state.end_offset,
        epochs=EpochCache(state.epochs),
        producers=None if state.producers else ProducerState(),
        snapshot_offset=state.end_offset,
    )


class Listing:
    """The content of a log's directory: file names, sizes, and the content of the small files."""

    def __init__(self, disk: Disk, directory: str, recovery_point: int, start_offset: int) -> None:
        self.bases: list[int] = []
        self.snapshots: list[int] = []
        self.aborted: list[int] = []
        """The base offsets of segments with an index of aborted transactions."""
        self.deleted: list[str] = []
        self.useless: list[str] = []
        self.is_swapping = False
        """A compaction was replacing segments; that must be finished first."""
        indexes: list[tuple[int, str]] = []
        for name in disk.list(directory):
            path = f"{directory}/{name}"
            if (base := names.offset_in(name, names.LOG_SUFFIX)) is not None:
                self.bases.append(base)
            elif (offset := names.offset_in(name, names.SNAPSHOT_SUFFIX)) is not None:
                self.snapshots.append(offset)
            elif name.endswith((names.CLEANED_SUFFIX, names.SWAP_SUFFIX)):
                self.is_swapping = True
            elif name.endswith(names.DELETED_SUFFIX):
                self.deleted.append(path)
            elif name.endswith(names.TEMPORARY_SUFFIX):
                self.useless.append(path)
            elif (base := names.offset_in(name, names.OFFSET_INDEX_SUFFIX)) is not None or (
                base := names.offset_in(name, names.TIME_INDEX_SUFFIX)
            ) is not None:
                indexes.append((base, path))
            elif (base := names.offset_in(name, names.ABORTED_INDEX_SUFFIX)) is not None:
                indexes.append((base, path))
                self.aborted.append(base)
        self.useless += [path for base, path in indexes if base not in self.bases]
        paths = [names.path_of(directory, base, names.LOG_SUFFIX) for base in self.bases]
        self.sizes = [disk.size(path) for path in paths]
        self.mtimes_ms = dict(zip(self.bases, map(disk.mtime_ms, paths), strict=True))
        self.epochs = _read_epochs(disk, directory)
        """The epochs; None if the file is damaged."""
        first = max([base for base in self.bases if base <= start_offset], default=self.bases[0] if self.bases else 0)
        self.producers, self.producers_offset = self.read_snapshot(disk, directory, max(recovery_point, first))

    def segments(self, disk: Disk, directory: str, cache: IndexCache) -> list[Segment]:
        segments = []
        for base, size, end_offset in zip(self.bases, self.sizes, [*self.bases, OPEN_END][1:], strict=True):
            aborted = UNKNOWN_COUNT if base in self.aborted else 0
            segments.append(
                Segment(disk, directory, base, cache, size_bytes=size, end_offset=end_offset, aborted_count=aborted)
            )
        return segments

    def read_snapshot(self, disk: Disk, directory: str, trusted: int) -> tuple[ProducerState, int]:
        """The newest undamaged snapshot at or below `trusted`, the offset up to which the log is known to exist."""
        for offset in reversed(self.snapshots):
            if offset <= trusted:
                path = names.path_of(directory, offset, names.SNAPSHOT_SUFFIX)
                try:
                    return decode_snapshot(disk.read_bytes(path)), offset
                except SnapshotDamaged:
                    self.useless.append(path)
        return ProducerState(), NO_SNAPSHOT


def split_obsolete(segments: list[Segment], start_offset: int) -> list[Segment]:
    """Remove from the list, and return, the segments below the start offset, which retention was about to remove."""
    obsolete = []
    while len(segments) > 1 and segments[1].base_offset <= start_offset:
        obsolete.append(segments.pop(0))
    return obsolete


def _read_epochs(disk: Disk, directory: str) -> list[tuple[int, int]] | None:
    """The epochs; None if the file is damaged, so they must be rebuilt from the batches."""
    try:
        return decode_epochs(disk.read_bytes(f"{directory}/{names.EPOCHS_NAME}"))
    except FileNotFoundError:
        return []
    except EpochsDamaged:
        return None
