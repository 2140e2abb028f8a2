"""The programs in `examples/`, run as their readers would run them."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from clients.groups.brokers import broker_under_test
from clients.groups.group import KAFKAJS_VERSION
from penstock.client import LATEST, ClientSettings, Cluster
from support import npm
from support.databases import Postgres, RedisServer
from support.server_process import ServerProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WAIT_TIMEOUT_S = 60
WAIT_STEP_S = 0.02
ORDERS = 120
PAYMENTS = 2000
PARTITIONS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with broker_under_test() as running:
        yield running


@pytest.fixture
def topic(server: ServerProcess) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    return name


def run(server: ServerProcess, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), "--bootstrap", server.bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Running:
    """A program that goes on until it is stopped, and the lines that it printed so far."""

    def __init__(self, command: list[str]) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "NODE_PATH": str(npm.CACHE / "node_modules"),
                "KAFKAJS_NO_PARTITIONER_WARNING": "1",
            },
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def stop(self) -> None:
        """As Ctrl-C does; it ends in order."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(WAIT_TIMEOUT_S) == 0, self.lines[-20:]
        self._reader.join()

    def orders(self) -> list[int]:
        """The numbers of the orders that were worked on, in order."""
        worked = [line.partition(": ") for line in self.lines if re.match(r"\S+\[\d+\]@\d+: ", line)]
        return [json.loads(order)["order"] for _, _, order in worked]

    def gained(self) -> list[str]:
        """What it said whenever it was given partitions."""
        return [line for line in self.lines if "gained [" in line and not line.endswith("[]")]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            for line in printed:
                self.lines.append(line.rstrip("\n"))


def wait_until(condition: Callable[[], bool], *running: Running) -> None:
    deadline_s = time.monotonic() + WAIT_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, [program.lines[-10:] for program in running]
        time.sleep(WAIT_STEP_S)


def worker(server: ServerProcess, program: str, *arguments: str) -> Running:
    return Running([sys.executable, str(EXAMPLES / program), "--bootstrap", server.bootstrap, *arguments])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_workers_of_a_group_share_the_orders_and_lose_none(server: ServerProcess, topic: str, protocol: str) -> None:
    options = ("--topic", topic, "--group", topic, "--protocol", protocol)
    with worker(server, "consumer_group.py", *options) as one, worker(server, "consumer_group.py", *options) as two:
        wait_until(lambda: bool(one.gained() and two.gained()), one, two)
        run(server, "produce_orders.py", "--topic", topic, "--count", str(ORDERS))
        wait_until(lambda: len(one.orders() + two.orders()) >= ORDERS, one, two)
        one.stop()
        two.stop()
        assert sorted(one.orders() + two.orders()) == list(range(ORDERS))
    run(server, "produce_orders.py", "--topic", topic, "--count", "5")
    with worker(server, "consumer_group.py", *options) as later:
        wait_until(lambda: len(later.orders()) == 5, later)
        later.stop()
        assert sorted(later.orders()) == list(range(5))


def test_an_async_worker_goes_on_where_it_was(server: ServerProcess, topic: str) -> None:
    options = ("--topic", topic, "--group", topic)
    run(server, "produce_orders.py", "--topic", topic, "--count", str(ORDERS))
    with worker(server, "async_worker.py", *options) as first:
        wait_until(lambda: len(first.orders()) == ORDERS, first)
        first.stop()
        assert sorted(first.orders()) == list(range(ORDERS))
    run(server, "produce_orders.py", "--topic", topic, "--count", "3")
    with worker(server, "async_worker.py", *options) as second:
        wait_until(lambda: len(second.orders()) == 3, second)
        second.stop()
        assert sorted(second.orders()) == [0, 1, 2]


@pytest.mark.needs_npm
def test_a_javascript_worker_goes_on_where_it_was(server: ServerProcess, topic: str) -> None:
    if reason := npm.package_missing("kafkajs", KAFKAJS_VERSION):
        pytest.skip(reason)
    command = ["node", str(EXAMPLES / "kafkajs_consumer.js"), server.bootstrap, topic, topic]
    run(server, "produce_orders.py", "--topic", topic, "--count", str(ORDERS))
    with Running(command) as first:
        wait_until(lambda: len(first.orders()) == ORDERS, first)
        first.stop()
        assert sorted(first.orders()) == list(range(ORDERS))
    run(server, "produce_orders.py", "--topic", topic, "--count", "3")
    with Running(command) as second:
        wait_until(lambda: len(second.orders()) == 3, second)
        second.stop()


