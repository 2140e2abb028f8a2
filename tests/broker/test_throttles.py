"""Limits on copying moved partitions: they delay the move but never producers, and end when they are removed."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster_load import ClusterClient, Ledger, log_of
from broker.clusters import a_cluster, ask
from broker.reassigning import SETTINGS, alter_config, is_at, move, place, state_now
from penstock.broker.replicas.throttles import ALL, throttled_partitions
from penstock.metadata import ResourceType
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

QUICK = {**SETTINGS, "min.insync.replicas": "1", "replica.fetch.max.bytes": "20000", "replica.fetch.min.bytes": "1"}
DATA_BYTES = 600_000
RATE = 50_000


async def fill(client: ClusterClient) -> None:
    for _ in range(DATA_BYTES // 10_000):
        result = await client.produce(bytes(10_000))
        assert result is not None
        assert result.error_code == 0


def seconds_to_move(cluster: SimCluster, target: tuple[int, ...]) -> float:
    async def main(runtime: SimRuntime) -> float:
        client = ClusterClient(runtime, cluster)
        await fill(client)
        began_ms = runtime.now_ms()
        assert await move(client, target) == 0
        await client.until(lambda: is_at(cluster, target))
        return (runtime.now_ms() - began_ms) / 1000

    return float(cluster.world.execute(main))


def throttle(cluster: SimCluster, side: str, rate: int | None, replicas: str | None, *brokers: int) -> None:
    for broker in brokers:
        settings: dict[str, Any] = {f"{side}_replication_throttled_rate": None if rate is None else str(rate)}
        alter_config(cluster, ResourceType.BROKER, str(broker), **settings)
    of_topic: dict[str, Any] = {f"{side}_replication_throttled_replicas": replicas}
    alter_config(cluster, ResourceType.TOPIC, "t", **of_topic)


def test_without_a_limit_a_move_takes_no_time() -> None:
    with a_cluster(3, QUICK, seed="free") as cluster:
        place(cluster, (1,))
        assert seconds_to_move(cluster, (1, 2)) < 2


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("replicas", ["*", "pairs"])
def test_a_throttled_move_takes_as_long_as_its_rate_says(side: str, replicas: str) -> None:
    with a_cluster(3, QUICK, seed=f"{side}-{replicas}") as cluster:
        place(cluster, (1,))
        holder = 1 if side == "leader" else 2
        throttle(cluster, side, RATE, "*" if replicas == "*" else f"7:3,0:{holder}", holder)
        took = seconds_to_move(cluster, (1, 2))
        assert 0.8 * DATA_BYTES / RATE < took < 1.3 * DATA_BYTES / RATE
        samples = {s.name: s.value for s in cluster.node(holder).served.metrics.samples()}
        assert 0 < samples[f"kafka_server_{side}replication_byte_rate"] <= RATE * 1.1
        direction = "out" if side == "leader" else "in"
        assert samples[f"kafka_server_brokertopicmetrics_reassignmentbytes{direction}_total"] >= DATA_BYTES


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replicas_that_are_not_on_the_list_are_not_held_up(side: str) -> None:
    with a_cluster(3, QUICK, seed=f"other-{side}") as cluster:
        place(cluster, (1,))
        other = 2 if side == "leader" else 1
        throttle(cluster, side, RATE, f"0:{other},1:1,1:2", 1, 2)
        assert seconds_to_move(cluster, (1, 2)) < 2


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_in_sync_replicas_are_never_held_up(side: str) -> None:
    with a_cluster(3, {**SETTINGS, "replica.fetch.max.bytes": "20000"}, seed=f"sync-{side}") as cluster:
        place(cluster, (1, 2, 3))
        throttle(cluster, side, 1, "*", 1, 2, 3)
        ledger = Ledger()

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            task = runtime.spawn(ledger.produce(client, 7, 20), "producer")
            await runtime.sleep(12_000)
            ledger.over = True
            await task

        cluster.world.execute(main)
        assert ledger.retries <= 1
        assert ledger.longest_gap_ms < 500
        assert state_now(cluster).isr == (1, 2, 3)


def test_a_limit_that_is_taken_away_lets_the_move_go_on_at_once() -> None:
    for side, holder in (("leader", 1), ("follower", 2)):
        with a_cluster(3, QUICK, seed=f"lifted-{side}") as cluster:
            place(cluster, (1,))
            throttle(cluster, side, 1, "*", holder)

            async def begin(runtime: SimRuntime, cluster: SimCluster = cluster) -> None:
                client = ClusterClient(runtime, cluster)
                await fill(client)
                assert await move(client, (1, 2)) == 0
                await runtime.sleep(30_000)
                assert state_now(cluster).isr == (1,)
                assert log_of(cluster.node(2)).end_offset < 20

            cluster.world.execute(begin)
            began_ms = cluster.world.now_ms
            throttle(cluster, side, None, None, holder)
            cluster.await_(lambda cluster=cluster: is_at(cluster, (1, 2)))
            assert cluster.world.now_ms - began_ms < 3_000


def test_a_broker_that_starts_again_keeps_its_limits() -> None:
    with a_cluster(3, QUICK, seed="restarted") as cluster:
        place(cluster, (1,))
        throttle(cluster, "leader", RATE, "*", 1)
        cluster.node(1).restart()
        cluster.await_ready()
        assert seconds_to_move(cluster, (1, 2)) > 0.8 * DATA_BYTES / RATE


@pytest.mark.parametrize("value", ["1", "1:", ":1", "a:b", "*,0:1", "0:1,*", "0:-1", "0:1,,1:1", "0:1:2"])
def test_a_list_that_means_nothing_is_refused(value: str) -> None:
    with a_cluster(1, {"min.insync.replicas": "1"}, seed="lists") as cluster:
        place(cluster, (1,))
        entry = AlterableConfig(name="leader.replication.throttled.replicas", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="t", configs=[entry])
        (result,) = ask(cluster, 1, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert result.error_code == 40
        assert "[partitionId]:[brokerId]" in result.error_message


def test_the_list_is_read_for_one_broker() -> None:
    assert throttled_partitions(("*",), 1) is ALL
    assert throttled_partitions(("0:1", "3:2", "5:1"), 1) == {0: None, 5: None}
    assert throttled_partitions((), 1) == throttled_partitions(("0:11",), 1) == {}
