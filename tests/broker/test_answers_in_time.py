"""Every request is answered within a stated time, whatever happens to the nodes: in virtual time.

A member of a consumer group (KIP-848) commits after every heartbeat, as fast as it is answered, over one connection to
its coordinator, while the coordinator's node is cut off, stands still, dies or loses its followers. Clients reach all
nodes. An answer may be any error, but it must come: librdkafka waits for a commit for three times `socket.timeout.ms`,
which is three minutes by default, and its application reads nothing meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.cluster_load import ClusterClient
from broker.clusters import a_cluster, ask, create, run
from broker.group_session import NAMES_UNTIL, ClassicMember, commit, commit_request, ready
from broker.session import Session, simulated
from broker.test_groups_cluster import SETTINGS, coordinator
from penstock.broker import limits
from penstock.broker.quorum.forwarding import FORWARD_MS, IN_FORCE_MS
from penstock.broker.server import PRODUCER_IDS_MS
from penstock.broker.service import SWEEP_INTERVAL_MS
from penstock.coordinators.groups.shard import GroupShard
from penstock.sim import SimRuntime
from penstock.sim.broker import ProtocolClient
from penstock.sim.cluster import BROKER, CONTROLLER, SimCluster, SimNode
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumRequestTopicData
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import UpdateFeaturesRequest

SESSION_MS = 9_000
ANSWER_MS = 5_500
"""`offsets.commit.timeout.ms`, and a little for the way."""
PAUSE_MS = 100.0
SOCKET_TIMEOUT_MS = 60_000.0

Fault = Callable[[SimRuntime, SimCluster, SimNode], Awaitable[None]]


class CommittingMember:
    """Heartbeats and commits in turn, and remembers how long each answer took and when commits succeeded."""

    def __init__(self, runtime: SimRuntime, cluster: SimCluster) -> None:
        self.runtime = runtime
        self.cluster = cluster
        self.epoch = 0
        self.over = False
        self.slowest_ms = 0.0
        self.slowest = ""
        self.standing_still: SimNode | None = None
        self.committed_ms: list[float] = []
        self._client: ProtocolClient | None = None
        self._to = -1

    async def run(self) -> None:
        offset = 0
        while not self.over:
            try:
                beat = await self._call(self._heartbeat(), 1)
                code = beat.error_code
                if not code:
                    self.epoch = beat.member_epoch
                    offset += 1
                    answer = await self._call(commit_request("g", {("t", 0): (offset, "")}, "m-1", self.epoch), 9)
                    code = answer.topics[0].partitions[0].error_code
                    if not code:
                        self.committed_ms.append(self.runtime.now_ms())
                if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                    self.epoch = 0
                elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                    self._leave()
            except OSError:
                self._leave()
            await self.runtime.sleep(PAUSE_MS)

    def waited_ms(self, since_ms: float) -> float:
        """From this moment until the next commit that succeeded."""
        return next((time - since_ms for time in self.committed_ms if time >= since_ms), float("inf"))

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        joins = self.epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m-1", member_epoch=self.epoch, rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=["t"] if joins else None, topic_partitions=[] if joins else None,
        )  # fmt: skip

    async def _call(self, request: Message, version: int) -> Any:
        client = self._client or await self._find()
        node = self.cluster.node(self._to)
        began_ms = self.runtime.now_ms()
        timer = self.runtime.call_later(SOCKET_TIMEOUT_MS, client.frames.abort)
        try:
            return await client.call(request, version)
        finally:
            timer.cancel()
            took_ms = self.runtime.now_ms() - began_ms
            # A node that stands still answers nobody.
            if took_ms > self.slowest_ms and node is not self.standing_still:
                self.slowest_ms, self.slowest = took_ms, f"{type(request).__name__} to {self._to}"

    async def _find(self) -> ProtocolClient:
        """The coordinator, as any node knows it."""
        seeker = ClusterClient(self.runtime, self.cluster)
        while True:
            nodes = [node.node_id for node in self.cluster.live if node.is_broker]
            try:
                request = FindCoordinatorRequest(coordinator_keys=["g"])
                (found,) = (await seeker.call(self.runtime.rng.choice(nodes), request, 4)).coordinators
                if not found.error_code:
                    self._to = found.node_id
                    self._client = await self.cluster.connect(self.runtime, self._to)
                    return self._client
            except OSError:
                pass
            await self.runtime.sleep(PAUSE_MS)

    def _leave(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None


def others(cluster: SimCluster, node: SimNode) -> list[SimNode]:
    return [one for one in cluster.nodes if one is not node]


def cut(*, sends: bool, receives: bool, hold_ms: float) -> Fault:
    """Nothing of what the coordinator's node sends to other nodes arrives, or nothing of what they send to it."""

    async def fault(runtime: SimRuntime, cluster: SimCluster, node: SimNode) -> None:
        for other in others(cluster, node):
            if sends:
                cluster.cut(node.node_id, other.node_id, one_way=True)
            if receives:
                cluster.cut(other.node_id, node.node_id, one_way=True)
        await runtime.sleep(hold_ms)
        cluster.heal_all()

    return fault


