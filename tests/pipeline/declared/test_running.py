"""Pipelines at work: a real Spark, a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from penstock.client import ClientError
from penstock.pipeline import PipelineError, load_pipeline, read_table, run_pipeline, validate
from penstock.pipeline.checking import check_cluster, check_plan
from penstock.pipeline.checkpoints import HadoopDirectory
from penstock.pipeline.model import Place, Problem
from penstock.pipeline.planning import own_session, plan
from penstock.pipeline.sql_file import parse_sql
from penstock.pipeline.status import RunStatus, read_status, status_path
from support.apache_kafka import ApacheKafka, available
from support.penstock import PenstockServer
from support.server_process import ServerProcess, admin_client, die_with_parent
from support.spark import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)

HEAD = """\
SET bootstrap.servers = '{bootstrap}';
SET checkpoint = '{directory}/checkpoint';
SET trigger = 'once';
SET lake = '{directory}/lake';
"""
SHOP = """
SET delivery = '{delivery}';
CREATE STREAM orders (
    id STRING NOT NULL, amount DECIMAL(10,2), at TIMESTAMP, WATERMARK FOR at DELAY OF 10 MINUTES
) WITH (topic = '{name}.orders', dead_letters = '{name}.dead', records_per_trigger = 60);
CREATE VIEW large AS SELECT * FROM orders WHERE amount >= 90;
CREATE STREAM big WITH (topic = '{name}.big', key = 'id') AS SELECT id, amount FROM large;
CREATE TABLE revenue AS
    SELECT window.start AS start, sum(amount) AS amount, count(*) AS orders
    FROM orders GROUP BY window(at, '10 minutes');
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockServer]:
    with PenstockServer() as server:
        yield server


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


class Cluster:
    """The topics of one test."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        self.bootstrap = server.bootstrap
        self.name = name
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})

    def create(self, *topics: str, partitions: int = 2) -> None:
        admin = admin_client(self.bootstrap)
        new = [NewTopic(f"{self.name}.{topic}", partitions, 1) for topic in topics]
        for future in admin.create_topics(new).values():
            future.result()

    def send(self, topic: str, *values: object, key: str | None = None) -> None:
        for value in values:
            data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            self._producer.produce(f"{self.name}.{topic}", data, key=key)
        self._producer.flush()

    def read(self, topic: str) -> list[Record]:
        """All that is in a topic, as a reader of committed records sees it."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": "test", "enable.partition.eof": True, "log_level": 0,
                "isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False,
            }
        )  # fmt: skip
        found: list[Record] = []
        try:
            name = f"{self.name}.{topic}"
            partitions = consumer.list_topics(name, timeout=10).topics[name].partitions
            consumer.assign([TopicPartition(name, partition, 0) for partition in partitions])
            ended: set[int | None] = set()
            while len(ended) < len(partitions):
                message = consumer.poll(10)
                assert message is not None, f"{name} does not end"
                if message.error():
                    ended.add(message.partition())
                    continue
                pairs: Any = message.headers() or []
                headers = {key: (value or b"").decode() for key, value in pairs}
                found.append(Record(message.key(), message.value(), headers))
        finally:
            consumer.close()
        return found


@pytest.fixture
def cluster(broker: PenstockServer, request: pytest.FixtureRequest) -> Cluster:
    return Cluster(broker, re.sub("[^a-z]+", "-", request.node.name.lower())[:40])


def write(directory: Path, text: str, cluster: Cluster, delivery: str = "at-least-once") -> Path:
    path = directory / "shop.sql"
    head = HEAD if "SET trigger" not in text else HEAD.replace("SET trigger = 'once';\n", "")
    text = (head + text).replace("{bootstrap}", cluster.bootstrap).replace("{directory}", str(directory))
    path.write_text(text.replace("{name}", cluster.name).replace("{delivery}", delivery))
    return path


def order(number: int, minute: int, amount: object = None) -> dict[str, object]:
    at = f"2026-01-31T{12 + minute // 60:02d}:{minute % 60:02d}:00Z"
    return {"id": f"o{number}", "amount": number if amount is None else amount, "at": at}


