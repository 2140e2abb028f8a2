"""Helpers of the whole-cluster tests: requests to any node, and checks of what the nodes know."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from broker.session import expect_no_surprise
from penstock.metadata import PartitionState
from penstock.sim import SimRuntime, World
from penstock.sim.cluster import SimCluster
from penstock.wire.codec import Message
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


@contextmanager
def a_cluster(
    count: int = 3,
    settings: Mapping[str, str] | None = None,
    *,
    seed: int | str = 0,
    roles: Sequence[str] | None = None,
) -> Iterator[SimCluster]:
    """A started cluster; no handler of any node may raise an unexpected exception."""
    with World(seed) as world:
        cluster = SimCluster(world, count, settings, roles=roles)
        cluster.start()
        yield cluster
        for node in cluster.nodes:
            expect_no_surprise(node)


def ask(cluster: SimCluster, node_id: int, request: Message, version: int) -> Any:
    """Send one request to one node; returns the response."""

    async def exchange(runtime: SimRuntime) -> Any:
        client = await cluster.connect(runtime, node_id)
        answer = await client.call(request, version)
        client.close()
        return answer

    return cluster.world.execute(exchange)


def run(cluster: SimCluster, scenario: Callable[[SimRuntime], Coroutine[Any, Any, Any]]) -> Any:
    return cluster.world.execute(scenario)


def create(
    cluster: SimCluster,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 3,
    at: int = 1,
    configs: Mapping[str, str] | None = None,
) -> Any:
    """Create a topic through one node; returns the response's entry for it."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
            )
        ],
        timeout_ms=30_000,
    )
    (result,) = ask(cluster, at, request, 7).topics
    return result


def state(cluster: SimCluster, topic: str, partition: int = 0, *, at: int | None = None) -> PartitionState:
    """A partition as one node sees it, by default the active controller."""
    node = cluster.await_controller() if at is None else cluster.node(at)
    found = node.image.partition(topic, partition)
    assert found is not None
    return found


def fenced(cluster: SimCluster, node_id: int) -> bool:
    """Whether the active controller has fenced this broker."""
    node = cluster.controller()
    broker = None if node is None else node.image.broker(node_id)
    return broker is None or broker.fenced
