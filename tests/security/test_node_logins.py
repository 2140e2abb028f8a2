"""Nodes that log in to each other: PLAIN to controllers, SCRAM between brokers, renewed before it expires."""

from __future__ import annotations

import pytest

from broker.session import batch, produce_request
from penstock.sim import SimRuntime, World
from penstock.sim.broker import KAFKA_PORT, ProtocolClient, SimBroker
from penstock.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest
from security.logins import upsertion

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NODES = 3


def settings_of(node_id: int, password: str = "node-secret") -> dict[str, str]:
    host = f"n{node_id}"
    voters = ",".join(f"{number}@n{number}:{KAFKA_PORT + 1}" for number in range(1, NODES + 1))
    return {
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{host}:{KAFKA_PORT},INTERNAL://{host}:{KAFKA_PORT + 2},"
        f"CONTROLLER://{host}:{KAFKA_PORT + 1}",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.quorum.voters": voters,
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{PLAIN} required username="node" password="{password}" user_node="node-secret";'
        ),
        "listener.name.internal.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.internal.scram-sha-256.sasl.jaas.config": (
            f'{SCRAM} required username="broker" password="broker-secret";'
        ),
        "connections.max.reauth.ms": "5000",
        "default.replication.factor": str(NODES),
        "min.insync.replicas": "2",
    }


def started(world: World) -> list[SimBroker]:
    nodes = [SimBroker(world, settings_of(number), name=f"n{number}") for number in range(1, NODES + 1)]
    for node in nodes:
        node.begin()
    world.run_until(lambda: all(node.ready for node in nodes), 120_000)
    return nodes


def test_a_cluster_forms_and_replicates_with_logins_between_nodes_which_are_renewed() -> None:
    with World(21) as world:
        nodes = started(world)

        async def scenario(runtime: SimRuntime) -> None:
            client = await ProtocolClient.connect(runtime, nodes[0])
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion("broker", "broker-secret")])
            assert [r.error_code for r in (await client.call(request, 0)).results] == [0]
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=NODES)
            answer = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
            assert answer.topics[0].error_code == 0
            described = await client.call(MetadataRequest(topics=None), 12)
            leader = described.topics[0].partitions[0].leader_id
            writer = await ProtocolClient.connect(runtime, nodes[leader - 1])
            for _ in range(8):
                done = await writer.call(produce_request("t", batch(b"x"), 0, -1), 9)
                assert done.responses[0].partition_responses[0].error_code == 0
                await runtime.sleep(2_000)
            followers = await client.call(MetadataRequest(topics=None), 12)
            assert sorted(followers.topics[0].partitions[0].isr_nodes) == [1, 2, 3]

        world.execute(scenario)
        before = sum(node.served.authenticator.successes for node in nodes)
        assert before > 2 * NODES * 2, "logins were renewed by new connections"


def test_a_node_with_a_wrong_password_does_not_join() -> None:
    with World(22) as world:
        nodes = started(world)
        nodes[2].host.kill()
        nodes[2].settings = settings_of(3, password="guessed")
        nodes[2].begin()
        world.run_until(lambda: any(node.events.named("login failed") for node in nodes[:2]), 60_000)
        assert not nodes[2].ready


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sasl.mechanism.controller.protocol", "must name the mechanism"),
        ("listener.name.internal.scram-sha-256.sasl.jaas.config", "set username and password"),
    ],
)
def test_a_node_that_could_not_log_in_does_not_start(name: str, told: str) -> None:
    with World(23) as world:
        world.tolerate_errors = True
        settings = settings_of(1)
        del settings[name]
        node = SimBroker(world, settings, name="n1")
        with pytest.raises(Exception, match=told):
            node.start()
