"""`spark.readStream`: what Spark asks a source between micro-batches.

One object answers for a whole run of a query, in a process of its own beside the driver; the checkpoint is all that
is left of it afterwards. What must not be answered differently the second time stands in the offsets themselves, see
`offsets`; what is decided is in `planning`. Here is the order of questions, and what is remembered between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.client import TopicPartition
from penstock.spark.backend import SourcePartition, log
from penstock.spark.errors import tells_plainly
from penstock.spark.lookup import Lookup
from penstock.spark.offsets import Cut, Json, SourceOffset, positions_json
from penstock.spark.options import SourceOptions
from penstock.spark.planning import (
    Range,
    Snapshot,
    change_between,
    cut_ranges,
    losses,
    names,
    next_end,
    offsets_between,
    ranges_between,
)
from penstock.spark.reading import read_partition

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        options: SourceOptions,
        *,
        lookup: Lookup | None = None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._options = options
        self._lookup = lookup or Lookup(options)
        self._wall_ms = wall_ms
        self._initial: SourceOffset | None = None
        self._available: Snapshot | None = None
        """What an AvailableNow run is to read, no matter what comes while it runs."""
        self._latest: Snapshot | None = None
        self._triggered_ms = 0

    def __reduce__(self) -> tuple[type[StreamReader], tuple[SourceOptions]]:
        # Tasks get a copy: they only read.
        return type(self), (self._options,)

    # Where a query starts

    @tells_plainly
    def initialOffset(self) -> Json:
        """Asked for twice in a run, and in each run until the first micro-batch is committed."""
        if self._initial is None:
            found = self._lookup.starts()
            self._initial = SourceOffset.initial(found.ends, found.topic_ids)
        return self._initial.to_json()

    # Where a micro-batch ends

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark gives it back with each question, and ReadAllAvailable where the trigger says so (once)."""
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    @tells_plainly
    def prepareForTriggerAvailableNow(self) -> None:
        # A topic that is not there any more is found missing when the start is known.
        self._available = self._latest_of({})

    @tells_plainly
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """The end of the next micro-batch; `start` itself, unchanged, where there is nothing new or not yet enough."""
        begin = SourceOffset.from_json(start)
        now = self._now(begin)
        change = change_between(begin, now)
        earliest = self._lookup.earliest(change.added)
        self._lookup.lost(losses(change, begin, now, earliest))
        self._latest = now
        if change.added:
            log.info("partitions added: %s", names(change.added))
        end = next_end(
            begin,
            now,
            change,
            earliest,
            offsets_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            cut=Cut(self._options.partitions_min, self._options.records_per_partition_max),
        )
        if end is None or (not isinstance(limit, ReadAllAvailable) and self._must_wait(begin, now)):
            return start
        return end.to_json()

    def reportLatestOffset(self) -> Json | None:
        """For the query's progress: what `latestOffset` saw, before any limit."""
        return None if self._latest is None else positions_json(self._latest.ends)

    def _now(self, begin: SourceOffset) -> Snapshot:
        if self._available is None:
            return self._latest_of(begin.ends)
        if change_between(begin, self._available).is_loss:
            # The start is newer than what was prepared ("latest", partitions added in between), or data is gone:
            # looking again tells which. Whatever is newer, there is nothing to read of it in this run.
            fresh = self._latest_of(begin.ends)
            ends = {key: end for key, end in self._available.ends.items() if key in fresh.ends}
            for key, position in begin.ends.items():
                if key in fresh.ends and ends.get(key, -1) < position:
                    ends[key] = min(position, fresh.ends[key])
            self._available = Snapshot(ends, fresh.topic_ids)
        return self._available

    def _latest_of(self, known: Mapping[TopicPartition, int]) -> Snapshot:
        """Where the logs end, or where `penstock.stopAtOffsets` says that reading ends."""
        found, stops = self._lookup.latest(known), self._options.stop_at
        if not stops:
            return found
        return Snapshot({key: min(end, stops[key]) for key, end in found.ends.items() if key in stops}, found.topic_ids)

    def _must_wait(self, begin: SourceOffset, now: Snapshot) -> bool:
        """Whether to wait for minOffsetsPerTrigger. An AvailableNow run never waits: nothing new will come for it."""
        wanted = self._options.offsets_per_trigger_min
        if wanted is None or self._available is not None:
            return False
        wall_ms = self._wall_ms()
        patient = wall_ms - self._triggered_ms < self._options.trigger_delay_max_ms
        if patient and offsets_between(begin.ends, now.ends) < wanted:
            return True
        self._triggered_ms = wall_ms
        return False

    # What tasks read

    @tells_plainly
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a micro-batch; the same ones each time it is planned."""
        if start == end:
            return []
        stop = SourceOffset.from_json(end)
        ranges, unknown = ranges_between(SourceOffset.from_json(start), stop)
        if unknown:
            # Only in a checkpoint of Spark's own source, which looks them up at this point too.
            earliest = self._lookup.earliest(tuple(unknown))
            ranges += [Range(*key, earliest[key], stop.ends[key]) for key in unknown]
        return [
            SourcePartition(*one, topic_id=stop.topic_ids.get(one.topic))
            for one in cut_ranges(sorted(ranges), stop.cut)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    def commit(self, end: Json) -> None:
        """Nothing to do: where the query is stands in its checkpoint, not in the cluster."""

    def stop(self) -> None:
        self._lookup.close()
