"""`spark.read`: a range of offsets, decided once, when the read is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.spark.backend import SourcePartition
from penstock.spark.errors import tells_plainly
from penstock.spark.filters import Bounds
from penstock.spark.lookup import Lookup
from penstock.spark.offsets import Cut
from penstock.spark.options import SourceOptions
from penstock.spark.planning import Range, cut_ranges
from penstock.spark.reading import read_partition

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bounds = Bounds()

    @tells_plainly
    def partitions(self) -> list[InputPartition]:
        lookup = Lookup(self._options)
        try:
            return list(plan(self._options, lookup, self._bounds))
        finally:
            lookup.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)


class FilteringBatchReader(BatchReader):
    """A reader of its own, because Spark fails on one that has `pushFilters` where its setting is off.

    Spark 4.3 plans a data source in Python once per `load()` and keeps the plan: what is left of a topic after one
    query's filters is what the next query of the same DataFrame gets, whatever its own filters are. So this is only for
    those who asked for it, with the option `penstock.pushFilters`, and load anew for each query.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows what is read; all of them are evaluated by Spark again, which costs little on what is left."""
        self._bounds = Bounds.of(filters)
        return filters


def plan(options: SourceOptions, lookup: Lookup, bounds: Bounds) -> list[SourcePartition]:
    """The tasks of a batch read."""
    starts, stops = lookup.ranges()
    # What was added or deleted between the two questions is left to the next read.
    keys = [key for key in sorted(stops.ends) if key in starts.ends and bounds.has(key)]
    ranges = [bounds.narrowed(Range(*key, starts.ends[key], stops.ends[key])) for key in keys]
    if bounds.timestamp_min_ms is not None and ranges:
        ranges = bounds.narrowed_by_time(ranges, lookup)
    cut = Cut(options.partitions_min, options.records_per_partition_max)
    return [SourcePartition(*one, topic_id=stops.topic_ids.get(one.topic)) for one in cut_ranges(ranges, cut)]