def test_a_static_member_comes_back_to_its_partitions(server: ServerProcess, topic: str) -> None:
    options = ("--topic", topic, "--group", topic)
    with worker(server, "static_member.py", *options, "--name", "desk-1") as one:
        wait_until(lambda: bool(one.gained()), one)
        with worker(server, "static_member.py", *options, "--name", "desk-2") as two:
            wait_until(lambda: bool(two.gained()), two)
            wait_until(lambda: len(one.gained()) == 2, one)
            two.stop()
            before = two.gained()[-1]
        with worker(server, "static_member.py", *options, "--name", "desk-2") as again:
            wait_until(lambda: bool(again.gained()), again)
            assert again.gained() == [before]
            run(server, "produce_orders.py", "--topic", topic, "--count", "40")
            wait_until(lambda: any("@0" in line for line in again.lines), again)
            again.stop()
        one.stop()
        assert len(one.gained()) == 2


def test_a_table_has_the_newest_value_of_every_key(server: ServerProcess) -> None:
    table = f"temperatures-{uuid.uuid4().hex[:8]}"
    for words in ("set berlin 21.5", "set oslo 9.0", "set berlin 22.0", "delete oslo"):
        run(server, "table.py", "--topic", table, *words.split())
    assert run(server, "table.py", "--topic", table, "show") == "berlin = 22.0\n"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, table)
    assert admin.describe_configs([resource])[resource].result(60)["cleanup.policy"].value == "compact"


def test_a_parallel_worker_does_every_order_once_and_goes_on_where_it_was(server: ServerProcess, topic: str) -> None:
    options = ("--topic", topic, "--group", topic)
    run(server, "produce_orders.py", "--topic", topic, "--count", str(ORDERS))
    with worker(server, "parallel_worker.py", *options) as first:
        wait_until(lambda: len(first.orders()) == ORDERS, first)
        (page,) = [line.rpartition(" ")[2] for line in first.lines if line.startswith("metrics at ")]
        with urllib.request.urlopen(page, timeout=60) as answer:
            assert "kafka_consumer_consumer_fetch_manager_metrics_records_lag_max" in answer.read().decode()
        first.stop()
        assert sorted(first.orders()) == list(range(ORDERS))
    run(server, "produce_orders.py", "--topic", topic, "--count", "3")
    with worker(server, "parallel_worker.py", *options) as second:
        wait_until(lambda: len(second.orders()) == 3, second)
        second.stop()