async def flapping(runtime: SimRuntime, cluster: SimCluster, node: SimNode) -> None:
    for _ in range(8):
        for other in others(cluster, node):
            cluster.cut(node.node_id, other.node_id)
        await runtime.sleep(1_700)
        cluster.heal_all()
        await runtime.sleep(900)


async def killed(runtime: SimRuntime, cluster: SimCluster, node: SimNode) -> None:
    node.crash()
    await runtime.sleep(3_000)
    node.begin()


async def killed_again_and_again(runtime: SimRuntime, cluster: SimCluster, node: SimNode) -> None:
    """The next coordinator dies while it loads."""
    for one in (node, *others(cluster, node)):
        one.crash()
        await runtime.sleep(1_500)
        one.begin()
        await runtime.sleep(700)


async def without_followers(runtime: SimRuntime, cluster: SimCluster, node: SimNode) -> None:
    """Only the coordinator is in sync: heartbeats are answered, nothing can be committed."""
    followers = [one for one in others(cluster, node) if one.is_broker]
    for one in followers:
        one.crash()
    await runtime.sleep(30_000)
    for one in followers:
        one.begin()


async def cut_from_followers(runtime: SimRuntime, cluster: SimCluster, node: SimNode) -> None:
    """The controller hears all of them, so that it gives nobody up."""
    for one in others(cluster, node):
        if one.is_broker:
            cluster.cut(node.node_id, one.node_id)
    await runtime.sleep(30_000)
    cluster.heal_all()


async def standing_still(runtime: SimRuntime, cluster: SimCluster, node: SimNode) -> None:
    """SIGSTOP. Its member has to wait; the successors must answer."""
    node.pause()
    await runtime.sleep(30_000)
    node.resume()


def measured(fault: Fault, *, seed: int, roles: list[str] | None = None) -> tuple[CommittingMember, float]:
    """The member, and how long after the end of the fault it committed again."""
    count = len(roles) if roles else 3
    with a_cluster(count, SETTINGS, seed=seed, roles=roles) as cluster:
        cluster.world.network.retransmit_as_linux()
        create(cluster, "t", at=count)
        node = cluster.node(coordinator(cluster))

        async def scenario(runtime: SimRuntime) -> tuple[CommittingMember, float]:
            member = CommittingMember(runtime, cluster)
            runtime.spawn(member.run(), "member")
            await runtime.sleep(3_000)
            assert member.committed_ms
            if fault is standing_still:
                member.standing_still = node
            await fault(runtime, cluster, node)
            healed_ms = runtime.now_ms()
            await runtime.sleep(40_000)
            member.over = True
            return member, member.waited_ms(healed_ms)

        found: tuple[CommittingMember, float] = run(cluster, scenario)
        return found


