"""Replacing segments of a log by the compacted segment that was made from them.

The suffix of the new files shows the progress, as in Kafka:

    1. `.cleaned`    being written. A start removes it.
    2. `.swap`       complete and durable, with its indexes. *From here on it is valid*: a start that finds `.log.swap`
                     continues with the next step, even if that was partly done.
    3.               the old segments are renamed to `.deleted`, and the new indexes get their final names
    4. no suffix     the log file gets its final name, last of all

Steps 2 and 3 are durable before the next begins, so a power loss never leaves a mixture: while `.log.swap` exists, the
old files are ignored; once it is gone, so are they. The new segment replaces the segments in its range of offsets, from
its base offset to the end of its last batch. (The last batch of a compacted segment is always kept, if only as an empty
header.) During a swap an index without `.swap` is not trusted: it may be the old one.

A compacted segment has no index of aborted transactions (`.txnindex`): their records are gone, and so may be their
markers. The old one is removed in step 3. If it stayed, readers would wait for a marker that no longer exists.

Readers of an old segment can continue: the file stays readable under its new name, and after its removal by readers
that retain it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log import names
from penstock.log.index_entries import OFFSET_ENTRY_BYTES, decode_offset_entries
from penstock.log.segment import SPAN, SPAN_BYTES, Segment
from penstock.runtime import Disk, Runtime
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

if TYPE_CHECKING:
    from penstock.log.compaction_job import CleanedSegment
    from penstock.log.log import Log

INDEX_SUFFIXES = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
SUFFIXES = (*INDEX_SUFFIXES, names.LOG_SUFFIX)

REMOVALS_PER_TURN = 8
"""Old segments removed before yielding to the loop."""


class Swap:
    """Replaces segments of one log by compacted ones."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    async def replace_segments(self, cleaned: CleanedSegment, version: int) -> bool:
        """Replace segments by the `.cleaned` segment made from them. Durable when this returns.

        Returns False and changes nothing if the segments changed since the log had this `version`.
        """
        log = self._log
        await log.trimmer.settled()
        if log.trimmer.is_untouchable() or log.version != version or not self._has(cleaned):
            return False
        if cleaned.is_same:
            self._remove_cleaned(cleaned.base_offset)
            return True
        log.trimmer.begin_removal()
        try:
            return await self._swap(cleaned)
        except OSError as error:
            if log.is_closed:
                return False  # the log and its files were deleted
            log.fail("replacing compacted segments", error)
        finally:
            log.trimmer.end_removal()

    def remove_unfinished(self) -> None:
        """Remove the files that an unfinished compaction was writing."""
        log = self._log
        for name in log.runtime.disk.list(log.directory):
            if name.endswith(names.CLEANED_SUFFIX):
                log.runtime.disk.unlink(f"{log.directory}/{name}")

    async def _swap(self, cleaned: CleanedSegment) -> bool:
        log = self._log
        disk = log.runtime.disk
        path = names.path_of(log.directory, cleaned.base_offset, "")
        if not log.is_rewritten:
            # The last clean-shutdown checkpoint will no longer match this log.
            log.is_rewritten = True
            await log.trimmer.lower_checkpoint()
        for sync in [disk.open(path + suffix + names.CLEANED_SUFFIX).sync() for suffix in SUFFIXES]:
            await sync
        if log.is_closed:
            return False
        for suffix in INDEX_SUFFIXES:
            disk.rename(path + suffix + names.CLEANED_SUFFIX, path + suffix + names.SWAP_SUFFIX)
        swapped = path + names.LOG_SUFFIX + names.SWAP_SUFFIX
        disk.rename(path + names.LOG_SUFFIX + names.CLEANED_SUFFIX, swapped)
        await disk.sync_dir(log.directory)
        if log.is_closed:
            return False
        replaced = self._take_over(cleaned, swapped)
        await self._take_away(replaced)
        await disk.sync_dir(log.directory)
        if log.is_closed:
            return False
        # The next flush syncs the rename; until then a start would only repeat it.
        disk.rename(swapped, path + names.LOG_SUFFIX)
        log.flusher.names_changed()
        return True

    def _take_over(self, cleaned: CleanedSegment, swapped: str) -> list[Segment]:
        """Direct reads to the new segment. Returns the old ones."""
        log = self._log
        disk = log.runtime.disk
        path = names.path_of(log.directory, cleaned.base_offset, "")
        segment = Segment(
            disk,
            log.directory,
            cleaned.base_offset,
            log.cache,
            size_bytes=cleaned.size_bytes,
            end_offset=cleaned.end_offset,
            max_timestamp=cleaned.max_timestamp,
            max_timestamp_offset=cleaned.max_timestamp_offset,
            aborted_count=0,
        )
        # The file has this name only until the rename below, which the file object follows.
        segment.use_file(disk.open(swapped))
        first = self._place_of(cleaned)
        replaced = log.segments[first : first + len(cleaned.replaces)]
        for old in replaced:
            old.is_removed = True
            old.discard_indexes()
        for suffix in INDEX_SUFFIXES:
            disk.rename(path + suffix + names.SWAP_SUFFIX, path + suffix)
        disk.unlink(path + names.ABORTED_INDEX_SUFFIX)
        log.segments[first : first + len(replaced)] = [segment]
        log.trimmer.changed()
        return replaced

    async def _take_away(self, replaced: list[Segment]) -> None:
        log = self._log
        disk = log.runtime.disk
        for number, old in enumerate(replaced):
            if number and not number % REMOVALS_PER_TURN:
                await log.runtime.sleep(0)
                if log.is_closed:
                    return
            path = old.path(names.LOG_SUFFIX)
            disk.rename(path, path + names.DELETED_SUFFIX)
            log.trimmer.unlink_later(path + names.DELETED_SUFFIX)
            if number:
                for suffix in (*INDEX_SUFFIXES, names.ABORTED_INDEX_SUFFIX):
                    disk.unlink(old.path(suffix))
                if old.base_offset != log.snapshots.offset:
                    disk.unlink(old.path(names.SNAPSHOT_SUFFIX))

    def _has(self, cleaned: CleanedSegment) -> bool:
        log = self._log
        first = self._place_of(cleaned)
        held = log.segments[first : first + len(cleaned.replaces)]
        return (
            first >= 0
            and tuple(segment.base_offset for segment in held) == cleaned.replaces
            and held[-1].end_offset == cleaned.end_offset
            and log.active not in held
        )

    def _place_of(self, cleaned: CleanedSegment) -> int:
        log = self._log
        for number, segment in enumerate(log.segments):
            if segment.base_offset == cleaned.base_offset:
                return number
        return -1

    def _remove_cleaned(self, base_offset: int) -> None:
        log = self._log
        path = names.path_of(log.directory, base_offset, "")
        for suffix in SUFFIXES:
            log.runtime.disk.unlink(path + suffix + names.CLEANED_SUFFIX)


