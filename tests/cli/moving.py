"""What the tests of growing, shrinking and moving ask of a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cli.running import Result, Run
from penstock.cli import exit_codes
from support.waiting import wait_until


def good(result: Result) -> Any:
    assert result.code == exit_codes.OK, result.messages
    return json.loads(result.output)


def make_topic(
    admin: AdminClient, topic: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
) -> None:
    """A topic with chosen replicas; returns when it is known."""
    wanted = [list(brokers) for brokers in assignment]
    new = NewTopic(topic, len(wanted), replica_assignment=wanted, config=dict(config or {}))
    admin.create_topics([new])[topic].result(30)
    wait_until(lambda: len(replicas(admin, topic)) == len(wanted))


def replicas(admin: AdminClient, topic: str) -> dict[int, list[int]]:
    found = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return {number: list(one.replicas) for number, one in found.items()}


def in_sync(admin: AdminClient, topic: str) -> dict[int, list[int]]:
    found = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return {number: sorted(one.isrs) for number, one in found.items()}


def fill(bootstrap: str, topic: str, partitions: int, bytes_each: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    for number in range(partitions):
        for _ in range(bytes_each // 10_000):
            producer.produce(topic, os.urandom(10_000), partition=number)
        producer.poll(0)
    assert producer.flush(60) == 0


def settings(on: Run, topic: str) -> str:
    return on("configs", "describe", "--topic", topic).output


def begun(bootstrap: str, *arguments: object) -> subprocess.Popen[str]:
    """A command in a process of its own, for what is to happen while it runs."""
    command = [sys.executable, "-m", "penstock", *map(str, arguments), "-b", bootstrap]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def moving(on: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = good(on("reassign", "status", "--json"))["moving"]
    return found
