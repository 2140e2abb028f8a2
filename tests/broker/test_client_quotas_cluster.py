"""Client quotas in a cluster: any broker takes them, all enforce them, the controller charges what it decides."""

from __future__ import annotations

from collections.abc import Mapping

from broker.clusters import a_cluster, ask, create, run
from broker.quota_exchanges import entry
from broker.session import batch, produce_request
from broker.test_client_quotas import creation
from penstock.sim import SimRuntime
from penstock.sim.broker import CLIENT_ID
from penstock.sim.cluster import SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest

DURABLE = {"default.replication.factor": "3", "min.insync.replicas": "2"}


def another_than_the_controller(cluster: SimCluster) -> int:
    controller = cluster.await_controller()
    return next(node.node_id for node in cluster.nodes if node is not controller)


def set_quota(cluster: SimCluster, at: int, entity: Mapping[str, str | None], **values: float | None) -> None:
    answer = ask(cluster, at, AlterClientQuotasRequest(entries=[entry(entity, **values)]), 1)
    assert [one.error_code for one in answer.entries] == [0], answer.entries


def test_a_quota_set_at_any_broker_is_in_force_there_at_once_and_soon_everywhere() -> None:
    with a_cluster() as cluster:
        at = another_than_the_controller(cluster)
        set_quota(cluster, at, {"user": "ann"}, producer_byte_rate=5)
        assert len(ask(cluster, at, DescribeClientQuotasRequest(), 1).entries) == 1
        assert cluster.node(at).served.gate.quotas is not None

        async def everywhere(runtime: SimRuntime) -> None:
            while any(node.served.gate.quotas is None for node in cluster.nodes):
                await runtime.sleep(50)

        run(cluster, everywhere)


def test_the_controller_charges_forwarded_requests_and_their_broker_holds_the_client() -> None:
    with a_cluster() as cluster:
        at = another_than_the_controller(cluster)
        set_quota(cluster, at, {"client-id": CLIENT_ID}, controller_mutation_rate=1)

        async def mutate(runtime: SimRuntime) -> None:
            greedy, polite = await cluster.connect(runtime, at), await cluster.connect(runtime, at)
            polite.client_id = "polite"
            first = await greedy.call(creation("a", partitions=30), 7)
            assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
            began_ms = runtime.now_ms()
            refused = await greedy.call(creation("b"), 7)
            assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 15_000 < refused.throttle_time_ms < 20_000
            held = greedy.send(creation("b"), 7)
            assert (await polite.call(creation("c"), 7)).topics[0].error_code == 0
            assert runtime.now_ms() - began_ms < 5_000, "the connection between the nodes is not held"
            assert (await held).topics[0].error_code == 0
            assert runtime.now_ms() - began_ms > 15_000

        run(cluster, mutate)


def test_followers_have_no_quota() -> None:
    with a_cluster(settings=DURABLE) as cluster:
        assert create(cluster, "t", partitions=1).error_code == 0
        for entity in ({"user": None}, {"client-id": None}):
            set_quota(cluster, 1, entity, consumer_byte_rate=1, request_percentage=0.01)

        async def produce(runtime: SimRuntime) -> None:
            await runtime.sleep(1_000)
            leader = cluster.await_controller().image.partition("t", 0)
            assert leader is not None
            for number in range(5):
                client = await cluster.connect(runtime, leader.leader)
                client.client_id = f"producer-{number}"
                began_ms = runtime.now_ms()
                answer = await client.call(produce_request("t", batch(b"x" * 100_000), acks=-1), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
                assert runtime.now_ms() - began_ms < 1_000

        run(cluster, produce)
