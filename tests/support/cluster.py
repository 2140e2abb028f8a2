"""A cluster of Penstock brokers in processes of their own, as `penstock up --brokers N` starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from penstock.client import ClientError, ClientSettings, Cluster
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from support.ports import port_with_room
from support.server_process import ServerFailed, die_with_parent

READY_TIMEOUT_S = 90
STOP_TIMEOUT_S = 90


class PenstockCluster:
    """Nodes 1 to N. Killed ones are started again by the supervisor, if `restart` is given."""

    def __init__(self, brokers: int = 3, *, restart: bool = True, arguments: Sequence[str] = ()) -> None:
        """`arguments`: more of `penstock up`."""
        self.brokers = brokers
        self._arguments = arguments
        self._restart = restart
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-cluster-")
        self.data = Path(self._directory.name) / "data"
        self.log_path = Path(self._directory.name) / "cluster.log"
        self.port = port_with_room()
        self.bootstrap = ",".join(f"127.0.0.1:{self.port + number}" for number in range(brokers))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        command = [sys.executable, "-m", "penstock", "up", "--brokers", str(self.brokers), "--port", str(self.port)]
        command += ["--data", str(self.data), *(["--restart"] if self._restart else []), *self._arguments]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen([*die_with_parent(), *command], stdout=log, stderr=subprocess.STDOUT)
        self.wait(lambda: f"{self.brokers} brokers are ready" in self.log(), "be ready", READY_TIMEOUT_S)

    def stop(self) -> int:
        """Asks the supervisor to stop all; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self.stop()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()

    # ---- nodes

    def pid(self, node: int) -> int:
        return int((self.data / f"node-{node}" / "penstock.pid").read_text())

    def signal(self, node: int, number: signal.Signals) -> None:
        os.kill(self.pid(node), number)

    def kill(self, node: int) -> None:
        self.signal(node, signal.SIGKILL)

    # ---- what it says

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})

    def leaders(self, topic: str) -> dict[int, int]:
        found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return {number: partition.leader for number, partition in found.items()}

    def in_sync(self, topic: str) -> dict[int, list[int]]:
        found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return {number: sorted(partition.isrs) for number, partition in found.items()}

    def controller(self) -> int:
        """The node that leads the quorum."""
        topic = DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])
        settings = ClientSettings.from_properties({"bootstrap.servers": self.bootstrap})
        deadline_s = time.monotonic() + 30
        while True:
            with suppress(ClientError), Cluster(settings) as cluster:
                answer = cluster.any_broker().call(DescribeQuorumRequest([topic]), DescribeQuorumResponse)
                leader_id = answer.topics[0].partitions[0].leader_id if answer.topics else -1
                if leader_id > 0:
                    return leader_id
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"no controller: {self.log()[-3000:]}")
            time.sleep(0.1)

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if self._process is not None and self._process.poll() is not None:
                raise ServerFailed(f"the cluster has ended:\n{self.log()[-3000:]}")
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"it did not {what} within {timeout_s:.0f} s:\n{self.log()[-3000:]}")
            time.sleep(0.1)
