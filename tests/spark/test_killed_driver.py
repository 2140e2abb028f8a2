"""A driver that is killed, with SIGKILL, before its first micro-batch is committed, while records come in."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.penstock import PenstockServer
from support.spark import require_spark

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RUN_TIMEOUT_S = 180

JOB = """
import json, os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession

bootstrap, checkpoint, output, mode = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

def take(batch, batch_id):
    rows = [[row.partition, row.offset] for row in batch.select("partition", "offset").collect()]
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    Path(output, f"{batch_id}.json").write_text(json.dumps(rows))

stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "load")
query = stream.load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
query = query.start() if mode == "kill" else query.trigger(availableNow=True).start()
query.awaitTermination()
"""


class Load:
    """Records that keep coming, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(30)
        assert self._producer.flush(30) == 0

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(0.002):
            for _ in range(4):
                self._producer.produce("load", b"%d" % number, partition=number % 2)
                number += 1
            self._producer.poll(0)


@pytest.fixture
def bootstrap() -> Iterator[str]:
    require_spark()
    with PenstockServer() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("load", 2, 1)])["load"].result(timeout=20)
        yield server.bootstrap


def run(bootstrap: str, directory: Path, mode: str) -> int:
    job = directory / "job.py"
    job.write_text(JOB)
    (directory / "output").mkdir(exist_ok=True)
    arguments = [bootstrap, str(directory / "checkpoint"), str(directory / "output"), mode]
    return subprocess.run([sys.executable, str(job), *arguments], timeout=RUN_TIMEOUT_S, check=False).returncode


def test_started_at_the_latest_under_load_and_killed_before_the_first_commit_nothing_is_lost(
    bootstrap: str, tmp_path: Path
) -> None:
    load = Load(bootstrap)
    try:
        for _ in range(2):
            assert run(bootstrap, tmp_path, "kill") == -signal.SIGKILL
            assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
    finally:
        load.stop()
    planned = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])
    begins = {int(number): start for number, start in planned["$penstock"]["begins"]["load"].items()}

    assert run(bootstrap, tmp_path, "finish") == 0

    rows = [tuple(row) for path in (tmp_path / "output").iterdir() for row in json.loads(path.read_text())]
    assert len(rows) == len(set(rows)), "each once"
    for partition, begin in begins.items():
        found = sorted(offset for number, offset in rows if number == partition)
        assert found == list(range(begin, found[-1] + 1)), "from where the first run began, without a gap"
        assert len(found) > 100
