"""The steps of a pipeline with the columns that Spark finds in each, for a person who checks whether they are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StepColumn:
    name: str
    type: str
    """In Spark's words, such as `decimal(10,2)`."""


@dataclass(frozen=True)
class Step:
    name: str
    kind: str
    """`stream` for a topic that is read, `table` for one that is joined, `view` for rows that other queries read, and
    `query` for rows that are written."""
    columns: tuple[StepColumn, ...]


def steps_of(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> tuple[Step, ...]:
    """All steps in the order of the file, but for those whose query is wrong."""
    written = {sink.input: sink.name for sink in pipeline.sinks}
    named = [
        *((source.name, source.name, "stream") for source in pipeline.sources),
        *((reference.name, reference.name, "table") for reference in pipeline.references),
        *((one.name, written.get(one.name, one.name), "query" if one.name in written else "view")
          for one in pipeline.transformations),
    ]  # fmt: skip
    return tuple(Step(shown, kind, _columns(frames[name])) for name, shown, kind in named if name in frames)


def _columns(frame: DataFrame) -> tuple[StepColumn, ...]:
    return tuple(StepColumn(field.name, field.dataType.simpleString()) for field in frame.schema)
