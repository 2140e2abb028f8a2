"""Spark reads and writes topics through `.format("penstock")`: in Python, from any Kafka cluster, without a jar.

    from penstock.spark import build_session

    spark = build_session()
    orders = spark.readStream.format("penstock") \\
        .option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

Theory of operation
-------------------
Spark runs a data source in Python in three kinds of processes, and each part of the source belongs to one of them:

- *planning*, a short process on the driver for each `load()` and each batch read: `source` (the class Spark finds),
  `options` (Spark's options, read and refused as Spark's own Kafka source does), `batch_reader`, `filters`;
- *the stream's own process*, on the driver for as long as a query runs: `stream_reader`, which says where the log
  ends and where the next micro-batch does;
- *tasks*, on the executors: `reading`, which fetches raw batches (`penstock.client`) and decodes them straight to
  Arrow (`penstock.arrow`). What that client cannot do falls back to confluent-kafka (`confluent`), more slowly.

All that must survive a crash is in the checkpoint, and the checkpoint holds only where each micro-batch *ends*. So an
end carries with it what a second attempt could not find out again (`offsets`): where its partitions begin if no
micro-batch before it says so (the first one, partitions that were added), how it was cut into tasks, and which topics
these were, so that a topic that was deleted and created again is not taken for the old one. From (start, end) alone
follow the same tasks with the same records, every time (`planning`).

Ranges end by position, never by record: offsets may be missing anywhere. The decisions are pure functions in
`planning` and `offsets`; who asks a cluster is behind one small interface, `backend`.

The sink is `sink` (at least once); `session` builds a Spark session that works out of the box, `doctor` says what is
in the way of one, `alias` lets `.format("kafka")` jobs run unchanged, `lag` says how far queries are behind; `home` and
`daemon` let the Python processes of a session on one machine start with their imports compiled and done.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from penstock.spark.session import use_this_python

if TYPE_CHECKING:
    from penstock.spark.alias import register
    from penstock.spark.lag import LagListener
    from penstock.spark.session import build_session
    from penstock.spark.source import PenstockDataSource

__all__ = ["LagListener", "PenstockDataSource", "build_session", "register"]

# Spark is large and optional: nothing of it is imported before somebody asks for something.
_HOME = {
    "LagListener": "penstock.spark.lag",
    "PenstockDataSource": "penstock.spark.source",
    "build_session": "penstock.spark.session",
    "register": "penstock.spark.alias",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


# Spark's JVM reads this once, when it starts: also where the user makes the session, it must be set before.
use_this_python()
