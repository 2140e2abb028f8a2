"""Beyond one machine: a real Spark cluster of a master and two workers, on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from confluent_kafka import Producer

from support.fresh_venv import build_wheel, make_venv, plain_environment
from support.penstock import PenstockServer
from support.records import create_topic, read_topic
from support.server_process import die_with_parent
from support.spark import require_spark
from support.spark_cluster import StandaloneCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PARTITIONS = 2
RECORDS = 20_000
PER_TRIGGER = 1_000
KILL_AFTER_BATCH = 3
POLL_S = 0.1

SESSION = """
import sys
from penstock.spark import build_session
master, bootstrap, source, target, directory = sys.argv[1:]
options = {"kafka.bootstrap.servers": bootstrap}
spark = build_session(
    "on-a-cluster",
    master=master,
    config={"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.executor.memory": "600m"},
)
"""

READ_AND_WRITE = """
read = spark.read.format("penstock").options(**options, subscribe=source).load()
print("count", read.count(), flush=True)
print("hosts", spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1, flush=True)
rows = read.select("key", "value")
rows.repartition(4).write.format("penstock").options(**options, topic=target).mode("append").save()
stream = spark.readStream.format("penstock").options(**options, subscribe=source, startingOffsets="earliest").load()
query = (
    stream.writeStream.format("penstock").options(**options, topic=target)
    .option("checkpointLocation", directory + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
spark.stop()
"""

PIPELINE = """
SET checkpoint = '{directory}/checkpoint';
SET trigger = 'once';
SET records_per_trigger = {per_trigger};
SET spark.driver.host = '127.0.0.1';
SET spark.executor.memory = '600m';
SET spark.ui.enabled = 'false';

CREATE STREAM numbers WITH (topic = '{source}', format = 'bytes');

CREATE TABLE kept WITH (path = '{directory}/table') AS
    SELECT CAST(value AS STRING) AS value, `partition`, `offset` FROM numbers;
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    require_spark()
    with StandaloneCluster(workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with PenstockServer() as server:
        yield server.bootstrap


@pytest.fixture
def source(broker: str) -> str:
    """A topic with numbers in it."""
    topic = create_topic(broker, f"in-{uuid.uuid4().hex[:8]}", PARTITIONS)
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 20})
    for number in range(RECORDS):
        producer.produce(topic, str(number), key=str(number % 100), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return topic


@pytest.fixture
def target(broker: str) -> str:
    return create_topic(broker, f"out-{uuid.uuid4().hex[:8]}", PARTITIONS)


def test_a_cluster_reads_writes_and_streams(
    cluster: StandaloneCluster, broker: str, source: str, target: str, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text(SESSION + READ_AND_WRITE)
    done = subprocess.run(
        [sys.executable, job, cluster.master, broker, source, target, tmp_path],
        env=plain_environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + cluster.logs()
    assert f"count {RECORDS}" in done.stdout
    assert "hosts 2" in done.stdout
    written = Counter(int(record.value or b"-1") for record in read_topic(broker, target))
    assert written == Counter(dict.fromkeys(range(RECORDS), 2))


def test_a_pipeline_loses_and_repeats_nothing_while_an_executor_is_killed(
    cluster: StandaloneCluster, broker: str, source: str, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    table = tmp_path / "table"
    file = tmp_path / "numbers.sql"
    file.write_text(PIPELINE.format(directory=tmp_path, per_trigger=PER_TRIGGER, source=source))
    command = [sys.executable, "-m", "penstock", "pipeline", "run", str(file), "-b", broker, "--master", cluster.master]
    with (tmp_path / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [*die_with_parent(), *command],
            env=plain_environment(tmp_path), cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        while commits_of(table) < KILL_AFTER_BATCH and process.poll() is None:
            time.sleep(POLL_S)
        assert process.poll() is None, (tmp_path / "output.log").read_text() + cluster.logs()
        cluster.kill_executor()
        commits_then = commits_of(table)
        code = process.wait(400)
    finally:
        process.kill()
        process.wait()
    assert code == 0, (tmp_path / "output.log").read_text() + cluster.logs()
    assert commits_of(table) > commits_then, "no batch was written after the executor was killed"
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table()
    assert Counter(int(value) for value in rows["value"].to_pylist()) == Counter(range(RECORDS))


def commits_of(table: Path) -> int:
    return len(list((table / "_delta_log").glob("*.json")))


def test_nodes_without_penstock_get_it_by_py_files_and_the_driver_by_its_path(
    cluster: StandaloneCluster, broker: str, source: str, target: str, tmp_path: Path
) -> None:
    """`--py-files` alone reaches the tasks, but not the process on the driver that plans a read: PYTHONPATH does."""
    # Spark puts .zip, .egg and .jar files on the workers' path, and no .whl: which is a zip file as well.
    package = build_wheel(tmp_path / "wheel").rename(tmp_path / "penstock.zip")
    bare = make_venv(tmp_path / "bare")
    job = tmp_path / "job.py"
    job.write_text(SESSION + READ_AND_WRITE)
    environment = {
        **plain_environment(tmp_path),
        "PYTHONPATH": str(package),
        "PYSPARK_PYTHON": str(bare.python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
    }
    submit = [str(cluster.home / "bin" / "spark-submit"), "--master", cluster.master, "--py-files", str(package)]
    done = subprocess.run(
        [*submit, str(job), cluster.master, broker, source, target, str(tmp_path)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:] + cluster.logs()
    assert f"count {RECORDS}" in done.stdout
    assert len(read_topic(broker, target)) == 2 * RECORDS
