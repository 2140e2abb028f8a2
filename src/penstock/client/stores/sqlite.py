"""Offsets and results in a SQLite file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from penstock.client.cluster import TopicPartition
from penstock.client.errors import OffsetConflict
from penstock.client.handed_out import Located
from penstock.client.stores.saving import IDS_KEPT, Advance, Saving

BUSY_TIMEOUT_S: Final = 30.0

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS penstock_offsets (
    consumer_group TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    PRIMARY KEY (consumer_group, topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS penstock_processed (
    number INTEGER PRIMARY KEY AUTOINCREMENT, consumer_group TEXT NOT NULL, id TEXT NOT NULL,
    UNIQUE (consumer_group, id)
);
"""


def connect(path: str | Path) -> sqlite3.Connection:
    # Transactions are begun and ended explicitly; another thread may close the consumer.
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(_SCHEMA)
    return connection


class SqliteOffsets:
    """`path` is the file with your tables; two tables are added to it."""

    def __init__(self, path: str | Path, group: str, *, ids_kept: int = IDS_KEPT) -> None:
        self.group = group
        self.connection = connect(path)
        self._ids_kept = ids_kept
        self._saving = Saving()

    def load(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The saved offsets of these partitions, from which a `Consumer` resumes."""
        found: dict[TopicPartition, int] = {}
        for one in partitions:
            saved = self._saved(one)
            if saved is not None:
                found[one] = saved
        self._saving.loaded(partitions, found)
        return found

    @contextmanager
    def transaction(self, messages: Iterable[Located]) -> Iterator[sqlite3.Connection]:
        """Saves the offsets after these records together with whatever is written inside; nothing if it raises."""
        advances = self._saving.advances(messages)
        db = self.connection
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            for advance in advances:
                self._save(advance)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._saving.saved(advances)

    def first_time(self, record_id: str) -> bool:
        """Whether this id is new; remembers it. Call it inside a transaction. The oldest ids are dropped."""
        assert self.connection.in_transaction, "call first_time inside a transaction"
        return _first_time(self.connection, self.group, record_id, self._ids_kept)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _saved(self, where: TopicPartition) -> int | None:
        row = self.connection.execute(
            "SELECT next_offset FROM penstock_offsets WHERE consumer_group = ? AND topic = ? AND partition = ?",
            (self.group, *where),
        ).fetchone()
        return None if row is None else int(row[0])

    def _save(self, advance: Advance) -> None:
        if advance.expected is None:
            done = self.connection.execute(
                "INSERT INTO penstock_offsets VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (self.group, *advance.partition, advance.next_offset),
            )
        else:
            done = self.connection.execute(
                "UPDATE penstock_offsets SET next_offset = ?"
                " WHERE consumer_group = ? AND topic = ? AND partition = ? AND next_offset = ?",
                (advance.next_offset, self.group, *advance.partition, advance.expected),
            )
        if done.rowcount != 1:
            raise OffsetConflict(*advance.partition, advance.expected, self._saved(advance.partition))


class SqliteIds:
    """Ids of processed records for `Idempotent`, kept in a file across restarts."""

    def __init__(self, path: str | Path, group: str, *, capacity: int = IDS_KEPT) -> None:
        self._connection = connect(path)
        self._group = group
        self._capacity = capacity
        self._lock = threading.Lock()

    def seen(self, record_id: str) -> bool:
        with self._lock:
            found = self._connection.execute(
                "SELECT 1 FROM penstock_processed WHERE consumer_group = ? AND id = ?", (self._group, record_id)
            ).fetchone()
        return found is not None

    def remember(self, record_id: str) -> None:
        with self._lock:
            _first_time(self._connection, self._group, record_id, self._capacity)

    def close(self) -> None:
        self._connection.close()


def _first_time(connection: sqlite3.Connection, group: str, record_id: str, kept: int) -> bool:
    done = connection.execute(
        "INSERT INTO penstock_processed (consumer_group, id) VALUES (?, ?) ON CONFLICT DO NOTHING", (group, record_id)
    )
    if done.rowcount != 1:
        return False
    assert done.lastrowid is not None
    connection.execute("DELETE FROM penstock_processed WHERE number <= ?", (done.lastrowid - kept,))
    return True
