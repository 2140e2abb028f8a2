"""Nodes authenticate each other, and nobody else can pose as one. Simulated, with the model of TLS."""

from __future__ import annotations

import pytest

from broker.session import Session, batch, produce_request, simulated
from penstock.broker import limits
from penstock.config.local_security import AUTHORIZER
from penstock.runtime import TlsSettings
from penstock.sim import SimRuntime, World
from penstock.sim.broker import KAFKA_PORT, ProtocolClient, SimBroker
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.vote import VoteRequest
from security.logins import WITH_LOGINS, connected, plain_login

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="node-secret" user_node="node-secret" user_alice="alice-secret";'
)
SHARED = {
    **WITH_LOGINS,
    "listener.name.logins.plain.sasl.jaas.config": JAAS,
    "inter.broker.listener.name": "LOGINS",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:node;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
"""Clients and brokers share a listener, so only their principals tell them apart. The test's own connection is
anonymous and a super user; whoever logs in as alice may do everything that no ACL forbids, but is no node."""


def fetch_as(replica_id: int, topic_id: bytes) -> FetchRequest:
    partition = FetchPartition(partition=0, partition_max_bytes=1 << 20, fetch_offset=0)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=-1),
        max_wait_ms=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )


@simulated({**SHARED, "allow.everyone.if.no.acl.found": "false"})
async def test_a_forged_replica_id_is_refused(s: Session) -> None:
    topic_id = await s.create("t")
    await s.call(produce_request("t", batch(b"secret"), 0, -1), 12)
    alice = await connected(s)
    assert (await plain_login(alice, "alice", "alice-secret")).error_code == 0
    answer = await alice.call(fetch_as(1, topic_id), 15)
    codes = [answer.error_code, *(p.error_code for topic in answer.responses for p in topic.partitions)]
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes or ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes
    assert not any(p.records for topic in answer.responses for p in topic.partitions)


# ---- a cluster with mutual TLS

CERTIFICATE = "CN={name};issuer=ca"
CA = b"ca"


def settings_of(node_id: int, count: int) -> dict[str, str]:
    host = f"n{node_id}"
    voters = ",".join(f"{number}@n{number}:{KAFKA_PORT + 1}" for number in range(1, count + 1))
    return {
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{host}:{KAFKA_PORT},INTERNAL://{host}:{KAFKA_PORT + 2},"
        f"CONTROLLER://{host}:{KAFKA_PORT + 1}",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL",
        "controller.quorum.voters": voters,
        "ssl.keystore.location": "/node.pem",
        "ssl.truststore.location": "/ca.pem",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.+)$/$1/",
        "authorizer.class.name": AUTHORIZER,
        "super.users": ";".join(["User:ANONYMOUS", *(f"User:node-{n}" for n in range(1, count + 1))]),
        "default.replication.factor": str(count),
    }


def cluster(world: World, count: int) -> list[SimBroker]:
    nodes = []
    for node_id in range(1, count + 1):
        node = SimBroker(world, settings_of(node_id, count), name=f"n{node_id}")
        node.host.files["/node.pem"] = CERTIFICATE.format(name=f"node-{node_id}").encode()
        node.host.files["/ca.pem"] = CA
        nodes.append(node)
        node.begin()
    world.run_until(lambda: all(node.ready for node in nodes), 120_000)
    return nodes


def test_a_cluster_forms_and_replicates_with_certificates_on_every_connection_between_nodes() -> None:
    with World(7) as world:
        nodes = cluster(world, 3)

        async def scenario(runtime: SimRuntime) -> None:
            client = await ProtocolClient.connect(runtime, nodes[0])
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
            answer = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
            assert answer.topics[0].error_code == 0
            leader = -1
            while leader < 0:
                described = await client.call(MetadataRequest(topics=None), 12)
                leader = described.topics[0].partitions[0].leader_id
            writer = await ProtocolClient.connect(runtime, nodes[leader - 1])
            done = await writer.call(produce_request("t", batch(b"x"), 0, -1), 9)
            assert done.responses[0].partition_responses[0].error_code == 0

        world.execute(scenario)


