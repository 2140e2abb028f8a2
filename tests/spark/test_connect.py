"""Spark Connect: a server in one process, a client without a JVM in another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("grpc", reason="a client of Spark Connect needs: pip install 'pyspark[connect]'")

import pyspark

from penstock.cli.diagnosis import accepts_connections
from penstock.spark.java import find_java
from support.fresh_venv import plain_environment
from support.penstock import PenstockServer
from support.records import create_topic, read_topic
from support.server_process import die_with_parent, free_ports
from support.spark import require_spark

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

READY_TIMEOUT_S = 180
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

JOB = """
import sys
from penstock.spark import build_session
master, bootstrap, topic, copy, checkpoint = sys.argv[1:]
spark = build_session("through-connect", master=master)
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
options = {"kafka.bootstrap.servers": bootstrap}
numbers = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
numbers.write.format("penstock").options(**options, topic=topic).mode("append").save()
read = spark.read.format("penstock").options(**options, subscribe=topic).load()
print("sum", read.selectExpr("sum(CAST(CAST(value AS STRING) AS INT))").first()[0])
stream = spark.readStream.format("penstock").options(**options, subscribe=topic, startingOffsets="earliest").load()
query = (
    stream.writeStream.format("penstock").options(**options, topic=copy, checkpointLocation=checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
spark.stop()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server whose Python has Penstock."""
    require_spark()
    home, [port] = Path(pyspark.__file__).parent, free_ports(1)
    environment = {
        **plain_environment(tmp_path),
        "JAVA_HOME": str(find_java().spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONNECT_MODE": "0",
    }
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--class", CONNECT_SERVER]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*die_with_parent(), *command, "spark-internal"],
            env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not accepts_connections([f"127.0.0.1:{port}"]):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_a_client_without_java_reads_writes_and_streams(server: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    # The tests' own PYTHONPATH, because grpc may have come by it; a PATH without Java, because none is needed.
    environment = {**plain_environment(tmp_path), "PATH": "", "JAVA_HOME": ""}
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    with PenstockServer() as broker:
        topic, copy = (create_topic(broker.bootstrap, f"t-{uuid.uuid4().hex[:8]}") for _ in range(2))
        done = subprocess.run(
            [sys.executable, "job.py", server, broker.bootstrap, topic, copy, str(tmp_path / "checkpoint")],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + (tmp_path / "server.log").read_text()[-4000:]
        assert "sum 4950" in done.stdout
        assert sorted(int(record.value or b"") for record in read_topic(broker.bootstrap, copy)) == list(range(100))
