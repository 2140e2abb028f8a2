"""The class that Spark finds for `.format("penstock")`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from penstock.spark.errors import hide_frames, tells_plainly

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark's process for `pushFilters`; it exists only where spark.sql.python.filterPushdown.enabled is on.
_PUSHDOWN_PROCESS: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class PenstockDataSource(DataSource):
    """Topics as tables and streams. Each method imports what it needs: Spark loads this class for every session."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @tells_plainly
    def schema(self) -> StructType:
        from penstock.spark.options import check_options
        from penstock.spark.schema import source_schema

        return source_schema(check_options(self.options).include_headers)

    @tells_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.batch_reader import BatchReader, FilteringBatchReader
        from penstock.spark.options import batch_options
        from penstock.spark.schema import check_schema

        options = batch_options(self.options)
        check_schema(schema, options.include_headers)
        # A reader that has `pushFilters` fails every read in sessions that have the setting off, which is the default.
        # And it has to be asked for: see `FilteringBatchReader`.
        narrows = options.push_filters and _filters_are_pushed()
        return FilteringBatchReader(options) if narrows else BatchReader(options)

    @tells_plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.spark.options import stream_options
        from penstock.spark.schema import check_schema
        from penstock.spark.stream_reader import StreamReader

        options = stream_options(self.options)
        check_schema(schema, options.include_headers)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import batch_writer

        with _sink_errors_told_plainly():
            return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.sink import stream_writer

        with _sink_errors_told_plainly():
            return stream_writer(self.options, schema, overwrite)


@contextmanager
def _sink_errors_told_plainly() -> Iterator[None]:
    from penstock.spark.producing import SinkError

    try:
        yield
    except SinkError:
        hide_frames()
        raise


def _filters_are_pushed() -> bool:
    """Whether this process is the one that Spark starts to push filters."""
    main = sys.modules.get("__main__")
    names = (getattr(getattr(main, "__spec__", None), "name", None), *_callers())
    return _PUSHDOWN_PROCESS in names


def _callers() -> list[str]:
    """The modules that are on the stack, for Spark versions that fork this process from another."""
    found: list[str] = []
    frame = sys._getframe(1)
    while frame is not None:
        found.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back  # type: ignore[assignment]  # None ends it
    return found
