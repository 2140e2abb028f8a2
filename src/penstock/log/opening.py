"""Opening a log, in one of three ways, the cheapest first:

1. *From the clean-shutdown checkpoint*: everything is known; nothing is read, listed or opened.
2. *From the file names*: the log was closed cleanly, but the checkpoint is missing. The directory is listed.
3. *From the batches*: the log was not closed cleanly. See `penstock.log.recovery`.
"""

from __future__ import annotations

from penstock.log.checkpoints import LogState
from penstock.log.compaction_swap import finish_swaps
from penstock.log.config import LogConfig
from penstock.log.epochs import EpochCache
from penstock.log.indexes import IndexCache
from penstock.log.listing import Listing, LogParts, from_state, split_obsolete
from penstock.log.producers import ProducerState
from penstock.log.recovery import Recovery
from penstock.log.segment import Segment
from penstock.log.snapshots import NO_SNAPSHOT
from penstock.runtime import Disk, Runtime


async def open_parts(
    runtime: Runtime,
    directory: str,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int,
    start_offset: int,
    state: LogState | None,
    cache: IndexCache,
    slice_ms: float,
) -> LogParts:
    if clean and state is not None:
        return from_state(runtime.disk, directory, state, cache)
    if not runtime.disk.exists(directory):
        return _new(runtime.disk, directory, start_offset, cache)
    # Only system calls, which may wait for a cold disk, so a thread can make them.
    listing = await runtime.offload(Listing, runtime.disk, directory, recovery_point, start_offset)
    if listing.is_swapping:
        await finish_swaps(runtime, directory)
        listing = await runtime.offload(Listing, runtime.disk, directory, recovery_point, start_offset)
    for path in listing.useless:
        runtime.disk.unlink(path)
    if clean:
        parts = _from_names(runtime.disk, directory, listing, recovery_point, start_offset, cache)
        if parts is not None:
            return parts
    recovery = Recovery(
        runtime, directory, config, listing, recovery_point, start_offset, cache, hint=state, slice_ms=slice_ms
    )
    return await recovery.run()


def _new(disk: Disk, directory: str, offset: int, cache: IndexCache) -> LogParts:
    return LogParts(
        segments=[Segment.create(disk, directory, offset, cache)],
        start_offset=offset,
        end_offset=offset,
        durable_end=offset,
        epochs=EpochCache(),
        producers=ProducerState(),
        snapshot_offset=NO_SNAPSHOT,
    )


def _from_names(
    disk: Disk, directory: str, listing: Listing, end_offset: int, start_offset: int, cache: IndexCache
) -> LogParts | None:
    """None if the files do not look cleanly closed."""
    if not listing.bases or listing.bases[-1] > end_offset:
        return None
    has_snapshot = listing.producers_offset == end_offset
    if not has_snapshot and end_offset != listing.bases[0]:
        return None
    if listing.epochs is None:
        return None
    segments = listing.segments(disk, directory, cache)
    obsolete = split_obsolete(segments, start_offset)
    return LogParts(
        segments=segments,
        start_offset=min(max(start_offset, segments[0].base_offset), end_offset),
        end_offset=end_offset,
        durable_end=end_offset,
        epochs=EpochCache(listing.epochs),
        producers=listing.producers,
        snapshot_offset=end_offset if has_snapshot else NO_SNAPSHOT,
        deleted=listing.deleted,
        obsolete=obsolete,
    )
