"""A group of member processes, and the load that they work on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import KafkaError, Message, Producer

from clients.groups.ledger import Ledger, Place
from support import java, npm
from support.server_process import die_with_parent

WORKERS = Path(__file__).with_name("workers")
KAFKAJS_VERSION = "2.2.4"
LEAVE_TIMEOUT_S = 60
RECORDS_PER_SECOND = 300
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 300


@dataclass(frozen=True)
class Kind:
    """A client library and how its members share partitions."""

    client: str
    assignor: str
    protocol: str = "classic"

    def __str__(self) -> str:
        return f"{self.client}-{self.protocol if self.protocol != 'classic' else self.assignor}"

    def unavailable(self) -> str | None:
        """The reason why its members cannot be run on this machine, if there is one."""
        if self.client == "kafkajs":
            return npm.package_missing("kafkajs", KAFKAJS_VERSION)
        if self.client == "java":
            return java.unavailable()
        return None

    def command(self) -> list[str]:
        match self.client:
            case "kafkajs":
                return ["node", str(WORKERS / "kafkajs.js")]
            case "java":
                return java.command(WORKERS / "JavaMember.java", heap="96M")
            case _:
                return [sys.executable, str(WORKERS / f"with_{self.client}.py")]


class Group:
    """Members that come and go; whoever is left at the end is killed."""

    def __init__(self, bootstrap: str, topic: str, directory: Path, *, name: str) -> None:
        self.name = name
        self.ledger = Ledger(directory / f"{name}.ledger")
        self._bootstrap = bootstrap
        self._topic = topic
        self._directory = directory
        self._members: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._members.values():
            process.kill()
        for process in self._members.values():
            process.wait(LEAVE_TIMEOUT_S)
        if error is not None:
            for path in sorted(self._directory.glob(f"{self.name}.*.log")):
                with suppress(OSError):
                    error.add_note(f"--- {path.name}\n{path.read_text(errors='replace')[-1000:]}")

    def start(self, member: str, kind: Kind, **settings: object) -> None:
        assert member not in self._members, f"{member} runs already"
        if reason := kind.unavailable():
            pytest.skip(reason)
        wanted = {
            "bootstrap": self._bootstrap,
            "group": self.name,
            "topic": self._topic,
            "protocol": kind.protocol,
            "assignor": kind.assignor,
            "member": member,
            "ledger": str(self.ledger.path),
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
            **settings,
        }
        environment = {
            **os.environ,
            "NODE_PATH": str(npm.CACHE / "node_modules"),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        }
        with (self._directory / f"{self.name}.{member}.log").open("ab") as log:
            self._members[member] = subprocess.Popen(
                [*die_with_parent(), *kind.command(), json.dumps(wanted)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def stop(self, *members: str) -> None:
        """They commit, leave the group and end."""
        for member in members:
            self._members[member].send_signal(signal.SIGTERM)
        for member in members:
            code = self._members.pop(member).wait(LEAVE_TIMEOUT_S)
            assert code == 0, f"{member} ended with {code}"
            self.ledger.write(member, "left")

    def kill(self, member: str) -> None:
        """It ends without a word; the group finds out when its session is over."""
        process = self._members.pop(member)
        process.kill()
        process.wait(LEAVE_TIMEOUT_S)
        self.ledger.write(member, "killed")

    def stop_all(self) -> None:
        self.stop(*self._members)


class Load:
    """A producer that writes numbered records to every partition in turn, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, per_second: int = RECORDS_PER_SECOND) -> None:
        self.acknowledged: dict[Place, str] = {}
        self.failed: list[KafkaError] = []
        self._topic = topic
        self._partitions = partitions
        self._per_second = per_second
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        if error is not None:
            self._producer.purge()

    def stop(self) -> Mapping[Place, str]:
        """Ends the load; returns all that was acknowledged, which must be all that was sent."""
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failed, self.failed
        return self.acknowledged

    def ends(self) -> dict[int, int]:
        """One past the last acknowledged offset of every partition."""
        ends: dict[int, int] = defaultdict(int)
        for partition, offset in self.acknowledged:
            ends[partition] = max(ends[partition], offset + 1)
        return ends

    def _run(self) -> None:
        number = 0
        while not self._ending.wait(1 / self._per_second):
            partition = number % self._partitions
            self._producer.produce(
                self._topic, f"record {number}", key=str(number), partition=partition, on_delivery=self._delivered
            )
            number += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            partition, offset = message.partition() or 0, message.offset() or 0
            self.acknowledged[partition, offset] = message.value().decode()
