"""Compaction of logs with `cleanup.policy=compact`: keeps the newest record of each key, with its offset.

Theory of operation
-------------------
A log has a *clean* front part, in which every key occurs once, and a *dirty* rest. `cleanable` computes how much of
the rest may be compacted now and whether that is worthwhile. `Compaction` does it:

- a subprocess (`compaction_job`) reads the segments, decides which records to keep (`compaction_filter`,
  `compaction_transactions`) and writes new files;
- the broker replaces the original segments by each new file (`compaction_swap`), safely against a crash at any point;
- `clean_end` advances, and `LogDirectory.checkpoint` saves it (`cleaner-offset-checkpoint`, as in Kafka). If that file
  is lost, some work is repeated.

Only records that can no longer be truncated or aborted are compacted: closed segments below the high watermark, the
last stable offset and the recovery point, without records younger than `min.compaction.lag.ms`.

Readers are not affected. A read at a removed offset continues with the next batch. There are never gaps between two
segments, so a missing file is still detected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.compaction_job import MAP_ENTRY_BYTES, CorruptBatch, LastBatch, Progress, Source, Task
from penstock.log.compaction_swap import Swap
from penstock.log.config import NEVER, LogConfig
from penstock.log.reading import LogChanged
from penstock.log.segment import UNKNOWN
from penstock.wire.records import HEADER_SIZE, read_header

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.segment import Segment

STEP_BYTES = 8 << 20
"""The bytes that the subprocess reads per step. A stopping broker may have to wait for one step."""

JOB = "penstock.log.compaction_job"


class SegmentFacts(NamedTuple):
    """The facts about a closed segment that planning needs."""

    base_offset: int
    size_bytes: int
    first_timestamp: int
    max_timestamp: int


class Cleanable(NamedTuple):
    """How much of a log can be compacted, measured as Kafka does."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """By how much `max.compaction.lag.ms` is exceeded; 0 if it is not."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.delay_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio


def plan(
    segments: Iterable[SegmentFacts],
    config: LogConfig,
    *,
    active_base_offset: int,
    first_dirty_offset: int,
    stable_offset: int,
    wall_ms: int,
) -> Cleanable:
    """The cleanable part of these closed segments. Below `stable_offset` all transactions are decided and all is
    durable."""
    closed = list(segments)
    bounded = list(zip(closed, [*(one.base_offset for one in closed[1:]), active_base_offset], strict=False))
    dirty = [one for one, end in bounded if end > first_dirty_offset]
    uncleanable = min(active_base_offset, stable_offset)
    if config.min_compaction_lag_ms > 0:
        young = [one for one in dirty if one.max_timestamp > wall_ms - config.min_compaction_lag_ms]
        if young:
            uncleanable = min(uncleanable, young[0].base_offset)
    # A segment is compacted completely or not at all.
    bound = active_base_offset
    for one, end in bounded:
        if end > uncleanable:
            bound = one.base_offset
            break
    first_timestamps = [one.first_timestamp for one in dirty if one.first_timestamp > 0]
    latest_ms = wall_ms - max(config.max_compaction_lag_ms, 0)
    oldest_ms = min(first_timestamps, default=NEVER)
    return Cleanable(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=bound,
        clean_bytes=sum(one.size_bytes for one in closed if one.base_offset < first_dirty_offset),
        cleanable_bytes=sum(one.size_bytes for one in dirty if one.base_offset < bound),
        delay_ms=max(0, latest_ms - oldest_ms),
    )


async def cleanable(log: Log, upto: int, wall_ms: int) -> Cleanable:
    """The cleanable part of a log below `upto`, its high watermark."""
    config = log.config
    first_dirty_offset = max(min(log.clean_end, log.end_offset), log.start_offset)
    stable_offset = min(upto, log.recovery_point)
    if log.segments[-1].base_offset > first_dirty_offset:
        stable_offset = min(stable_offset, log.last_stable_offset(upto))
    facts = []
    for segment in list(log.segments)[:-1]:
        is_dirty = segment.end_offset > first_dirty_offset
        first_timestamp = max_timestamp = -1
        if is_dirty and config.min_compaction_lag_ms > 0:
            if segment.max_timestamp == UNKNOWN:
                await log.writer.load_max_timestamp(segment)
            max_timestamp = segment.max_timestamp
        if is_dirty and config.max_compaction_lag_ms < NEVER:
            first_timestamp = await _first_timestamp(segment)
        facts.append(SegmentFacts(segment.base_offset, segment.size_bytes, first_timestamp, max_timestamp))
    active_base_offset = log.segments[len(facts)].base_offset if len(facts) < len(log.segments) else log.end_offset
    return plan(
        facts,
        config,
        active_base_offset=active_base_offset,
        first_dirty_offset=first_dirty_offset,
        stable_offset=stable_offset,
        wall_ms=wall_ms,
    )


