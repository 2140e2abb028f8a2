"""ACLs while nodes crash: what was acknowledged holds on every node, and all nodes decide alike."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.acl_session import ALLOW, DENY, SECURED, acl, creation, deletion, login
from broker.clusters import a_cluster
from broker.test_authorization import codes_in
from penstock.acls import Acl, AclIndex, Decisions, acl_id
from penstock.sim import SimRuntime
from penstock.sim.broker import ProtocolClient
from penstock.sim.cluster import SimCluster, SimNode
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

STEPS = 40
TOPICS = ("a", "ab", "b")
RULES = [
    acl(operation, ResourceKind.TOPIC, name, user=user, pattern=pattern, permission=permission)
    for operation in (Operation.READ, Operation.DESCRIBE)
    for name in (*TOPICS, "*")
    for user in ("alice", "bob", "*")
    for pattern in (3, 4)
    for permission in (ALLOW, DENY)
]


class History:
    """What was acknowledged. A change whose answer did not come may or may not have been made."""

    def __init__(self) -> None:
        self.held: dict[Acl, bool | None] = {}
        """None: not known."""

    async def change(self, runtime: SimRuntime, node: SimNode, rule: Acl, create: bool) -> None:
        self.held[rule] = None
        try:
            client = await ProtocolClient.connect(runtime, node)
            answer = await client.call(creation(rule) if create else deletion(rule), 3)
        except ConnectionError:
            return
        if set(codes_in(answer)) <= {ErrorCode.NONE}:
            self.held[rule] = create


@pytest.mark.parametrize("seed", range(3))
def test_acls_that_were_acknowledged_survive_and_all_nodes_decide_alike(seed: int) -> None:
    rng, history = Random(f"acls-{seed}"), History()
    with a_cluster(3, SECURED, seed=f"acls-{seed}") as cluster:
        for step in range(STEPS):
            if step % 8 == 4:
                victim = rng.choice(cluster.nodes)
                victim.power_loss() if rng.random() < 0.5 else victim.crash()
                cluster.world.run(rng.choice((0, 50, 3_000)))
                change(cluster, rng, history)
                victim.begin()
                cluster.await_ready()
            change(cluster, rng, history)
        cluster.await_images()
        for node in cluster.nodes:
            image = set(node.image.acls.values())
            assert node.served.authorizer is not None
            assert node.served.authorizer.decisions.acl_count == len(image)
            for rule, held in history.held.items():
                assert held is None or (rule in image) is held, (node.node_id, rule, held)
            assert seen(cluster, node) == expected(image)


def change(cluster: SimCluster, rng: Random, history: History) -> None:
    node, rule, create = rng.choice(cluster.live), rng.choice(RULES), rng.random() < 0.6
    cluster.world.execute(lambda runtime: history.change(runtime, node, rule, create))


def seen(cluster: SimCluster, node: SimNode) -> dict[tuple[str, str], bool]:
    """Which topics each user may describe, as this node answers."""

    async def ask(runtime: SimRuntime) -> dict[tuple[str, str], bool]:
        found: dict[tuple[str, str], bool] = {}
        for user in ("alice", "bob", "carol"):
            client = await login(runtime, node, user)
            topics = [MetadataRequestTopic(name=name) for name in TOPICS]
            answer: Any = await client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
            for topic in answer.topics:
                found[user, topic.name] = topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return found

    return cluster.world.execute(ask)


def expected(acls: set[Acl]) -> dict[tuple[str, str], bool]:
    decisions = Decisions(index=AclIndex((acl_id(one), one) for one in acls))
    return {
        (user, name): decisions.decide("User", user, "", Operation.DESCRIBE, ResourceKind.TOPIC, name).allowed
        for user in ("alice", "bob", "carol")
        for name in TOPICS
    }
