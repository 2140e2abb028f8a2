"""Pipelines on Spark: declared in one short file, checked before they run, exactly once from topic to topic and table.

    -- revenue.sql: `penstock pipeline run revenue.sql`
    SET checkpoint = 'checkpoints/revenue';

    CREATE STREAM orders (
        order_id STRING NOT NULL, amount DECIMAL(10,2), ordered_at TIMESTAMP,
        WATERMARK FOR ordered_at DELAY OF 10 MINUTES
    ) WITH (topic = 'orders', format = 'json', dead_letters = 'orders.dead');

    CREATE TABLE revenue WITH (path = 'lake/revenue') AS
        SELECT window.start AS minute, sum(amount) AS amount FROM orders GROUP BY window(ordered_at, '1 minute');

Theory of operation
-------------------
A file becomes a `model.Pipeline`, frozen data with the line of everything in it, by `sql_file` (which reads the
statements and leaves what a SELECT says to Spark, but for the names it reads, which `sql_relations` finds) or by
`python_file` (which runs the file and takes what `builder` collected). `options` is the table of every word that a
`WITH` or a `SET` may have; a word that is not in it is refused with the nearest one that is.

`checking` looks at it before anything runs, from the cheap to the dear: names and options need nothing; topics and
transactions need a broker; columns, types and what can be streamed need a Spark session, whose own parser and analyzer
judge the queries and whose complaints are moved to the line and column of the file. The checkpoint must be this
pipeline's (`identity`: a small file in it says whose it is).

`planning` makes DataFrames of it, and `running` one streaming query per sink, each with its own checkpoint below the
pipeline's, in one session. A source with a dead-letter topic has one query more, for the records that `decoding` could
not parse: not a part of the sinks' queries, so that each bad record is written once however many sinks read the source.
All queries of a pipeline start from the same offsets, which `claiming` settles once and keeps in the checkpoint. If one
query fails the run ends, because half a pipeline is a wrong one; started again, each goes on where it stopped. However
a run ends, no query of it goes on.

`explaining` says in words what a pipeline will do. `testing` runs its queries on rows of a fixture file (`fixtures`)
and compares what they write (`row_diff`). `backfilling` runs it once more over a time range, with a checkpoint of its
own. `inference` writes a file for the columns that a sample of a topic has.

`progress` turns what Spark reports into figures (rows, lag, state, late records), which `status` keeps in a file for
other terminals, `metrics` serves to Prometheus, and the command line shows.

The sinks stand on their own and need no pipeline file: `to_topic` (each micro-batch one Kafka transaction) and
`lake.to_table` (each micro-batch one Delta commit) are functions for `foreachBatch`, and `following.follow` waits for
such a query, shows its batches and stops it at Ctrl-C. Nothing here imports the engine:
everything goes through Kafka's protocol, so it runs on Apache Kafka as well. pyspark, pyarrow and deltalake come with
`pip install 'penstock-streaming[spark]'` and are imported where they are used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.builder import PipelineBuilder, define, variable
    from penstock.pipeline.checking import validate
    from penstock.pipeline.following import follow
    from penstock.pipeline.lake import read_table, to_table
    from penstock.pipeline.loading import load_pipeline
    from penstock.pipeline.model import Pipeline, PipelineError, Problem
    from penstock.pipeline.running import run_pipeline
    from penstock.pipeline.to_topic import to_topic

_HOMES = {
    "Pipeline": "model",
    "PipelineBuilder": "builder",
    "PipelineError": "model",
    "Problem": "model",
    "define": "builder",
    "follow": "following",
    "load_pipeline": "loading",
    "read_table": "lake",
    "run_pipeline": "running",
    "to_table": "lake",
    "to_topic": "to_topic",
    "validate": "checking",
    "variable": "builder",
}

__all__ = [
    "Pipeline",
    "PipelineBuilder",
    "PipelineError",
    "Problem",
    "define",
    "follow",
    "load_pipeline",
    "read_table",
    "run_pipeline",
    "to_table",
    "to_topic",
    "validate",
    "variable",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


class _Package(ModuleType):
    """Importing the module `to_topic` would hide the function of that name behind it."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