async def _first_timestamp(segment: Segment) -> int:
    if segment.first_timestamp == UNKNOWN and segment.size_bytes:
        segment.first_timestamp = read_header(await segment.file.pread(HEADER_SIZE, 0)).max_timestamp
    return segment.first_timestamp


class Interrupted(Exception):
    """The log was closed, deleted or truncated during its compaction, or the compaction was asked to stop."""


@dataclass(slots=True)
class Compacted:
    """The result of a compaction."""

    keys_max: int
    keys: int = 0
    clean_end: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    bytes_before: int = 0
    """The total of all segments that were copied."""
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    records_read: int = 0
    records_kept: int = 0


class Compaction:
    """One compaction of one log."""

    def __init__(
        self,
        log: Log,
        extent: Cleanable,
        *,
        map_bytes: int,
        step_bytes: int = STEP_BYTES,
        pace: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """`pace` is awaited with the bytes read and written by each step, and may delay the next."""
        self._log = log
        self._extent = extent
        self._keys_max = max(1, map_bytes // MAP_ENTRY_BYTES)
        self._step_bytes = step_bytes
        self._pace = pace
        self._is_stopped = False
        self._version = log.version

    def stop(self) -> None:
        """Stop soon; segments that were already replaced stay replaced."""
        self._is_stopped = True

    async def run(self) -> Compacted:
        """Raises Interrupted, and CorruptBatch, JobLost and OSError from the job."""
        log = self._log
        runtime = log.runtime
        assert not log.is_compacting, f"{log.directory} is already being compacted"
        log.is_compacting = True
        token = runtime.uuid()
        is_done = False
        try:
            await log.trimmer.settled()
            self._version = log.version
            task = await self._task()
            await runtime.job(f"{JOB}:begin", token, runtime.disk.for_jobs(), task)
            result = await self._drive(token, task)
            is_done = True
            return result
        except LogChanged:
            raise Interrupted(f"{log.directory} changed while its compaction was being planned") from None
        except (OSError, CorruptBatch):
            # The cause may be only that the files changed during the job.
            self._check()
            raise
        finally:
            log.is_compacting = False
            if not is_done:
                await self._give_up(token)

    async def _drive(self, token: bytes, task: Task) -> Compacted:
        log = self._log
        tally = Compacted(keys_max=task.keys_max)
        sizes = {source.base_offset: source.size_bytes for source in task.sources}
        while True:
            self._check()
            step: Progress = await log.runtime.job(f"{JOB}:advance", token, self._step_bytes)
            tally.read_bytes += step.read_bytes
            tally.written_bytes += step.written_bytes
            tally.records_read += step.records_read
            tally.records_kept += step.records_kept
            self._check()
            if step.cleaned is not None:
                if not await Swap(log).replace_segments(step.cleaned, self._version):
                    raise Interrupted(f"{log.directory} changed while it was being compacted")
                self._version = log.version
                tally.bytes_before += sum(sizes[base] for base in step.cleaned.replaces)
                tally.bytes_after += step.cleaned.size_bytes
                tally.segments_before += len(step.cleaned.replaces)
                tally.segments_after += 1
            if step.is_done:
                log.clean_end = max(log.clean_end, min(step.clean_end, log.end_offset))
                tally.clean_end = log.clean_end
                tally.keys = step.keys
                return tally
            if self._pace is not None:
                await self._pace(step.read_bytes + step.written_bytes)

    async def _task(self) -> Task:
        log, extent = self._log, self._extent
        config = log.config
        dirty_position = 0
        if extent.first_dirty_offset < log.end_offset:
            dirty_position = (await log.reader.locate(extent.first_dirty_offset)).position
        aborted = await log.aborted.find(log.segments[0].base_offset, extent.first_uncleanable_offset)
        self._check()
        sources = tuple(
            Source(
                segment.base_offset,
                segment.end_offset,
                segment.size_bytes,
                dirty_position if segment.base_offset <= extent.first_dirty_offset < segment.end_offset else 0,
            )
            for segment in log.segments[:-1]
            if segment.base_offset < extent.first_uncleanable_offset
        )
        producers = {
            producer_id: LastBatch(entry.last_offset, entry.epoch)
            for producer_id, entry in log.producers.entries()
            if entry.last_offset < extent.first_uncleanable_offset
        }
        return Task(
            directory=log.directory,
            sources=sources,
            first_dirty_offset=extent.first_dirty_offset,
            now_ms=log.runtime.wall_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            keys_max=self._keys_max,
            producers=producers,
            aborted=tuple(aborted),
        )

    def _check(self) -> None:
        if self._is_stopped or self._log.is_closed or self._log.version != self._version:
            raise Interrupted(f"{self._log.directory} was closed or truncated, or its compaction was stopped")

    async def _give_up(self, token: bytes) -> None:
        log = self._log
        if not log.is_closed:
            Swap(log).remove_unfinished()
        await log.runtime.job(f"{JOB}:forget", token)
