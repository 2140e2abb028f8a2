"""Offsets beside results: SQLite, PostgreSQL and Redis, the last two real."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import OffsetConflict, SettingsError, TopicPartition
from penstock.client.handed_out import Located
from penstock.client.stores import PostgresOffsets, RedisIds, RedisOffsets, SqliteIds, SqliteOffsets
from penstock.client.stores.saving import Saving
from support.databases import Postgres, RedisServer

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@dataclass(frozen=True)
class Record:
    at: int
    of_partition: int = 0

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.of_partition

    def offset(self) -> int:
        return self.at


class Side(Protocol):
    """A kind of store, and what the results in it are."""

    def open(self) -> Any: ...

    def add(self, db: Any, amount: int) -> None: ...

    def total(self) -> int: ...


class Sqlite:
    def __init__(self, path: Path) -> None:
        self._path = path / "results.db"
        db = sqlite3.connect(self._path)
        db.execute("CREATE TABLE totals (total INTEGER)")
        db.execute("INSERT INTO totals VALUES (0)")
        db.commit()
        db.close()

    def open(self) -> SqliteOffsets:
        return SqliteOffsets(self._path, "g")

    def add(self, db: Any, amount: int) -> None:
        db.execute("UPDATE totals SET total = total + ?", (amount,))

    def total(self) -> int:
        db = sqlite3.connect(self._path)
        try:
            return int(db.execute("SELECT total FROM totals").fetchone()[0])
        finally:
            db.close()


class PostgresSide:
    def __init__(self, conninfo: str) -> None:
        import psycopg

        self._conninfo = conninfo
        with psycopg.connect(conninfo) as db:
            db.execute("DROP TABLE IF EXISTS totals, penstock_offsets, penstock_processed")
            db.execute("CREATE TABLE totals (total bigint)")
            db.execute("INSERT INTO totals VALUES (0)")

    def open(self) -> PostgresOffsets:
        return PostgresOffsets(self._conninfo, "g")

    def add(self, db: Any, amount: int) -> None:
        db.execute("UPDATE totals SET total = total + %s", (amount,))

    def total(self) -> int:
        import psycopg

        with psycopg.connect(self._conninfo) as db:
            row = db.execute("SELECT total FROM totals").fetchone()
        assert row is not None
        return int(row[0])


class RedisSide:
    def __init__(self, url: str) -> None:
        import redis

        self._url = url
        self._client: Any = redis.Redis.from_url(url)
        self._client.flushall()

    def open(self) -> RedisOffsets:
        return RedisOffsets(self._url, "g")

    def add(self, db: Any, amount: int) -> None:
        db.incrby("total", amount)

    def total(self) -> int:
        return int(self._client.get("total") or 0)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install penstock-streaming[postgres]")
    if reason := Postgres.available():
        pytest.skip(reason)
    with Postgres() as running:
        yield running


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    pytest.importorskip("redis", reason="redis is not installed: pip install penstock-streaming[redis]")
    if reason := RedisServer.available():
        pytest.skip(reason)
    with RedisServer() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Side:
    if request.param == "sqlite":
        return Sqlite(tmp_path)
    if request.param == "postgres":
        return PostgresSide(request.getfixturevalue("postgres").conninfo)
    return RedisSide(request.getfixturevalue("redis_server").url)


def fail_after(work: Callable[[], object]) -> None:
    work()
    raise ZeroDivisionError


def test_results_and_offsets_are_saved_together(side: Side) -> None:
    with side.open() as store:
        assert store.load([PARTITION, OTHER]) == {}
        with store.transaction([Record(0), Record(1), Record(7, 1)]) as db:
            side.add(db, 3)
        with store.transaction([Record(5)]) as db:
            side.add(db, 1)
    with side.open() as store:
        assert store.load([PARTITION, OTHER]) == {PARTITION: 6, OTHER: 8}
        with store.transaction([]) as db:
            side.add(db, 1)
    assert side.total() == 5


def test_a_failure_inside_saves_neither(side: Side) -> None:
    with side.open() as store:
        store.load([PARTITION])
        with store.transaction([Record(0)]) as db:
            side.add(db, 1)
        with pytest.raises(ZeroDivisionError), store.transaction([Record(1)]) as db:
            fail_after(lambda: side.add(db, 1))
        assert side.total() == 1
        with store.transaction([Record(1)]) as db:
            side.add(db, 1)
    assert side.total() == 2
    with side.open() as store:
        assert store.load([PARTITION]) == {PARTITION: 2}


def test_a_consumer_that_was_replaced_saves_nothing(side: Side) -> None:
    """Both loaded the same offset; one is slow, and must not count again what the other has counted."""
    with side.open() as old, side.open() as new:
        old.load([PARTITION])
        with old.transaction([Record(0)]) as db:
            side.add(db, 1)
        new.load([PARTITION])
        with new.transaction([Record(1)]) as db:
            side.add(db, 1)
        conflict = pytest.raises(OffsetConflict, match="saved up to 2 by another consumer")
        with conflict, old.transaction([Record(1)]) as db:
            side.add(db, 1)
        assert side.total() == 2
        old.load([PARTITION])
        with old.transaction([Record(2)]) as db:
            side.add(db, 1)
        assert side.total() == 3


def test_of_two_that_begin_a_partition_one_wins(side: Side) -> None:
    with side.open() as one, side.open() as two:
        one.load([PARTITION])
        two.load([PARTITION])
        with one.transaction([Record(0)]) as db:
            side.add(db, 1)
        with pytest.raises(OffsetConflict), two.transaction([Record(0)]) as db:
            side.add(db, 1)
        assert side.total() == 1


def test_an_overtaking_during_a_redis_transaction_is_found(redis_server: RedisServer) -> None:
    side = RedisSide(redis_server.url)
    with side.open() as old, side.open() as new:
        old.load([PARTITION])
        new.load([PARTITION])

        def overtake() -> None:
            with new.transaction([Record(0)]) as db:
                side.add(db, 1)

        with pytest.raises(OffsetConflict), old.transaction([Record(0)]) as db:
            side.add(db, 1 if overtake() is None else 0)
    assert side.total() == 1


def test_records_that_were_saved_before_are_refused(side: Side) -> None:
    with side.open() as store:
        store.load([PARTITION])
        with store.transaction([Record(0), Record(1)]) as db:
            side.add(db, 2)
        with pytest.raises(OffsetConflict), store.transaction([Record(1), Record(2)]):
            pytest.fail("it was let in")


def test_a_partition_that_nobody_loaded_is_refused(side: Side) -> None:
    refused = pytest.raises(SettingsError, match="pass this store to the Consumer")
    with side.open() as store, refused, store.transaction([Record(0)]):
        pytest.fail("it was let in")


def test_a_postgres_connection_that_broke_is_opened_again(postgres: Postgres) -> None:
    side = PostgresSide(postgres.conninfo)
    with side.open() as store:
        store.load([PARTITION])
        store.connection.close()
        with store.transaction([Record(0)]) as db:
            side.add(db, 1)
    assert side.total() == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_id_is_new_once_and_only_if_its_transaction_is_saved(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    side: Any = Sqlite(tmp_path) if kind == "sqlite" else PostgresSide(request.getfixturevalue("postgres").conninfo)
    with side.open() as store:
        store.load([PARTITION])
        with pytest.raises(ZeroDivisionError), store.transaction([Record(0)]):
            fail_after(lambda: store.first_time("payment-1"))
        with store.transaction([Record(0)]):
            assert store.first_time("payment-1")
            assert store.first_time("payment-2")
            assert not store.first_time("payment-1")
        with store.transaction([Record(1)]):
            assert not store.first_time("payment-2")


def test_the_ids_that_are_kept_are_bounded(tmp_path: Path) -> None:
    Sqlite(tmp_path)
    ids = SqliteIds(tmp_path / "results.db", "g", capacity=3)
    for number in range(10):
        ids.remember(f"id {number}")
    assert [number for number in range(10) if ids.seen(f"id {number}")] == [7, 8, 9]
    ids.close()


def test_ids_in_redis_are_shared_and_expire(redis_server: RedisServer) -> None:
    RedisSide(redis_server.url)
    one, two = RedisIds(redis_server.url, "g"), RedisIds(redis_server.url, "g", kept_s=100)
    two.remember("id")
    assert one.seen("id")
    assert not one.seen("other")
    assert 0 < one.client.ttl("penstock:processed:g:id") <= 100
    one.close()
    two.close()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), min_size=1, max_size=30))
def test_what_is_saved_is_the_offset_after_the_last_record_of_each_partition(pairs: list[tuple[int, int]]) -> None:
    records: list[Located] = [Record(offset, partition) for partition, offset in sorted(set(pairs))]
    saving = Saving()
    saving.loaded([TopicPartition("t", number) for number in range(3)], {})
    advances = saving.advances(records)
    assert {advance.partition.partition: advance.next_offset for advance in advances} == {
        partition: max(offset for of, offset in pairs if of == partition) + 1 for partition, _ in pairs
    }
    saving.saved(advances)
    with pytest.raises(OffsetConflict):
        saving.advances(records)
