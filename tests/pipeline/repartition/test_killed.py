"""Repartitioning with the command, under load, while its driver and a broker are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.pipeline.repartition.ledger import read_plan
from penstock.pipeline.repartition.plan import Phase, RepartitionPlan
from pipeline.repartition.load import Load, account, consume, read_topic
from support import apache_kafka
from support.apache_kafka_cluster import ApacheKafkaCluster
from support.cluster import PenstockCluster
from support.records import create_topic
from support.spark import require_spark
from support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

LEASE = "30s"


class Brokers(NamedTuple):
    bootstrap: str
    kill: Callable[[], None]
    """Kills one broker that is not the controller, and starts it again."""


@pytest.fixture(params=["penstock", pytest.param("apache-kafka", marks=pytest.mark.needs_maven)])
def brokers(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    require_spark()
    with ExitStack() as stack:
        if request.param == "penstock":
            cluster = stack.enter_context(PenstockCluster(3, restart=True))
            yield Brokers(cluster.bootstrap, lambda: cluster.kill(3))
            return
        if reason := apache_kafka.available():
            pytest.skip(reason)
        kafka = stack.enter_context(ApacheKafkaCluster(3, properties={"default.replication.factor": "3"}))

        def kill() -> None:
            kafka.nodes[3].kill()
            kafka.nodes[3].start(wait=False)

        yield Brokers(kafka.bootstrap, kill)


class Driver:
    """`penstock topics repartition` in a process group of its own."""

    def __init__(self, bootstrap: str, topic: str, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "penstock", "topics", "repartition", topic, "-b", bootstrap]
        command += ["--master", "local[2]", "--json", "--lease", LEASE, *options]
        self.output = log.with_suffix(".json")
        with log.open("ab") as errors, self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True)
        self.log = log

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self) -> dict[str, object]:
        assert self.process.wait(600) == 0, self.log.read_text()[-3000:]
        return json.loads(self.output.read_text())


def test_none_is_lost_and_keys_stay_in_order_though_driver_and_broker_are_killed(
    brokers: Brokers, tmp_path: Path
) -> None:
    topic = f"t{uuid.uuid4().hex[:10]}"
    create_topic(brokers.bootstrap, topic, 3, replication_factor=3, config={"min.insync.replicas": "2"})
    load = Load(brokers.bootstrap, topic, keys=50).start()
    wait_until(lambda: load.total >= 5_000, 120)
    read_before = consume(brokers.bootstrap, topic, f"{topic}-group", 1_500)

    def plan() -> RepartitionPlan | None:
        return read_plan({"bootstrap.servers": brokers.bootstrap}, topic)

    def until(driver: Driver, condition: Callable[[RepartitionPlan], bool]) -> RepartitionPlan:
        found: list[RepartitionPlan] = []

        def so() -> bool:
            assert driver.process.poll() is None, driver.log.read_text()[-3000:]
            now = plan()
            found[:] = [now] if now is not None else []
            return now is not None and condition(now)

        wait_until(so, 240)
        return found[0]

    # The driver dies in the middle of a chunk; its tasks may still be writing.
    first = Driver(brokers.bootstrap, topic, tmp_path / "driver.log", "--partitions", "7", "--follow")
    until(first, lambda plan: plan.chunk is not None and plan.chunk.leased_until_ms > 0)
    first.kill()

    # A broker dies while the next one follows.
    second = Driver(brokers.bootstrap, topic, tmp_path / "driver.log", "--follow")
    copied = until(second, lambda plan: plan.written > 5_000).written
    brokers.kill()
    until(second, lambda plan: plan.written > copied + 2_000)
    second.kill()

    # The last one switches, and is told by the ledger alone where the others ended.
    last = Driver(brokers.bootstrap, topic, tmp_path / "driver.log", "--yes", "--on-switch", "true")
    switched = threading.Thread(
        target=lambda: load.switch_to(until(last, lambda plan: plan.phase.has_switched).target), daemon=True
    )
    switched.start()
    report = last.finish()
    done = plan()
    assert done is not None
    assert done.phase is Phase.DONE
    load.switch_to(done.target)
    after = load.total
    wait_until(lambda: load.total >= after + 1_000, 120)
    sent = load.stop()

    account(read_topic(brokers.bootstrap, done.target), sent)
    assert len(read_topic(brokers.bootstrap, topic)) == done.written == report["records_copied"]
    moved = done.groups[f"{topic}-group"]
    rest = read_topic(brokers.bootstrap, done.target, dict(enumerate(moved.target)))
    before, after_move = ({(one.key, one.number) for one in records} for records in (read_before, rest))
    assert before | after_move == {(key, number) for key, count in sent.items() for number in range(count)}
    assert len(before & after_move) == moved.read_again
