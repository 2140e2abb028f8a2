"""Clients are not sent to a leader whose process has ended, even before the controller elects another."""

from __future__ import annotations

from broker.clusters import a_cluster, ask, create
from broker.replicas import Client, Replicas, replicated
from penstock.broker.replicas.fetchers import GONE_MS
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition

TOPIC = "orders"


def test_whoever_asks_right_after_a_crash_is_not_sent_to_the_dead_leader() -> None:
    with a_cluster() as cluster:
        create(cluster, TOPIC)
        cluster.await_images()
        leader = cluster.leader_of(TOPIC)
        assert leader is not None
        follower = next(node for node in cluster.nodes if node is not leader)

        def told() -> MetadataResponsePartition:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            found: MetadataResponsePartition = ask(cluster, follower.node_id, request, 12).topics[0].partitions[0]
            return found

        assert told().leader_id == leader.node_id
        leader.crash()
        answers = [told() for _ in range(200)]
        heard = next(number for number, one in enumerate(answers) if one.leader_id != leader.node_id)
        # As soon as the reset has come, which is before the controller can have done anything.
        assert answers[heard].leader_id == -1
        assert answers[heard].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert leader.node_id not in [one.leader_id for one in answers[heard:]]
        assert answers[-1].leader_id > 0


def test_a_leader_that_answers_again_is_told_again() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        fetchers = cluster[2].manager.roles.fetchers
        await client.produce(1, b"one")
        assert not fetchers.is_gone(1)
        cluster[1].crash()
        await client.until(lambda: fetchers.is_gone(1))
        cluster[1].start()
        await client.until(lambda: cluster[1].ready and not fetchers.is_gone(1), limit_ms=0.8 * GONE_MS)

    replicated(scenario)


def test_a_leader_that_is_silent_may_still_serve_its_clients() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        fetchers = cluster[2].manager.roles.fetchers
        await client.produce(1, b"one")
        cluster.world.network.cut("node1", "node2")
        await client.runtime.sleep(cluster[2].config.replica_socket_timeout_ms + 5_000)
        assert not fetchers.is_gone(1)

    replicated(scenario)
