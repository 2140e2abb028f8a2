"""Balances of accounts in a database, each payment counted exactly once, whatever is killed and when.

Offsets are saved in the transaction that changes the balances. Kill it with `kill -9` and start it again: the balances
add up. Start two of them: each has its own partitions, and one that lost them cannot save any more.

    python examples/exactly_once.py --store sqlite:balances.db
    python examples/exactly_once.py --store "postgres:dbname=bank"      pip install '.[postgres]'
    python examples/exactly_once.py --store redis://localhost:6379/0     pip install '.[redis]'
"""

from __future__ import annotations

import argparse
import json
import signal
from collections import defaultdict
from typing import Any

from confluent_kafka import Message

from penstock.client import Consumer, OffsetConflict
from penstock.client.stores import PostgresOffsets, RedisOffsets, SqliteOffsets

parser = argparse.ArgumentParser(description="Adds up payments, each exactly once.")
parser.add_argument("--bootstrap", default="127.0.0.1:9092")
parser.add_argument("--topic", default="payments")
parser.add_argument("--group", default="balances")
parser.add_argument("--store", default="sqlite:balances.db")
parser.add_argument("--name", help="of this worker (group.instance.id): after a crash it goes on at once")
parser.add_argument("--batch", type=int, default=500, help="records of a transaction, at most")


class Balances:
    """The balances, in whichever database; `add` writes within a transaction of the store."""

    def __init__(self, where: str, group: str) -> None:
        kind, _, rest = where.partition(":")
        self.kind = kind
        if kind == "redis":
            self.store: Any = RedisOffsets(where, group)
            return
        self.store = SqliteOffsets(rest, group) if kind == "sqlite" else PostgresOffsets(rest, group)
        self.store.connection.execute(
            "CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, balance BIGINT NOT NULL)"
        )

    def add(self, db: Any, account: str, amount: int) -> None:
        if self.kind == "redis":
            db.hincrby("balances", account, amount)
            return
        mark = "?" if self.kind == "sqlite" else "%s"
        db.execute(
            f"INSERT INTO balances VALUES ({mark}, {mark})"
            " ON CONFLICT (account) DO UPDATE SET balance = balances.balance + excluded.balance",
            (account, amount),
        )


def save(balances: Balances, messages: list[Message]) -> None:
    changes: dict[str, int] = defaultdict(int)
    for message in messages:
        payment = json.loads(message.value() or b"{}")
        changes[payment["account"]] += payment["amount"]
    with balances.store.transaction(messages) as db:
        for account in sorted(changes):
            balances.add(db, account, changes[account])
    print(f"saved {len(messages)}", flush=True)


def main(options: argparse.Namespace) -> None:
    balances = Balances(options.store, options.group)
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    settings = {
        "auto.offset.reset": "earliest",
        "max.poll.records": options.batch,
        "group.instance.id": options.name,
    }
    with Consumer(options.bootstrap, options.topic, options.group, settings, offset_store=balances.store) as consumer:
        while running:
            messages = consumer.poll(0.25)
            if not messages:
                continue
            try:
                save(balances, messages)
            except OffsetConflict as conflict:
                # The partition is another's by now; its next poll tells, and nothing of this was saved.
                print(f"not saved: {conflict}", flush=True)
    balances.store.close()


main(parser.parse_args())
