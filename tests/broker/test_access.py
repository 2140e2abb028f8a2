"""Listeners: what each of them lets in, what clients are told on each, and that no forged request ends a node."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.clusters import a_cluster, ask, create, state
from broker.session import batch, expect_no_surprise, fetch_request, produce_request
from penstock.broker.apis import absent_features
from penstock.broker.quorum import wire as quorum_wire
from penstock.raft import OffsetAndEpoch, ReplicaKey
from penstock.raft import messages as m
from penstock.sim import SimRuntime, World
from penstock.sim.broker import ProtocolClient
from penstock.sim.client import FrameClient
from penstock.sim.cluster import CONTROLLER_PORT, SimCluster
from penstock.wire.apis import OF_CONTROLLERS, SERVED, ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.fetch import ReplicaState
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

INTERNAL_PORT, EXTERNAL_PORT = 9392, 9492


def ask_at(cluster: SimCluster, node_id: int, port: int, request: Message, version: int) -> Any:
    """One request to one listener of a node; None if it closes the connection instead of answering."""

    async def exchange(runtime: SimRuntime) -> Any:
        client = ProtocolClient(await FrameClient.connect(runtime, f"node-{node_id}", port))
        try:
            return await client.call(request, version)
        except ConnectionError:
            return None
        finally:
            client.close()

    return cluster.world.execute(exchange)


def to_controller(cluster: SimCluster, node_id: int, message: m.Request) -> Any:
    """A message of the quorum, sent to a node's controller listener by someone who need not be in the quorum."""
    request = quorum_wire.to_request(message, cluster.node(node_id).served.quorum.cluster_id, None)
    api = next(api for api in OF_CONTROLLERS.values() if api.request is type(request))
    return ask_at(cluster, node_id, CONTROLLER_PORT, request, api.max_version)


# -- what others say of the quorum -----------------------------------------------------------------------------------


def test_a_forged_leader_is_refused_and_ends_nothing() -> None:
    with a_cluster() as cluster:
        leader = cluster.await_controller()
        epoch = leader.served.quorum.core.epoch
        for node in cluster.nodes:
            liar = next(i for i in (1, 2, 3) if i not in (leader.node_id, node.node_id))
            forged = m.BeginQuorumEpochRequest(liar, node.node_id, 0, epoch, node.served.quorum.key)
            answer = to_controller(cluster, node.node_id, forged)
            (data,) = answer.topics[0].partitions
            assert (data.error_code, data.leader_id) == (ErrorCode.INVALID_REQUEST, leader.node_id)
            assert node.events.named("contradiction in the quorum")
        cluster.world.run(5_000)
        assert cluster.controller() is leader
        assert leader.served.quorum.core.epoch == epoch


def test_a_quorum_recovers_from_a_leader_that_never_was() -> None:
    with a_cluster() as cluster:
        for node in cluster.nodes:
            epoch = node.served.quorum.core.epoch + 5
            forged = m.BeginQuorumEpochRequest(77, node.node_id, 0, epoch, node.served.quorum.key)
            assert to_controller(cluster, node.node_id, forged).error_code == ErrorCode.NONE
        assert create(cluster, "t").error_code == ErrorCode.NONE


