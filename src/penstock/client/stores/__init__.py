"""Offsets stored with the results: exactly once without broker transactions.

    store = SqliteOffsets("totals.db", group="totals")
    with Consumer("localhost:9092", "orders", group="totals", offset_store=store) as consumer:
        while True:
            messages = consumer.poll()
            with store.transaction(messages) as db:         # results and offsets are saved together or not at all
                for message in messages:
                    db.execute("UPDATE totals SET …")

| store | where | what `transaction` gives |
|---|---|---|
| `SqliteOffsets` | a file | a `sqlite3.Connection` |
| `PostgresOffsets` | PostgreSQL (`pip install penstock-streaming[postgres]`) | a `psycopg.Connection` |
| `RedisOffsets` | Redis (`pip install penstock-streaming[redis]`) | a pipeline: commands run together at the end |

A consumer with an `offset_store` asks it where to resume whenever partitions are assigned. A crash in the middle of a
transaction leaves neither its results nor its offsets, so the records are delivered again and nothing is counted twice.

Two consumers may have the same partition at once: a member that was taken for dead, and its successor. Each remembers
the offset it loaded. A transaction saves its offsets only if the stored ones are unchanged; otherwise it saves nothing
and raises OffsetConflict. So the slower of the two loses, whatever its clock says.

`saving` is the part all stores share, and is pure. A connection belongs to one thread at a time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.stores.postgres import PostgresOffsets
    from penstock.client.stores.redis import RedisIds, RedisOffsets
    from penstock.client.stores.sqlite import SqliteIds, SqliteOffsets

_MODULES = {
    "PostgresOffsets": "postgres",
    "RedisIds": "redis",
    "RedisOffsets": "redis",
    "SqliteIds": "sqlite",
    "SqliteOffsets": "sqlite",
}


def __getattr__(name: str) -> object:
    """Imports a store, and with it its driver, on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = ["PostgresOffsets", "RedisIds", "RedisOffsets", "SqliteIds", "SqliteOffsets"]
