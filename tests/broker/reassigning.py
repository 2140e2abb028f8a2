"""Helpers of the tests that move partitions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from broker.cluster_load import ClusterClient, Ledger, bytes_of, high_watermark, log_of
from broker.clusters import ask
from penstock.metadata import PartitionState
from penstock.sim import SimRuntime
from penstock.sim.cluster import BOTH, BROKER, SimCluster, SimNode
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

FIVE = (BOTH, BOTH, BOTH, BROKER, BROKER)
SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "3000", "offsets.topic.num.partitions": "3"}

Faults = Callable[[ClusterClient, SimCluster], Coroutine[Any, Any, None]]


def place(cluster: SimCluster, *replicas: tuple[int, ...], topic: str = "t", **configs: str) -> None:
    """Create a topic whose partitions are on these brokers."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids)) for index, ids in enumerate(replicas)
    ]
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    new = CreatableTopic(
        name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=settings
    )
    (result,) = ask(cluster, 1, CreateTopicsRequest(topics=[new], timeout_ms=30_000), 7).topics
    assert result.error_code == 0, result
    cluster.await_images()


def move_request(
    *targets: tuple[int, Iterable[int] | None], topic: str = "t", allow: bool = True
) -> AlterPartitionReassignmentsRequest:
    """Partition number and replicas; None cancels the move."""
    partitions = [
        ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
        for index, replicas in targets
    ]
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=partitions)], allow_replication_factor_change=allow
    )


async def move(client: ClusterClient, replicas: Iterable[int] | None, *, topic: str = "t", partition: int = 0) -> int:
    """Ask any node until the controller responds; returns the partition's error."""
    request = move_request((partition, replicas), topic=topic)
    while True:
        node = client.runtime.rng.choice([node for node in client.cluster.live if node.is_broker])
        try:
            answer = await client.call(node.node_id, request, 1)
        except OSError:
            await client.runtime.sleep(100)
            continue
        if not answer.error_code:
            return int(answer.responses[0].partitions[0].error_code)
        await client.runtime.sleep(100)


def alter_config(cluster: SimCluster, resource_type: int, name: str, *, at: int = 1, **configs: str | None) -> None:
    """Set a configuration, or delete it with None."""
    changes = [
        AlterableConfig(name=key.replace("_", "."), config_operation=int(value is None), value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=changes)
    (result,) = ask(cluster, at, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result
    cluster.await_images()


def ongoing(cluster: SimCluster, *, at: int = 1) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    answer = ask(cluster, at, ListPartitionReassignmentsRequest(topics=None), 0)
    assert answer.error_code == 0
    return {
        (topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    }


def state_now(cluster: SimCluster, topic: str = "t", partition: int = 0) -> PartitionState:
    """The state in the newest image of a live node."""
    images = [node.image for node in cluster.live if node.ready_quorum]
    found = max(images, key=lambda image: image.offset).partition(topic, partition)
    assert found is not None
    return found


def is_at(cluster: SimCluster, replicas: Iterable[int], topic: str = "t", partition: int = 0) -> bool:
    """Whether the partition has exactly these replicas, all in sync."""
    state = state_now(cluster, topic, partition)
    wanted = sorted(replicas)
    arrived = sorted(state.replicas) == wanted and sorted(state.isr) == wanted
    return arrived and not state.adding and not state.removing and state.leader > 0


def holders(cluster: SimCluster, topic: str = "t", partition: int = 0) -> list[int]:
    """The brokers that have the partition's directory."""
    return [node.node_id for node in cluster.nodes if node.host.disk.namespace.find(f"{topic}-{partition}")]


def under_load(
    cluster: SimCluster, faults: Faults, ends_at: Callable[[], Iterable[int]], *, pause_ms: float = 20
) -> Ledger:
    """Run the faults under a producer and a reader; in the end all replicas are in place and nothing is lost."""
    ledger = Ledger()

    async def main(runtime: SimRuntime) -> None:
        producer, reader, watcher = (ClusterClient(runtime, cluster) for _ in range(3))
        tasks = [
            runtime.spawn(ledger.produce(producer, 7, pause_ms), "producer"),
            runtime.spawn(ledger.consume(reader, pause_ms), "reader"),
        ]
        await runtime.sleep(500)
        await faults(watcher, cluster)
        cluster.heal_all()
        for node in cluster.nodes:
            if not node.is_alive:
                node.begin()
        await watcher.until(lambda: all(node.ready for node in cluster.nodes))
        await watcher.until(lambda: is_at(cluster, ends_at()))
        await runtime.sleep(500)
        ledger.over = True
        for task in tasks:
            await task
        await watcher.until(lambda: len(set(ends(cluster, ends_at()))) == 1)
        watcher.leader = watcher.leader_epoch = -1
        ledger.check(await watcher.all_values())
        await watcher.until(lambda: holders(cluster) == sorted(ends_at()))

    cluster.world.execute(main)
    logs = [bytes_of(log_of(cluster.node(replica))) for replica in ends_at()]
    assert all(log == logs[0] for log in logs)
    return ledger


def ends(cluster: SimCluster, replicas: Iterable[int]) -> list[int]:
    """End and high watermark of each replica."""
    found = []
    for replica in replicas:
        node: SimNode = cluster.node(replica)
        log = log_of(node)
        found += [-1 if log is None else log.end_offset, high_watermark(node)]
    return found
