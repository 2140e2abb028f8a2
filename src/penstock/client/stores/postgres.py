"""Offsets and results in PostgreSQL, through psycopg."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from penstock import install_command
from penstock.client.cluster import TopicPartition
from penstock.client.errors import OffsetConflict, SettingsError
from penstock.client.handed_out import Located
from penstock.client.stores.saving import IDS_KEPT, Advance, Saving

try:
    import psycopg
except ImportError as missing:
    raise SettingsError("offset_store", f"PostgreSQL needs its driver: {install_command('postgres')}") from missing

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS penstock_offsets (
    consumer_group text NOT NULL, topic text NOT NULL, partition integer NOT NULL, next_offset bigint NOT NULL,
    PRIMARY KEY (consumer_group, topic, partition)
);
CREATE TABLE IF NOT EXISTS penstock_processed (
    number bigserial PRIMARY KEY, consumer_group text NOT NULL, id text NOT NULL, UNIQUE (consumer_group, id)
);
"""
_SCHEMA_LOCK: Final = 0x70656E73
"""CREATE TABLE IF NOT EXISTS fails if two sessions run it at once, so it runs under this advisory lock."""


class PostgresOffsets:
    """`conninfo` is psycopg's connection string for the database with your tables; two tables are added to it.

    A broken connection is reopened for the next transaction. The transaction in which it broke raises, and was either
    saved completely or not at all: load the offsets again to find out (a consumer does when it rejoins).
    """

    def __init__(self, conninfo: str, group: str, *, ids_kept: int = IDS_KEPT) -> None:
        self.group = group
        self._conninfo = conninfo
        self._ids_kept = ids_kept
        self._saving = Saving()
        self._connection: psycopg.Connection[Any] | None = None
        with self.connection.transaction():
            self.connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            self.connection.execute(_SCHEMA)

    @property
    def connection(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._conninfo, autocommit=True)
        return self._connection

    def load(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The saved offsets of these partitions, from which a `Consumer` resumes."""
        found: dict[TopicPartition, int] = {}
        for one in partitions:
            saved = self._saved(self.connection, one)
            if saved is not None:
                found[one] = saved
        self._saving.loaded(partitions, found)
        return found

    @contextmanager
    def transaction(self, messages: Iterable[Located]) -> Iterator[psycopg.Connection[Any]]:
        """Saves the offsets after these records together with whatever is written inside; nothing if it raises."""
        advances = self._saving.advances(messages)
        db = self.connection
        with db.transaction():
            # Locked before the work, in a fixed order: two members with the same partition wait for each other here.
            for advance in sorted(advances):
                self._save(db, advance)
            yield db
        self._saving.saved(advances)

    def first_time(self, record_id: str) -> bool:
        """Whether this id is new; remembers it. Call it inside a transaction. The oldest ids are dropped."""
        row = self.connection.execute(
            "INSERT INTO penstock_processed (consumer_group, id) VALUES (%s, %s)"
            " ON CONFLICT DO NOTHING RETURNING number",
            (self.group, record_id),
        ).fetchone()
        if row is None:
            return False
        self.connection.execute("DELETE FROM penstock_processed WHERE number <= %s", (row[0] - self._ids_kept,))
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _saved(self, db: psycopg.Connection[Any], where: TopicPartition) -> int | None:
        row = db.execute(
            "SELECT next_offset FROM penstock_offsets WHERE consumer_group = %s AND topic = %s AND partition = %s",
            (self.group, *where),
        ).fetchone()
        return None if row is None else int(row[0])

    def _save(self, db: psycopg.Connection[Any], advance: Advance) -> None:
        if advance.expected is None:
            done = db.execute(
                "INSERT INTO penstock_offsets VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (self.group, *advance.partition, advance.next_offset),
            )
        else:
            done = db.execute(
                "UPDATE penstock_offsets SET next_offset = %s"
                " WHERE consumer_group = %s AND topic = %s AND partition = %s AND next_offset = %s",
                (advance.next_offset, self.group, *advance.partition, advance.expected),
            )
        if done.rowcount != 1:
            raise OffsetConflict(*advance.partition, advance.expected, self._saved(db, advance.partition))