def forgery(rng: Random, cluster: SimCluster, target: int) -> m.Request:
    """A message that someone made up who has read DescribeQuorum."""
    core = cluster.node(target).served.quorum.core
    keys = [*core.voter_set.keys, ReplicaKey(rng.randrange(-1, 9), rng.randbytes(16))]
    key, voter = rng.choice(keys), rng.choice(keys)
    epoch = core.epoch + rng.choice((-1, 0, 0, 0, 1, 2**29))
    offset = core.log.end_offset + rng.choice((-(2**40), -3, -1, 0, 1, 2**40))
    match rng.randrange(5):
        case 0:
            last_epoch, pre_vote = rng.choice((-1, epoch)), rng.random() < 0.5
            return m.VoteRequest(key.id, target, 0, epoch, key, voter, last_epoch, offset, pre_vote)
        case 1:
            return m.BeginQuorumEpochRequest(key.id, target, 0, epoch, voter)
        case 2:
            return m.EndQuorumEpochRequest(key.id, target, 0, epoch, tuple(rng.sample(keys, 2)))
        case 3:
            wait_ms = rng.choice((-1, 0, 10))
            return m.FetchRequest(key.id, target, 0, key, epoch, offset, rng.choice((-1, 0, epoch)), -1, wait_ms)
        case _:
            place = OffsetAndEpoch(rng.choice((-1, 0, offset)), epoch)
            return m.FetchSnapshotRequest(key.id, target, 0, key, epoch, place, rng.choice((-1, 0, 2**50)), 1 << 20)


@pytest.mark.parametrize("seed", range(3))
def test_no_forged_message_of_the_quorum_ends_a_node(seed: int) -> None:
    rng = Random(f"forged-{seed}")
    with World(f"forged-{seed}") as world:
        cluster = SimCluster(world, 3)
        cluster.start()
        for _ in range(150):
            target = rng.randrange(1, 4)
            to_controller(cluster, target, forgery(rng, cluster, target))
        world.run(10_000)
        assert all(node.is_alive for node in cluster.nodes)
        for node in cluster.nodes:
            expect_no_surprise(node)
        cluster.await_controller()
        assert create(cluster, "t").error_code == ErrorCode.NONE


# -- what is served where --------------------------------------------------------------------------------------------


def test_what_nodes_ask_each_other_is_refused_where_clients_come_in() -> None:
    with a_cluster(1) as cluster:
        between_nodes = [api for key, api in OF_CONTROLLERS.items() if key not in SERVED]
        assert {ApiKey.VOTE, ApiKey.BROKER_REGISTRATION, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE} <= {
            api.key for api in between_nodes
        }
        for api in between_nodes:
            assert ask_at(cluster, 1, 9092, api.request(), api.max_version) is None
        assert ask(cluster, 1, DescribeClusterRequest(), 1).error_code == ErrorCode.NONE


def test_a_controller_tells_its_versions_and_the_clusters_features() -> None:
    with a_cluster(1) as cluster:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = ask_at(cluster, 1, 9092, request, 4)
        of_controller = ask_at(cluster, 1, CONTROLLER_PORT, request, 4)
        assert of_controller.supported_features == answer.supported_features
        assert of_controller.finalized_features == answer.finalized_features
        assert answer.finalized_features
        assert {one.api_key for one in of_controller.api_keys} == set(OF_CONTROLLERS)


def test_controllers_answer_what_tools_send_them() -> None:
    """Kafka's tools take `--bootstrap-controller` instead of a broker."""
    with a_cluster(1) as cluster:
        for key in (*absent_features.ANSWERS, ApiKey.DESCRIBE_CONFIGS):
            if key in OF_CONTROLLERS:
                api = SERVED[key]
                for version in api.versions:
                    answer = ask_at(cluster, 1, CONTROLLER_PORT, api.request(), version)
                    assert answer == ask_at(cluster, 1, 9092, api.request(), version), api.name
        request = DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True)
        assert ask_at(cluster, 1, CONTROLLER_PORT, request, 1).cluster_authorized_operations > 0


def two_listeners(cluster: SimCluster) -> None:
    """Every node has one listener for brokers and one for everybody else."""
    for node in cluster.nodes:
        node.settings.update(
            {
                "listeners": f"PLAINTEXT://{node.name}:9092,EXTERNAL://{node.name}:{EXTERNAL_PORT},"
                f"INTERNAL://{node.name}:{INTERNAL_PORT},CONTROLLER://{node.name}:{CONTROLLER_PORT}",
                "advertised.listeners": f"PLAINTEXT://{node.name}:9092,EXTERNAL://outside-{node.node_id}:19092,"
                f"INTERNAL://{node.name}:{INTERNAL_PORT}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,"
                "CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
            }
        )


