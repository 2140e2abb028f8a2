"""Offsets kept with the results: exactly once without transactions of the broker.

    store = SqliteOffsets("totals.db", group="totals")
    with Consumer("localhost:9092", "orders", group="totals", offset_store=store) as consumer:
        while True:
            messages = consumer.poll()
            with store.transaction(messages) as db:         # results and offsets are saved together, or neither is
                for message in messages:
                    db.execute("UPDATE totals SET …")

| store | where | what `transaction` gives |
|---|---|---|
| `SqliteOffsets` | a file | a `sqlite3.Connection` |
| `PostgresOffsets` | PostgreSQL (`pip install penstock-streaming[postgres]`) | a `psycopg.Connection` |
| `RedisOffsets` | Redis (`pip install penstock-streaming[redis]`) | a pipeline: commands run together at the end |

Theory of operation ------------------- A consumer with an `offset_store` asks it where to go on whenever partitions
are assigned. Whoever dies in the middle of a transaction leaves neither results nor offsets of it, so the records come
again and nothing is counted twice.

There may be two at once: a member that was thought dead, and the one that took its partitions over. Both know where
they found the offset; a transaction saves its offsets only if they are still there, and raises OffsetConflict, with
nothing saved, if not. So of two the slower one loses, whatever its clock says.

`saving` is what all stores share, and pure. Connections belong to one thread at a time.
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
    """Each store needs its own driver, and only that."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = ["PostgresOffsets", "RedisIds", "RedisOffsets", "SqliteIds", "SqliteOffsets"]
