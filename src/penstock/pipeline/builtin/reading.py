"""How the built-in pipelines read topics: only what was committed, unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)


def topic_reader(reader: Reader, properties: Mapping[str, str]) -> Reader:
    """A reader of topics with these client properties; `isolation.level` is `read_committed` if it is not among them.

    Spark's Kafka source reads uncommitted records by default, so the source does; pipelines do not.
    """
    for name, value in {"isolation.level": "read_committed", **properties}.items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.format("penstock")
