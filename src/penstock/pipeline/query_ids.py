"""Whose micro-batch this is: what Spark tells the jobs of a streaming query about themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
"""The id lives in the checkpoint, and stays with it."""
RUN_ID_PROPERTY: Final = "spark.jobGroup.id"
"""Spark runs the jobs of a streaming query in a group that is named after the run."""


def tells_ids(batch: DataFrame) -> bool:
    """Whether Spark tells them at all; Spark Connect does not."""
    return hasattr(batch, "_jdf")


def query_id_of(batch: DataFrame) -> str | None:
    """The id of the query that a micro-batch belongs to; None where there is none, or Spark does not tell."""
    return _property(batch, QUERY_ID_PROPERTY)


def run_id_of(batch: DataFrame) -> str | None:
    """The id of the run of that query: from a start to its end."""
    return _property(batch, RUN_ID_PROPERTY)


def _property(batch: DataFrame, name: str) -> str | None:
    if not tells_ids(batch):
        return None
    found: str | None = batch.sparkSession.sparkContext.getLocalProperty(name)
    return found or None