SEPARATE = [CONTROLLER, BROKER, BROKER, BROKER]
SCENES = {
    "cut off for 7 s": (cut(sends=True, receives=True, hold_ms=7_000), None),
    "cut off for 30 s": (cut(sends=True, receives=True, hold_ms=30_000), None),
    "nothing it sends arrives": (cut(sends=True, receives=False, hold_ms=30_000), None),
    "nothing sent to it arrives": (cut(sends=False, receives=True, hold_ms=30_000), None),
    "its links flap": (flapping, None),
    "it stands still": (standing_still, None),
    "it is killed": (killed, None),
    "each coordinator is killed in turn": (killed_again_and_again, None),
    "its followers are dead": (without_followers, SEPARATE),
    "only its followers are cut off": (cut_from_followers, SEPARATE),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("scene", SCENES)
def test_a_commit_and_a_heartbeat_are_answered_in_time_while(scene: str, seed: int) -> None:
    fault, roles = SCENES[scene]
    member, after_ms = measured(fault, seed=seed, roles=roles)
    assert member.slowest_ms < ANSWER_MS, f"{member.slowest} took {member.slowest_ms:.0f} ms"
    assert after_ms < SESSION_MS, f"the first commit came {after_ms:.0f} ms after the end"


@simulated()
async def test_a_request_that_is_never_answered_ends_its_connection_and_is_reported(
    s: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(s)
    stuck = await s.connect()
    with monkeypatch.context() as patch:
        # A bug: the ticket is forgotten.
        patch.setattr(GroupShard, "offset_commit_plain", lambda *_: None)
        patch.setattr(GroupShard, "offset_commit", lambda *_: None)
        answer = stuck.send(commit_request("g", {("t", 0): (1, "")}), NAMES_UNTIL)
        await s.runtime.sleep(limits.ANSWER_MS_MAX - 1_000)
        assert not answer.has_come
        assert not stuck.frames.is_lost
        await s.runtime.sleep(2 * SWEEP_INTERVAL_MS)
    assert stuck.frames.is_lost
    assert s.node.events.said("request not answered", "api") == ["OffsetCommit"]
    await commit(s.client, "g", {("t", 0): (1, "")})  # others are served as before
    s.node.served.metrics.unexpected_errors = 0  # it was expected here


@simulated()
async def test_a_join_may_wait_for_the_other_members_as_long_as_its_member_allows(s: Session) -> None:
    await ready(s)
    first = await ClassicMember.connect(s, rebalance_timeout_ms=3 * limits.ANSWER_MS_MAX, session_timeout_ms=600_000)
    await first.join()
    await first.sync({first.id: b"all"})
    second = await ClassicMember.connect(s, rebalance_timeout_ms=3 * limits.ANSWER_MS_MAX, session_timeout_ms=600_000)
    joining = s.runtime.spawn(second.join(), "join")
    await s.runtime.sleep(2 * limits.ANSWER_MS_MAX)
    assert not second.client.frames.is_lost
    await s.runtime.sleep(2 * limits.ANSWER_MS_MAX)
    assert joining.done()
    assert not second.client.frames.is_lost


def test_producers_that_ask_for_an_id_without_a_controller_are_all_answered_in_time() -> None:
    roles = [CONTROLLER, BROKER]
    with a_cluster(2, seed=1, roles=roles) as cluster:
        cluster.node(1).crash()

        async def scenario(runtime: SimRuntime) -> list[tuple[int, float]]:
            told: list[tuple[int, float]] = []
            began_ms = runtime.now_ms()

            async def asks() -> None:
                client = await cluster.connect(runtime, 2)
                answer = await client.call(InitProducerIdRequest(transactional_id=None), 4)
                told.append((answer.error_code, runtime.now_ms() - began_ms))

            for _ in range(5):
                runtime.spawn(asks(), "producer")
            while len(told) < 5:
                await runtime.sleep(1_000)
                assert runtime.now_ms() - began_ms < 100_000, told
            return told

        for code, took_ms in run(cluster, scenario):
            assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert took_ms < PRODUCER_IDS_MS + 1_000


ADMINISTRATIVE: list[tuple[Message, int]] = [
    (FindCoordinatorRequest(coordinator_keys=["g"]), 4),  # makes the topic in which groups are kept
    (InitProducerIdRequest(transactional_id=None), 4),
    (MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True), 12),
    (CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7),
    (DeleteTopicsRequest(topics=[DeleteTopicState(name="u")], timeout_ms=60_000), 6),
    (ElectLeadersRequest(topic_partitions=None, timeout_ms=60_000), 2),
    (AlterPartitionReassignmentsRequest(timeout_ms=60_000), 0),
    (ListPartitionReassignmentsRequest(timeout_ms=60_000, topics=None), 0),
    (IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="u")]), 1),
    (UnregisterBrokerRequest(broker_id=2), 0),
    (UpdateFeaturesRequest(), 1),
    (DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData("__cluster_metadata", [])]), 2),
]


@pytest.mark.parametrize("remaining", ["the active controller", "another node"])
def test_administrative_requests_are_answered_in_time_by_a_node_without_a_quorum(remaining: str) -> None:
    for request, version in ADMINISTRATIVE:
        with a_cluster(3, seed=4) as cluster:
            controller = cluster.await_controller()
            node = controller if remaining == "the active controller" else others(cluster, controller)[0]
            node.isolate()
            began_ms = cluster.world.now_ms
            ask(cluster, node.node_id, request, version)
            took_ms = cluster.world.now_ms - began_ms
            assert took_ms < FORWARD_MS + IN_FORCE_MS, f"{type(request).__name__}: {took_ms:.0f} ms"
