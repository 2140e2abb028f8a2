"""The cleaner: compacts the logs of topics with `cleanup.policy=compact`, one at a time, the dirtiest first.

`PartitionManager` calls it every `log.cleaner.backoff.ms`; it runs until no log needs compaction. The work is done in a
subprocess (`penstock.log.compaction`), so the broker itself only chooses logs, swaps files, and waits.

A log that cannot be compacted is skipped with an error event, and the others continue: until the next start if it is
damaged, for a while if the disk was full or the subprocess died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.broker.net.slices import Slices
from penstock.broker.replicas.partition import Partition
from penstock.config import BrokerConfig
from penstock.log import Log, LogDirectory
from penstock.log.compaction import STEP_BYTES, Cleanable, Compacted, Compaction, Interrupted, cleanable
from penstock.log.compaction_job import CorruptBatch
from penstock.log.config import NEVER
from penstock.runtime import Future, Runtime
from penstock.runtime.eventlog import EventLog
from penstock.telemetry.samples import Sample, counter, gauge
from penstock.wire.errors import KafkaError

RETRY_AFTER_MS = 600_000
"""How long a log is skipped after a failure that is not its own."""


class Candidate(NamedTuple):
    partition: Partition
    log: Log
    extent: Cleanable


class SetAside(NamedTuple):
    log: Log
    until_ms: float


class Cleaner:
    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        directory: LogDirectory,
        partitions: Callable[[], Iterable[Partition]],
    ) -> None:
        self.config = config
        """Can be changed at run time."""
        self._runtime = runtime
        self._events = events
        self._directory = directory
        self._partitions = partitions
        self._compaction: Compaction | None = None
        self._is_stopped = False
        self._idle: Future[None] | None = None
        self._set_aside: dict[str, SetAside] = {}
        self._max_dirty_ratio = 0.0
        self._max_delay_ms = 0
        self._step_began_ms = 0.0
        self._last_run_ms = runtime.now_ms()
        self._last: Compacted | None = None
        self._last_took_ms = 0.0
        self._compactions = 0
        self._read_bytes = 0
        self._written_bytes = 0
        self.on_corrupt: Callable[[Partition], None] = lambda partition: None
        """Called with a partition whose log cannot be compacted because a batch in it is damaged."""

    async def clean(self) -> None:
        """Compact all logs that need it."""
        self._idle = self._runtime.future()
        try:
            while not self._is_stopped:
                dirtiest = await self._find_dirtiest()
                self._last_run_ms = self._runtime.now_ms()
                if dirtiest is None:
                    return
                await self._clean(dirtiest)
        finally:
            self._idle.set_result(None)
            self._idle = None

    async def close(self) -> None:
        """Stop soon, and wait for that: the logs must not be in use when they are closed."""
        self._is_stopped = True
        if self._compaction is not None:
            self._compaction.stop()
        if self._idle is not None:
            await self._idle

    # ---- choosing

    async def _find_dirtiest(self) -> Candidate | None:
        due: list[Candidate] = []
        self._max_dirty_ratio = 0.0
        self._max_delay_ms = 0
        slices = Slices(self._runtime)
        for partition in list(self._partitions()):
            log = partition.log
            if log is None or not partition.is_copied or not log.config.compacts or self._is_set_aside(log):
                continue
            try:
                extent = await cleanable(log, partition.high_watermark, self._runtime.wall_ms())
            except FileNotFoundError:
                continue  # retention removed a segment, or the topic was deleted
            except (OSError, KafkaError) as error:
                self._put_aside(log, error, RETRY_AFTER_MS)
                continue
            self._max_dirty_ratio = max(self._max_dirty_ratio, extent.dirty_ratio)
            self._max_delay_ms = max(self._max_delay_ms, extent.delay_ms)
            if extent.is_due(log.config):
                due.append(Candidate(partition, log, extent))
            await slices.breathe()
        due = [candidate for candidate in due if candidate.partition.log is candidate.log]
        return max(due, key=lambda candidate: candidate.extent.dirty_ratio, default=None)

    # ---- cleaning

    async def _clean(self, candidate: Candidate) -> None:
        log = candidate.log
        config = self.config
        map_bytes = int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor)
        began_ms = self._step_began_ms = self._runtime.now_ms()
        # With a low rate limit it works in small steps instead of bursts.
        step_bytes = int(min(STEP_BYTES, config.log_cleaner_io_max_bytes_per_second))
        self._compaction = Compaction(
            log, candidate.extent, map_bytes=map_bytes, step_bytes=step_bytes, pace=self._pace
        )
        if self._is_stopped:
            self._compaction.stop()
        try:
            done = await self._compaction.run()
        except Interrupted:
            return
        except CorruptBatch as error:
            self._put_aside(log, error, NEVER)
            self.on_corrupt(candidate.partition)
        except Exception as error:
            # A full disk, a dead subprocess, or a bug: none of them may end the broker.
            self._put_aside(log, error, RETRY_AFTER_MS)
        else:
            took_ms = self._runtime.now_ms() - began_ms
            self._note(candidate.partition, done, took_ms)
            await self._directory.checkpoint()
        finally:
            self._compaction = None

    async def _pace(self, size_bytes: int) -> None:
        """Keep to `log.cleaner.io.max.bytes.per.second`, averaged over each step."""
        due_ms = self._step_began_ms + 1000 * size_bytes / self.config.log_cleaner_io_max_bytes_per_second
        delay_ms = due_ms - self._runtime.now_ms()
        # Sleep in short intervals, so that a stop need not wait longer.
        while delay_ms > 0 and not self._is_stopped:
            await self._runtime.sleep(min(delay_ms, 1000))
            delay_ms = due_ms - self._runtime.now_ms()
        self._step_began_ms = self._runtime.now_ms()

    def _note(self, partition: Partition, done: Compacted, took_ms: float) -> None:
        self._last, self._last_took_ms = done, took_ms
        self._compactions += 1
        self._read_bytes += done.read_bytes
        self._written_bytes += done.written_bytes
        self._events.info(
            "compacted",
            partition=str(partition),
            upto=done.clean_end,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
            records_before=done.records_read,
            records_after=done.records_kept,
            segments_before=done.segments_before,
            segments_after=done.segments_after,
            took_ms=round(took_ms),
        )

    # ---- skipped logs

    def _is_set_aside(self, log: Log) -> bool:
        aside = self._set_aside.get(log.name)
        if aside is not None and (aside.log is not log or aside.until_ms <= self._runtime.now_ms()):
            del self._set_aside[log.name]
            return False
        return aside is not None

    def take_back(self, partition: Partition) -> None:
        """Its log was damaged and has been repaired: compact it again."""
        if partition.log is not None:
            self._set_aside.pop(partition.log.name, None)

    def _put_aside(self, log: Log, error: Exception, for_ms: int) -> None:
        if log.is_closed:
            return
        self._set_aside[log.name] = SetAside(log, self._runtime.now_ms() + for_ms)
        until = "the next start" if for_ms == NEVER else f"{for_ms // 60_000} minutes from now"
        self._events.error(
            "log not compacted", partition=log.name, error=str(error) or repr(error), set_aside_until=until
        )

    # ---- metrics

    def samples(self) -> Iterable[Sample]:
        manager, cleaner = "kafka_log_logcleanermanager", "kafka_log_logcleaner"
        last = self._last
        now_ms = self._runtime.now_ms()
        aside = [one.log for one in self._set_aside.values() if not one.log.is_closed]
        values: tuple[tuple[str, str, float], ...] = (
            (f"{manager}_max_dirty_percent", "Uncompacted share of the dirtiest log", 100 * self._max_dirty_ratio),
            (f"{manager}_time_since_last_run_ms", "Time since its last run, in ms", now_ms - self._last_run_ms),
            (f"{manager}_uncleanable_partitions_count", "Logs skipped because they cannot be compacted", len(aside)),
            (f"{manager}_uncleanable_bytes", "Bytes of skipped logs", sum(log.size_bytes for log in aside)),
            (
                f"{cleaner}_cleaner_recopy_percent",
                "Bytes written by the last compaction, in percent of bytes read",
                100 * last.written_bytes / max(1, last.read_bytes) if last is not None else 0,
            ),
            (f"{cleaner}_max_clean_time_secs", "Duration of the last compaction", self._last_took_ms / 1000),
            (
                f"{cleaner}_max_buffer_utilization_percent",
                "Use of the key map in the last compaction, in percent",
                100 * last.keys / last.keys_max if last is not None else 0,
            ),
            (
                f"{cleaner}_max_compaction_delay_secs",
                "Time by which max.compaction.lag.ms is exceeded",
                self._max_delay_ms / 1000,
            ),
        )
        for name, text, value in values:
            yield gauge(name, text, value)
        totals = (
            ("penstock_compactions_total", "Completed compactions", self._compactions),
            ("penstock_compaction_read_bytes_total", "Bytes read by compaction", self._read_bytes),
            ("penstock_compaction_written_bytes_total", "Bytes written by compaction", self._written_bytes),
        )
        for name, text, value in totals:
            yield counter(name, text, value)