async def finish_swaps(runtime: Runtime, directory: str) -> None:
    """After a crash: complete the swaps that are valid, and remove `.cleaned` files."""
    disk = runtime.disk
    present = disk.list(directory)
    swaps = swapped_bases(present)
    for base_offset in swaps:
        end_offset = await runtime.offload(end_of_swap, disk, directory, base_offset)
        path = names.path_of(directory, base_offset, "")
        for name in present:
            old = names.offset_in(name, names.LOG_SUFFIX)
            if old is not None and base_offset < old < end_offset:
                for suffix in (*SUFFIXES, names.ABORTED_INDEX_SUFFIX):
                    disk.unlink(names.path_of(directory, old, suffix))
        for suffix in INDEX_SUFFIXES:
            if disk.exists(path + suffix + names.SWAP_SUFFIX):
                disk.rename(path + suffix + names.SWAP_SUFFIX, path + suffix)
            else:
                disk.unlink(path + suffix)
        disk.unlink(path + names.ABORTED_INDEX_SUFFIX)
        await disk.sync_dir(directory)
        disk.rename(path + names.LOG_SUFFIX + names.SWAP_SUFFIX, path + names.LOG_SUFFIX)
        await disk.sync_dir(directory)
    for name in present:
        if name.endswith((names.CLEANED_SUFFIX, names.SWAP_SUFFIX)):
            disk.unlink(f"{directory}/{name}")


def swapped_bases(present: list[str]) -> list[int]:
    """The base offsets of segments with `.log.swap` files among these file names."""
    found = (names.offset_in(name, names.LOG_SUFFIX + names.SWAP_SUFFIX) for name in present)
    return sorted(base for base in found if base is not None)


def end_of_swap(disk: Disk, directory: str, base_offset: int) -> int:
    """The end offset of a segment that is being swapped in. Waits for the device."""
    path = names.path_of(directory, base_offset, names.LOG_SUFFIX) + names.SWAP_SUFFIX
    index_path = names.path_of(directory, base_offset, names.OFFSET_INDEX_SUFFIX) + names.SWAP_SUFFIX
    size = disk.size(path)
    file = disk.open(path)
    position = 0
    if disk.exists(index_path) and (entries := disk.size(index_path) // OFFSET_ENTRY_BYTES):
        last = disk.open(index_path).read(OFFSET_ENTRY_BYTES, (entries - 1) * OFFSET_ENTRY_BYTES)
        position = decode_offset_entries(last)[1][0]
    end_offset = base_offset
    while position + HEADER_SIZE <= size:
        batch_offset, length, magic, last_offset_delta = SPAN.unpack(file.read(SPAN_BYTES, position))
        assert magic == MAGIC, f"{disk.root}/{path} must hold complete batches, but has none at position {position}"
        end_offset = batch_offset + last_offset_delta + 1
        position += LENGTH_OVERHEAD + length
    return int(end_offset)