@contextmanager
def database(kind: str, directory: Path) -> Iterator[tuple[str, Callable[[], dict[str, int]]]]:
    """What `--store` says of a database that runs, and the balances that are in it."""
    if kind == "sqlite":

        def in_sqlite() -> dict[str, int]:
            db = sqlite3.connect(directory / "balances.db")
            try:
                return dict(db.execute("SELECT account, balance FROM balances").fetchall())
            finally:
                db.close()

        yield f"sqlite:{directory / 'balances.db'}", in_sqlite
    elif kind == "postgres":
        psycopg = pytest.importorskip("psycopg", reason="pip install penstock-streaming[postgres]")
        if reason := Postgres.available():
            pytest.skip(reason)
        with Postgres() as postgres:

            def in_postgres() -> dict[str, int]:
                with psycopg.connect(postgres.conninfo) as db:
                    return dict(db.execute("SELECT account, balance FROM balances").fetchall())

            yield f"postgres:{postgres.conninfo}", in_postgres
    else:
        redis = pytest.importorskip("redis", reason="redis is not installed: pip install penstock-streaming[redis]")
        if reason := RedisServer.available():
            pytest.skip(reason)
        with RedisServer() as server:

            def in_redis() -> dict[str, int]:
                with redis.Redis.from_url(server.url, decode_responses=True) as client:
                    return {account: int(balance) for account, balance in client.hgetall("balances").items()}

            yield server.url, in_redis


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.long), pytest.param("redis", marks=pytest.mark.long)]
)
def test_payments_are_counted_exactly_once_though_the_worker_is_killed_in_the_middle(
    server: ServerProcess, topic: str, kind: str, tmp_path: Path
) -> None:
    expected: dict[str, int] = defaultdict(int)
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20})
    for number in range(PAYMENTS):
        account, amount = f"account {number % 17}", number
        expected[account] += amount
        producer.produce(topic, json.dumps({"account": account, "amount": amount}), account)
    assert producer.flush(30) == 0
    with database(kind, tmp_path) as (store, balances):
        options = ("--topic", topic, "--group", topic, "--store", store, "--batch", "20", "--name", "one")
        killed_in_the_middle = 0
        for _ in range(2):
            with worker(server, "exactly_once.py", *options) as killed:
                # Leaving the block kills it, with no chance to end in order: somewhere in a transaction.
                wait_until(lambda program=killed: sum("saved" in line for line in program.lines) >= 5, killed)
            killed_in_the_middle += sum(balances().values()) < sum(expected.values())
        assert killed_in_the_middle, "it was always done before it was killed"
        with worker(server, "exactly_once.py", *options) as last:
            wait_until(lambda: sum(balances().values()) >= sum(expected.values()), last)
            last.stop()
        assert balances() == expected


def committed_values(bootstrap: str, topic: str, expected: int) -> list[bytes]:
    """What readers of committed records see, from the beginning to the end of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "checks", "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )  # fmt: skip
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        quiet = 0
        while quiet < 2 or len(found) < expected:
            messages = consumer.consume(1000, 1.0)
            quiet = 0 if messages else quiet + 1
            found += [message.value() or b"" for message in messages if message.error() is None]
            assert quiet < WAIT_TIMEOUT_S, f"{len(found)} of {expected} can be read"
    finally:
        consumer.close()
    return found


def test_every_order_has_one_invoice_though_the_worker_is_killed_at_random_moments(
    server: ServerProcess, topic: str
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    invoices = f"{topic}-invoices"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(invoices, PARTITIONS, 1)])[invoices].result(60)
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20})
    for number in range(PAYMENTS):
        producer.produce(topic, json.dumps({"order": number}), str(number))
    assert producer.flush(30) == 0
    options = ("--topic", topic, "--to", invoices, "--group", topic, "--batch", "10", "--name", topic)

    def committed(program: Running) -> int:
        return sum(int(line.split()[1]) for line in program.lines if line.startswith("committed"))

    done = 0
    for _ in range(4):
        wanted = chance.randrange(12)
        with worker(server, "read_process_write.py", *options) as killed:
            # Leaving the block kills it: while it starts, in the middle of a transaction, or between two.
            wait_until(lambda program=killed, wanted=wanted: committed(program) >= 10 * wanted, killed)
        done += committed(killed)
    assert done < PAYMENTS, "it was always done before it was killed"
    with worker(server, "read_process_write.py", *options) as last:
        # What a killed worker committed and did not print comes on top.
        wait_until(lambda: group_is_done(server.bootstrap, topic), last)
        last.stop()
    found = sorted(json.loads(value)["invoice"] for value in committed_values(server.bootstrap, invoices, PAYMENTS))
    assert found == list(range(PAYMENTS)), f"seed {seed}"


def group_is_done(bootstrap: str, topic: str) -> bool:
    """Whether the group that is named like its topic has committed everything in it."""
    with Cluster(ClientSettings.from_properties({"bootstrap.servers": bootstrap})) as cluster:
        places = [(topic, partition) for partition in range(PARTITIONS)]
        ends = cluster.list_offsets(dict.fromkeys(places, LATEST))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConsumerGroupTopicPartitions(topic)
    found = admin.list_consumer_group_offsets([asked])[topic].result(60).topic_partitions or []
    return sum(max(0, one.offset) for one in found) == sum(one.offset for one in ends.values())


def test_the_readme_names_every_example() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    for program in EXAMPLES.iterdir():
        if program.suffix in (".py", ".js"):
            assert f"]({program.name})" in readme