def test_from_a_topic_to_a_table_and_what_does_not_parse_to_another_topic(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create("orders", "dead", partitions=1)
    cluster.send("orders", *(order(number, number) for number in range(40)), b"not json", key="k")
    text = SHOP[: SHOP.index("CREATE VIEW")] + SHOP[SHOP.index("CREATE TABLE") :]
    status = run_pipeline(load_pipeline(write(tmp_path, text, cluster)), spark=spark)
    figures = {name: (one.rows_read, one.bad, one.rows_written) for name, one in status.queries.items()}
    assert figures == {"revenue": (41, 1, 2), "orders.dead_letters": (41, 1, 1)}
    windows = read_table(spark, f"{tmp_path}/lake/revenue").collect()
    assert sorted((row.start.minute, row.orders) for row in windows) == [(0, 10), (10, 10)]
    [letter] = cluster.read("dead")
    assert (letter.key, letter.value) == (b"k", b"not json")
    assert letter.headers["penstock.error.offset"] == "40"
    saved = read_status(status_path(f"{tmp_path}/checkpoint") or Path())
    assert saved is not None
    assert saved.state == "finished"
    # The checkpoint is its own now.
    other = load_pipeline(tmp_path / "shop.sql", overrides={"pipeline": "other"})
    with pytest.raises(PipelineError, match="belongs to the pipeline shop, not to other"):
        run_pipeline(other, spark=spark)


@pytest.mark.long
def test_from_a_topic_to_topics_and_tables_and_on_where_it_stopped(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create("orders", "big", "dead")
    cluster.send("orders", *(order(number, number // 2) for number in range(100)))
    cluster.send("orders", b"not json", order(7, 0, "free"), None, key="k")
    path = write(tmp_path, SHOP, cluster)

    status = run_pipeline(load_pipeline(path), spark=spark)
    assert status.state == "finished"
    big, revenue, dead = status.queries["big"], status.queries["revenue"], status.queries["orders.dead_letters"]
    assert (big.rows_read, big.rows_written, big.bad, big.lag) == (103, 10, 3, 0)
    assert (dead.rows_read, dead.bad, dead.rows_written, revenue.rows_read) == (103, 3, 3, 103)
    assert big.batches > 1, "the cap per trigger was not kept"
    assert revenue.state_rows > 0
    windows = read_table(spark, f"{tmp_path}/lake/revenue").collect()
    assert sorted((row.start.minute, row.orders) for row in windows) == [(0, 20), (10, 20), (20, 20)]
    assert {record.key: json.loads(record.value or b"") for record in cluster.read("big")} == {
        f"o{number}".encode(): {"id": f"o{number}", "amount": number} for number in range(90, 100)
    }
    letters = {record.value: record for record in cluster.read("dead")}
    assert letters[b"not json"].headers["penstock.error.reason"].startswith("not JSON")
    assert letters[b"not json"].headers["penstock.error.topic"] == f"{cluster.name}.orders"
    assert letters[None].key == b"k"
    assert len(letters) == 3

    # Again: what is new, what is late, and nothing twice.
    cluster.send("orders", order(200, 200), order(201, 3))
    again = run_pipeline(load_pipeline(path), spark=spark)
    assert again.queries["revenue"].late == 1
    assert len(cluster.read("big")) == 12
    assert len(cluster.read("dead")) == 3
    assert read_table(spark, f"{tmp_path}/lake/revenue").count() == 5
    saved = read_status(status_path(f"{tmp_path}/checkpoint") or Path())
    assert saved is not None
    assert (saved.state, saved.queries["revenue"].late) == ("finished", 1)


def test_a_checkpoint_elsewhere_is_reached_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    directory = HadoopDirectory(f"file:{tmp_path}/there", spark)
    assert directory.is_empty()
    assert directory.read("penstock-pipeline.json") is None
    directory.write("penstock-pipeline.json", "ä")
    directory.write("penstock-pipeline.json", "ö")
    assert directory.read("penstock-pipeline.json") == "ö"
    assert directory.is_empty()
    (tmp_path / "there" / "queries").mkdir()
    assert not directory.is_empty()


def problems(spark: SparkSession, path: Path) -> list[tuple[Place, str]]:
    return [(one.place, one.message) for one in validate(load_pipeline(path), spark, cluster=False)]


def test_spark_judges_the_queries_and_its_words_are_at_the_line(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    text = """
CREATE STREAM orders (id STRING, amount DOUBLE, at TIMESTAMP, WATERMARK FOR at DELAY OF 1 HOUR) WITH (topic = 'o');
CREATE TABLE a AS
    SELECT id,
           amout FROM orders;
CREATE TABLE b AS SELECT * FROM ordrs;
CREATE TABLE c AS SELECT id FROM orders WHERE amount >;
CREATE TABLE d AS SELECT id, count(*) AS n FROM orders GROUP BY id;
CREATE TABLE e AS SELECT id FROM orders ORDER BY id;
CREATE TABLE f AS SELECT upper(amount) + date(id) AS x FROM orders;
CREATE TABLE g AS SELECT 1 AS one;
CREATE TABLE h AS SELECT id, amount AS id FROM orders;
CREATE STREAM i WITH (key = 'ID2') AS SELECT id FROM orders;
CREATE STREAM j (id STRING, amount DOUBLE) WITH (topic = 'j');
INSERT INTO j SELECT id, amount AS many FROM orders;
CREATE TABLE k PARTITIONED BY (amount) AS SELECT id, amount FROM orders;
CREATE VIEW fine AS SELECT * FROM orders;
CREATE TABLE l AS SELECT id FROM fine;
CREATE TABLE amount AS SELECT id, amount FROM orders;
CREATE TABLE m AS SELECT amount FROM a;
"""
    found = problems(spark, write(tmp_path, text, cluster))
    lines = {place.line: message for place, message in found}
    assert found[0] == (Place(9, 12), "there is no column amout; did you mean amount?")
    assert found[1] == (Place(10, 33), "there is no stream, table or view ordrs; did you mean orders?")
    assert found[2][0].line == 11
    assert "Spark cannot read this query" in lines[11]
    assert "aggregations without watermark" in lines[12]
    assert "Sorting is not supported" in lines[13]
    assert lines[14]
    assert "reads no stream" in lines[15]
    assert "two columns id" in lines[16]
    assert "no column ID2" in lines[17]
    assert "j has no column amount, which is declared" in lines[19]
    assert "no type to partition by" in lines[20]
    assert sorted(lines) == [9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20]
    assert all("org.apache" not in message and "SQLSTATE" not in message for _, message in found)


def test_functions_of_a_python_file_are_judged_too(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.py"
    path.write_text(f"""\
from penstock.pipeline import define
p = define("shop", checkpoint="{tmp_path}/cp")
p.stream("orders", "id STRING, amount DOUBLE", topic="o")

@p.to_nothing()
def a(orders):
    return orders.select("amout")

@p.to_nothing()
def b(ordrs):
    return ordrs

@p.to_nothing()
def c(orders):
    return 5

@p.to_nothing()
def d(orders):
    return orders.where("amount > 5")
""")
    found = {place.line: message for place, message in problems(spark, path)}
    assert "a fails: " in found[7]
    assert "amout" in found[7]
    messages = list(found.values())
    assert "b wants ordrs, and nothing has that name; did you mean orders?" in messages[1]
    assert "c fails: c returned int, not a DataFrame" in messages[2]
    assert len(found) == 3


def test_topics_and_transactions_are_asked_for(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("orders", "big")
    pipeline = load_pipeline(write(tmp_path, SHOP, cluster, "exactly-once"))
    (missing,) = check_cluster(pipeline)
    assert f"there is no topic {cluster.name}.dead at {cluster.bootstrap}" in missing.message
    assert f"penstock topics create {cluster.name}.dead" in missing.fix

    def none(*_: object) -> None:
        raise ClientError("there is no coordinator of transactions")

    monkeypatch.setattr("penstock.pipeline.checking.Cluster.coordinator", none)
    found: list[Problem] = check_cluster(pipeline)
    messages = [one.message for one in found]
    assert any("big is to be written exactly once" in message for message in messages)
    assert any("dead letters of orders" in message for message in messages)
    assert "at-least-once" in found[1].fix


def test_every_query_of_a_file_that_is_fine_is_planned(spark: SparkSession) -> None:
    text = """
        SET lake = 'lake';
        CREATE STREAM orders (id STRING, amount DOUBLE) WITH (topic = 'o');
        CREATE TABLE amount AS SELECT id, amount FROM orders;
        CREATE TABLE b AS SELECT id, amount AS late FROM orders;
        CREATE VIEW late AS SELECT id FROM orders;
        CREATE STREAM revenue (id STRING, revenue DOUBLE) WITH (topic = 'r');
        INSERT INTO revenue WITH (name = 'big-orders') SELECT id, amount AS revenue FROM orders;
        """
    pipeline = parse_sql(text, name="shop")
    planned = plan(pipeline, own_session(spark, pipeline))
    assert check_plan(pipeline, planned) == []
    assert list(planned.sinks) == ["amount", "b", "big-orders"]


def test_state_is_kept_by_rocksdb_in_a_session_of_the_callers_too(spark: SparkSession) -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)
    text = "SET spark.sql.shuffle.partitions = 3; CREATE STREAM s (x INT)"
    session = own_session(spark, parse_sql(text, name="shop"))
    assert str(session.conf.get(provider)).endswith(".RocksDBStateStoreProvider")
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get(provider) == before, "the caller's session is as it was"


@pytest.mark.long
def test_a_query_that_fails_ends_the_run_and_says_why(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create("orders")
    cluster.send("orders", order(1, 1), b"not json")
    text = """
CREATE STREAM orders (id STRING) WITH (topic = '{name}.orders');
CREATE TABLE kept AS SELECT id FROM orders;
CREATE TABLE shown WITH (sink = 'noop') AS SELECT count(*) AS n FROM orders WHERE id = 'x';
"""
    path = write(tmp_path, text.replace("'noop'", "'noop', mode = 'update'"), cluster)
    with pytest.raises(PipelineError) as failed:
        run_pipeline(load_pipeline(path), spark=spark)
    [found] = failed.value.problems
    assert "does not parse as a row of orders; set dead_letters" in found.message
    assert found.line in (7, 8)
    saved = read_status(status_path(f"{tmp_path}/checkpoint") or Path())
    assert saved is not None
    assert saved.state == "failed"
    # Set right, it goes on, and nothing was half written.
    path.write_text(path.read_text().replace(".orders')", ".orders', unparsed = 'drop')"))
    run_pipeline(load_pipeline(path), spark=spark)
    assert [row.id for row in read_table(spark, f"{tmp_path}/lake/kept").collect()] == ["o1"]


@pytest.mark.long
@pytest.mark.parametrize("by", ["topic", "pattern"])
def test_latest_is_settled_at_first(spark: SparkSession, cluster: Cluster, tmp_path: Path, by: str) -> None:
    cluster.create("orders", "big", "dead")
    cluster.send("orders", order(95, 1), b"old and bad")
    text = SHOP.replace("dead_letters =", "starting = 'latest', dead_letters =")
    if by == "pattern":
        text = text.replace("topic = '{name}.orders'", "pattern = '^{name}[.]orders'")
    path = write(tmp_path, text, cluster)
    assert run_pipeline(load_pipeline(path), spark=spark).queries["big"].rows_read == 0
    if by == "pattern":  # what comes to match later is read from its beginning, also by a query that comes later still
        cluster.create("orders.more", partitions=1)
    cluster.send("orders.more" if by == "pattern" else "orders", order(96, 1))
    cluster.send("orders", b"new and bad")
    path.write_text(path.read_text() + "CREATE TABLE more AS SELECT id FROM orders;\n")
    status = run_pipeline(load_pipeline(path), spark=spark)
    assert {name: query.rows_read for name, query in status.queries.items()} == {
        "big": 2, "revenue": 2, "more": 2, "orders.dead_letters": 2,
    }  # fmt: skip
    assert [record.value for record in cluster.read("dead")] == [b"new and bad"]


@pytest.mark.long
def test_formats_joins_and_modes(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Avro in and out, a table to join with, update and complete modes, headers, keys of several columns."""
    pytest.importorskip("fastavro")
    cluster.create("lines", "avro", "json", "counts")
    (tmp_path / "products.csv").write_text("name,price\napple,1.5\npear,2.5\n")
    (tmp_path / "line.avsc").write_text(
        json.dumps({"type": "record", "name": "l", "fields": [
            {"name": "product", "type": "string"}, {"name": "price", "type": ["null", "double"]}]})
    )  # fmt: skip
    cluster.send("lines", b"apple", b"pear", b"apple", b"plum")
    text = """
SET delivery = 'at-least-once';
CREATE STREAM lines WITH (topic = '{name}.lines', format = 'text');
CREATE TABLE products (name STRING, price DOUBLE)
    WITH (path = '{directory}/products.csv', format = 'csv', option.header = 'true');
CREATE STREAM priced WITH (topic = '{name}.avro', format = 'avro', schema = 'line.avsc') AS
    SELECT lines.value AS product, price FROM lines LEFT JOIN products ON lines.value = products.name;
CREATE TABLE counts WITH (topic = '{name}.counts', key = 'product') AS
    SELECT value AS product, count(*) AS n FROM lines GROUP BY value;
CREATE TABLE totals WITH (mode = 'update', key = 'product') AS
    SELECT value AS product, count(*) AS n FROM lines GROUP BY value;
CREATE TABLE everything WITH (mode = 'complete') AS
    SELECT value AS product, count(*) AS n FROM lines GROUP BY value;
"""
    path = write(tmp_path, text, cluster)
    run_pipeline(load_pipeline(path), spark=spark)
    cluster.send("lines", b"pear")
    run_pipeline(load_pipeline(path), spark=spark)
    expected = {"apple": 2, "pear": 2, "plum": 1}
    for table in ("totals", "everything"):
        rows = read_table(spark, f"{tmp_path}/lake/{table}").collect()
        assert {row["product"]: row.n for row in rows} == expected
    changes = [(record.key, json.loads(record.value or b"")["n"]) for record in cluster.read("counts")]
    assert sorted(changes) == [(b"apple", 2), (b"pear", 1), (b"pear", 2), (b"plum", 1)]

    # What was written as Avro is read as Avro.
    back = write(tmp_path, """
CREATE STREAM priced WITH (topic = '{name}.avro', format = 'avro', schema = 'line.avsc');
CREATE TABLE prices AS SELECT product, price FROM priced;
""", cluster)  # fmt: skip
    run_pipeline(load_pipeline(back, overrides={"checkpoint": f"{tmp_path}/second"}), spark=spark)
    rows = read_table(spark, f"{tmp_path}/lake/prices").collect()
    assert sorted((row["product"], row.price or 0) for row in rows) == [
        ("apple", 1.5), ("apple", 1.5), ("pear", 2.5), ("pear", 2.5), ("plum", 0),
    ]  # fmt: skip


@pytest.mark.long
def test_a_run_stops_between_writes_when_asked(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create("orders", "big", "dead")
    cluster.send("orders", *(order(number, 1) for number in range(100)))
    path = write(tmp_path, SHOP.replace("SET delivery", "SET trigger = 'continuous';\nSET delivery"), cluster)
    stop = threading.Event()

    def watch(status: RunStatus) -> None:
        if all(query.rows_read >= 100 for query in status.queries.values()):
            stop.set()

    status = run_pipeline(load_pipeline(path), spark=spark, stop=stop, on_status=watch)
    assert status.state == "stopped"
    assert len(cluster.read("big")) == 10
    rest = run_pipeline(load_pipeline(path, overrides={"trigger": "once"}), spark=spark)
    assert rest.queries["big"].rows_read == 0
    assert len(cluster.read("big")) == 10


@pytest.mark.long
def test_a_run_that_is_interrupted_leaves_nothing_in_the_callers_session(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create("orders", "dead")
    cluster.send("orders", *(order(number, 1) for number in range(10)))
    text = SHOP[: SHOP.index("CREATE VIEW")] + "CREATE TABLE kept AS SELECT id FROM orders;"
    path = write(tmp_path, text.replace("SET delivery", "SET trigger = 'continuous';\nSET delivery"), cluster)

    def interrupt(status: RunStatus) -> None:
        if status.state == "running" and status.queries["kept"].rows_read >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_pipeline(load_pipeline(path), spark=spark, on_status=interrupt)
    assert list(spark._jsparkSession.sharedState().activeStreamingQueries().values()) == []
    rest = run_pipeline(load_pipeline(path, overrides={"trigger": "once"}), spark=spark)
    assert rest.queries["kept"].rows_read == 0
    assert read_table(spark, f"{tmp_path}/lake/kept").count() == 10


@pytest.mark.long
def test_the_command_runs_tells_and_stops(cluster: Cluster, tmp_path: Path) -> None:
    """`penstock pipeline run` as a user starts it: metrics, status from another process, SIGTERM, and again."""
    require_spark()
    cluster.create("orders", "big", "dead")
    cluster.send("orders", *(order(number, 1) for number in range(100)), b"bad")
    path = write(tmp_path, SHOP.replace("SET delivery", "SET trigger = 'every 1 second';\nSET delivery"), cluster)
    command = [sys.executable, "-m", "penstock", "pipeline"]
    run = [*die_with_parent(), *command, "run", str(path), "--master", "local[2]", "--metrics", "127.0.0.1:0"]
    environment = {**os.environ, "COLUMNS": "200"}

    def status() -> dict[str, object]:
        asking = [*command, "status", str(path), "--json"]
        found = subprocess.run(asking, capture_output=True, env=environment, check=False)
        document: dict[str, object] = json.loads(found.stdout or b"{}")
        return document

    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(run, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            deadline_s = time.monotonic() + 240
            while not all(one["rows_read"] >= 101 for one in status().get("queries", [{"rows_read": 0}])):  # type: ignore[attr-defined]
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline_s, status()
                time.sleep(0.5)
            with urllib.request.urlopen(f"http://{status()['metrics']}/metrics", timeout=5) as answer:
                page = answer.read().decode()
            assert 'penstock_pipeline_rows_read_total{pipeline="shop",query="big"} 101' in page
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()
    messages = (tmp_path / "log").read_text()
    assert "shop stopped" in messages
    assert "goes on where it stopped" in messages
    assert status()["state"] == "stopped"
    assert len(cluster.read("big")) == 10
    once = subprocess.run([*run, "--set", "trigger=once"], capture_output=True, text=True, env=environment, check=False)
    assert once.returncode == 0, once.stderr
    assert "shop finished: 0 records read" in once.stderr
    assert len(cluster.read("big")) == 10


@pytest.mark.long
@pytest.mark.needs_maven
def test_dead_letters_and_rows_are_there_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    """On Apache Kafka, with transactions: a batch that Spark runs again is not written again."""
    if reason := available():
        pytest.skip(reason)
    with ApacheKafka(heap="512M") as kafka:
        cluster = Cluster(kafka, "once")
        cluster.create("orders", "big", "dead")
        cluster.send("orders", *(order(number, 1) for number in range(100)), b"bad", b"worse")
        path = write(tmp_path, SHOP, cluster, "exactly-once")
        assert validate(load_pipeline(path), spark) == []
        run_pipeline(load_pipeline(path), spark=spark)
        # As a crash between the transaction and Spark's own note leaves it: the last batch counts as not done.
        for query in ("big", "orders.dead_letters"):
            commits = tmp_path / "checkpoint" / "queries" / query / "commits"
            last = max(commits.glob("[0-9]*"), key=lambda one: int(one.name))
            last.unlink()
            commits.joinpath(f".{last.name}.crc").unlink(missing_ok=True)
        cluster.send("orders", order(500, 2), b"worst")
        run_pipeline(load_pipeline(path), spark=spark)
        assert sorted(record.key or b"" for record in cluster.read("big")) == sorted(
            f"o{number}".encode() for number in (*range(90, 100), 500)
        )
        assert sorted(record.value or b"" for record in cluster.read("dead")) == [b"bad", b"worse", b"worst"]
