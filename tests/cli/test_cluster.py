"""`penstock cluster describe` against a cluster."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from cli.running import Run
from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from support.apache_kafka import available, kafka_tool


def described(on: Run) -> dict[str, Any]:
    result = on("cluster", "describe", "--json")
    assert result.code == exit_codes.OK, result.messages
    one = json.loads(result.output)
    assert isinstance(one, dict)
    return one


def test_brokers_and_what_they_lead(on: Run, bootstrap: str, topic: str) -> None:
    before = described(on)
    on("topics", "create", topic, "--partitions", 3)
    after = described(on)
    (broker,) = after["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert broker["leaders"] == broker["replicas"] == after["partitions"]
    assert after["controller"] == broker["id"]
    assert [after[key] - before[key] for key in ("topics", "partitions")] == [1, 3]  # type: ignore[operator]
    assert (after["offline"], after["under_replicated"]) == ([], [])
    features = after["features"]
    assert isinstance(features, dict)
    assert features["metadata.version"] > 0


def test_the_table_and_the_check(on: Run, bootstrap: str) -> None:
    result = on("cluster", "describe", "--check")
    assert result.code == exit_codes.OK
    one = described(on)
    assert result.lines[0] == f"cluster {one['cluster']}  1 broker  controller {one['controller']}"
    assert "broker\thost\tport\track\tleaders\treplicas" in result.lines
    assert "All partitions have a leader" in result.messages


@pytest.mark.compat
@pytest.mark.needs_maven
def test_the_cluster_id_is_what_kafkas_own_tool_says(on: Run, bootstrap: str) -> None:
    if reason := available():
        pytest.skip(reason)
    told = kafka_tool("ClusterTool", "cluster-id", "--bootstrap-server", bootstrap)
    assert told.stdout.strip() == f"Cluster ID: {described(on)['cluster']}"


def test_partitions_that_are_not_well_are_named_and_fail_the_check(on: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def partition(leader: int, isr: list[int]) -> SimpleNamespace:
        return SimpleNamespace(leader=leader, replicas=[1, 2], isrs=isr)

    topics = {
        "orders": SimpleNamespace(partitions={0: partition(1, [1, 2]), 1: partition(1, [1]), 2: partition(-1, [2])})
    }
    monkeypatch.setattr(Cluster, "topics", lambda _: topics)
    result = on("cluster", "describe", "--check")
    assert result.code == exit_codes.UNHEALTHY
    assert "1 partition offline, without a leader: orders-2" in result.lines
    assert "2 partitions under-replicated: orders-1, orders-2" in result.lines
    assert "1 partition offline, 2 under-replicated" in result.messages