def test_clients_are_told_of_the_listeners_that_they_came_in_on() -> None:
    with World(1) as world:
        cluster = SimCluster(world, 3)
        two_listeners(cluster)
        cluster.start()
        assert create(cluster, "t").error_code == ErrorCode.NONE
        expected = {
            9092: [(i, f"node-{i}", 9092) for i in (1, 2, 3)],
            EXTERNAL_PORT: [(i, f"outside-{i}", 19092) for i in (1, 2, 3)],
            INTERNAL_PORT: [(i, f"node-{i}", INTERNAL_PORT) for i in (1, 2, 3)],
        }
        for port, brokers in expected.items():
            told = ask_at(cluster, 2, port, MetadataRequest(topics=[]), 12)
            assert [(b.node_id, b.host, b.port) for b in told.brokers] == brokers
            described = ask_at(cluster, 2, port, DescribeClusterRequest(), 1)
            assert [(b.broker_id, b.host, b.port) for b in described.brokers] == brokers
            found = ask_at(cluster, 2, port, FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
            assert (found.node_id, found.host, found.port) in brokers
        # Followers come in where brokers do: the topic is replicated.
        leader = state(cluster, "t").leader
        produced = ask(cluster, leader, produce_request("t", batch(b"one")), 9)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_a_broker_without_a_listener_of_that_name_is_not_told_of() -> None:
    with World(2) as world:
        cluster = SimCluster(world, 3)
        two_listeners(cluster)
        odd = cluster.node(3)
        odd.settings["listeners"] = (
            f"PLAINTEXT://node-3:9092,INTERNAL://node-3:{INTERNAL_PORT},CONTROLLER://node-3:{CONTROLLER_PORT}"
        )
        del odd.settings["advertised.listeners"]
        cluster.start()
        create(cluster, "t", partitions=3, replication_factor=1)
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        told = ask_at(cluster, 1, EXTERNAL_PORT, wanted, 12)
        assert [broker.node_id for broker in told.brokers] == [1, 2]
        by_leader = {state(cluster, "t", p.partition_index).leader: p for p in told.topics[0].partitions}
        assert (by_leader[3].leader_id, by_leader[3].error_code) == (-1, ErrorCode.LISTENER_NOT_FOUND)
        assert (by_leader[1].leader_id, by_leader[1].error_code) == (1, ErrorCode.NONE)
        inside = ask_at(cluster, 1, 9092, wanted, 12)
        assert [partition.error_code for partition in inside.topics[0].partitions] == [0, 0, 0]


# -- who is a replica ------------------------------------------------------------------------------------------------


def test_a_forged_replica_is_refused_by_listener_registration_and_incarnation() -> None:
    with World(3) as world:
        cluster = SimCluster(world, 3)
        two_listeners(cluster)
        cluster.start()
        assert create(cluster, "t").error_code == ErrorCode.NONE
        found = state(cluster, "t")
        follower = next(i for i in found.replicas if i != found.leader)
        epoch = cluster.node(follower).served.lifecycle.epoch
        topic = cluster.node(1).image.topic("t")
        assert topic is not None

        def fetch(port: int, replica_id: int, replica_epoch: int) -> int:
            request = fetch_request(topic.topic_id, max_wait_ms=0)
            request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch)
            return int(ask_at(cluster, found.leader, port, request, 17).error_code)

        before = state(cluster, "t")
        assert fetch(EXTERNAL_PORT, follower, epoch) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert fetch(9092, follower, epoch) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert fetch(INTERNAL_PORT, 9, epoch) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert fetch(INTERNAL_PORT, follower, epoch - 1) == ErrorCode.STALE_BROKER_EPOCH
        assert fetch(INTERNAL_PORT, follower, epoch) == ErrorCode.NONE
        assert state(cluster, "t") == before