def test_a_node_whose_certificate_is_not_trusted_cannot_join() -> None:
    with World(8) as world:
        nodes = cluster(world, 3)
        nodes[2].host.kill()
        nodes[2].host.files["/node.pem"] = b"CN=node-3;issuer=somebody"
        nodes[2].begin()

        def is_refused() -> bool:
            reasons = [reason for node in nodes[:2] for reason in node.events.said("connection closed", "reason")]
            return any("unknown authority" in reason for reason in reasons)

        world.run_until(is_refused, 60_000)
        assert not nodes[2].ready
        nodes[2].host.kill()
        nodes[2].host.files["/node.pem"] = CERTIFICATE.format(name="node-3").encode()
        nodes[2].begin()
        world.run_until(lambda: nodes[2].ready, 60_000)


def test_a_client_with_a_certificate_that_is_no_nodes_gets_nothing_from_a_controller() -> None:
    """Registration, votes and envelopes, which could act as anybody, are for ClusterAction only."""
    with World(9) as world:
        nodes = cluster(world, 1)

        async def scenario(runtime: SimRuntime) -> None:
            settings = TlsSettings(certificate_chain="CN=mallory;issuer=ca", trusted="ca")
            tls = runtime.tls(settings, server=False)
            for request, version in (
                (BrokerRegistrationRequest(broker_id=9, rack=None), 4),
                (EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=b""), 0),
                (VoteRequest(cluster_id=None), 2),
            ):
                client = await ProtocolClient.connect(runtime, nodes[0], port=KAFKA_PORT + 1, tls=tls)
                answer = await client.call(request, version)
                assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, type(request).__name__

        world.execute(scenario)


@pytest.mark.parametrize("certificate", ["", "CN=node-1;issuer=somebody", "CN=node-1;issuer=ca;until=1"])
def test_no_connection_without_a_certificate_that_is_trusted_and_valid(certificate: str) -> None:
    with World(10) as world:
        nodes = cluster(world, 1)

        async def scenario(runtime: SimRuntime) -> None:
            tls = runtime.tls(TlsSettings(certificate_chain=certificate, trusted="ca"), server=False)
            with pytest.raises(ConnectionError):
                await ProtocolClient.connect(runtime, nodes[0], port=KAFKA_PORT + 1, tls=tls)
            plain = await ProtocolClient.connect(runtime, nodes[0], port=KAFKA_PORT + 1)
            with pytest.raises(ConnectionError):
                await plain.call(MetadataRequest(topics=None), 12)

        world.execute(scenario)


def test_slow_handshakes_end_after_a_while_and_are_counted_as_connections_meanwhile() -> None:
    with World(11) as world:
        nodes = cluster(world, 1)

        async def scenario(runtime: SimRuntime) -> None:
            client = await ProtocolClient.connect(runtime, nodes[0], port=KAFKA_PORT + 2)
            await runtime.sleep(100)
            assert nodes[0].served.service.connection_count == 1
            await runtime.sleep(11_000)
            assert nodes[0].served.service.connection_count == 0
            assert client.frames.is_lost

        world.execute(scenario)


def test_a_tls_connection_counts_against_the_memory_of_the_broker_until_it_is_closed() -> None:
    with World(12) as world:
        nodes = cluster(world, 1)

        async def scenario(runtime: SimRuntime) -> None:
            service = nodes[0].served.service
            client = await ProtocolClient.connect(runtime, nodes[0], port=KAFKA_PORT + 2)
            await runtime.sleep(100)
            assert service.receiving_bytes == limits.TLS_BYTES
            client.close()
            await runtime.sleep(100)
            assert service.receiving_bytes == 0

        world.execute(scenario)
