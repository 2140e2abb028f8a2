"""Transactions in a cluster whose leaders die: markers that were acknowledged stay, on every replica."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.cluster_load import ClusterClient
from broker.clusters import a_cluster, run
from broker.reassigning import place
from broker.transactional_cluster import SETTINGS, TransactionalProducer, read_committed
from penstock.sim import SimRuntime
from penstock.sim.cluster import SimCluster
from support.sampling import some

Scenario = Callable[[SimRuntime, SimCluster, TransactionalProducer], Coroutine[Any, Any, None]]


def in_a_cluster(
    scenario: Scenario, *, seed: int | str = 0, settings: dict[str, str] | None = None, **configs: str
) -> None:
    with a_cluster(3, {**SETTINGS, **(settings or {})}, seed=seed) as cluster:
        place(cluster, (1, 2, 3), (2, 3, 1), **configs)

        async def main(runtime: SimRuntime) -> None:
            producer = TransactionalProducer(runtime, cluster)
            await producer.begin()
            await scenario(runtime, cluster, producer)

        run(cluster, main)


def test_a_transaction_is_seen_as_a_whole_by_every_replica() -> None:
    async def scenario(runtime: SimRuntime, cluster: SimCluster, producer: TransactionalProducer) -> None:
        client = ClusterClient(runtime, cluster)
        await producer.send(b"one", b"two")
        await producer.send(b"elsewhere", partition=1)
        for node in (1, 2, 3):
            assert await read_committed(client, node) == ([], 0)
        await producer.end(committed=True)
        await producer.send(b"aborted")
        await producer.end(committed=False)
        await producer.send(b"open")
        for node in (1, 2, 3):
            await client.until(lambda node=node: stable(cluster, node) == 5)  # type: ignore[misc]
            assert await read_committed(client, node) == ([b"one", b"two"], 5)

    in_a_cluster(scenario)


def stable(cluster: SimCluster, node_id: int) -> int:
    partition = cluster.node(node_id).served.manager.table.by_name[b"t"][0]
    return partition.last_stable_offset


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("seed", some(range(10), usual=[0]))
def test_a_leader_that_dies_after_its_marker_was_acknowledged_takes_nothing_with_it(
    committed: bool, power_loss: bool, seed: int
) -> None:
    """Its disk has the marker unsynced or not at all: the replicas have it, and the old leader gets it back."""

    async def scenario(runtime: SimRuntime, cluster: SimCluster, producer: TransactionalProducer) -> None:
        client = ClusterClient(runtime, cluster)
        await producer.send(b"one", b"two")
        await producer.end(committed=committed)
        dead = cluster.node(1)
        # EndTxn answers when the decision is durable; the markers follow.
        await client.until(lambda: stable(cluster, 2) == 3)
        if power_loss:
            dead.host.power_loss()
        else:
            dead.host.kill()
        expected = [b"one", b"two"] if committed else []
        assert await read_committed(client) == (expected, 3)
        dead.begin()
        await client.until(lambda: dead.ready and is_following(cluster, 1) and stable(cluster, 1) == 3)
        assert await read_committed(client, 1) == (expected, 3)
        await producer.send(b"three")
        await producer.end(committed=True)
        await client.until(lambda: stable(cluster, 1) == 5)
        assert await read_committed(client, 1) == ([*expected, b"three"], 5)

    in_a_cluster(scenario, seed=f"marker-{seed}")


def is_following(cluster: SimCluster, node_id: int) -> bool:
    partition = cluster.node(node_id).served.manager.table.by_name[b"t"][0]
    return partition.is_copied and partition.log is not None and partition.log.end_offset >= 3


def is_settled(cluster: SimCluster, number: int) -> bool:
    """The partition has one leader, which knows that everything is committed and every transaction has ended."""
    leaders = [
        partition
        for node in cluster.live
        if node.ready and (partition := node.served.manager.table.by_name[b"t"][number]).leader is not None
    ]
    return (
        len(leaders) == 1 and leaders[0].log is not None and leaders[0].last_stable_offset == leaders[0].log.end_offset
    )


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("seed", some(range(10), usual=[0]))
def test_a_broker_killed_together_with_a_writer_ends_its_transaction(power_loss: bool, seed: int) -> None:
    """The coordinator, the leader and the producer die at once, in the middle of EndTxn. The decision or its absence
    holds for both partitions, and nobody waits longer than the transaction's timeout."""

    async def scenario(runtime: SimRuntime, cluster: SimCluster, producer: TransactionalProducer) -> None:
        client = ClusterClient(runtime, cluster)
        other = ClusterClient(runtime, cluster, partition=1)
        await producer.send(b"debit")
        await producer.send(b"credit", partition=1)
        ending = runtime.spawn(producer.end(committed=True), "end")
        await runtime.sleep(runtime.rng.random() * 12)
        dead = cluster.node(1)
        if power_loss:
            dead.host.power_loss()
        else:
            dead.host.kill()
        ending.cancel()
        dead.begin()
        successor = TransactionalProducer(runtime, cluster)
        await successor.begin()
        # A new leader learns from its followers what is committed.
        await client.until(lambda: all(is_settled(cluster, partition) for partition in (0, 1)))
        seen = await read_committed(client), await read_committed(other)
        assert (seen[0][0], seen[1][0]) in (([b"debit"], [b"credit"]), ([], []))
        for (_, last_stable), reader in zip(seen, (client, other), strict=True):
            data = await reader.fetch(0)
            assert data.high_watermark == last_stable == data.last_stable_offset

    in_a_cluster(scenario, seed=f"together-{seed}")


def test_a_new_leader_knows_the_open_transactions_of_the_old_one() -> None:
    async def scenario(runtime: SimRuntime, cluster: SimCluster, producer: TransactionalProducer) -> None:
        client = ClusterClient(runtime, cluster)
        await producer.send(b"one")
        cluster.node(1).host.kill()
        assert await read_committed(client) == ([], 0)
        await producer.send(b"two")
        assert await read_committed(client) == ([], 0)
        await producer.end(committed=True)
        await client.until(lambda: stable(cluster, 2) == 3 or stable(cluster, 3) == 3)
        assert await read_committed(client) == ([b"one", b"two"], 3)

    in_a_cluster(scenario)


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_a_cluster_that_dies_as_a_whole_keeps_what_its_topics_sync(power_loss: bool) -> None:
    """With flush.messages=1 a marker is acknowledged when it is on every disk."""

    async def scenario(runtime: SimRuntime, cluster: SimCluster, producer: TransactionalProducer) -> None:
        client = ClusterClient(runtime, cluster)
        await producer.send(b"one")
        await producer.end(committed=False)
        await producer.send(b"two")
        await client.until(lambda: all(stable(cluster, node) == 2 for node in (1, 2, 3)))
        for node in cluster.nodes:
            if power_loss:
                node.host.power_loss()
            else:
                node.host.kill()
        for node in cluster.nodes:
            node.begin()
        await client.until(lambda: all(node.ready for node in cluster.nodes))
        assert await read_committed(client) == ([], 2)
        await producer.end(committed=True)
        await client.until(lambda: any(stable(cluster, node) == 4 for node in (1, 2, 3)))
        assert await read_committed(client) == ([b"two"], 4)

    settings = {"log.flush.interval.messages": "1"}
    in_a_cluster(scenario, settings=settings)
