"""Brokers that copy partitions from each other, under a controller that the test directs.

Each node is real from its listener to its logs, but has no metadata quorum: the controller's records reach a node when
the test says so (`hear`), or at once (`eager`). So a test can leave one node with outdated metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from broker.session import batch, fetch_request, produce_request, records_of
from penstock.broker.apis import api_versions, delete_records, list_offsets, offset_for_leader_epoch
from penstock.broker.apis.fetch import Fetch
from penstock.broker.apis.produce import Produce
from penstock.broker.apis.replica_fetch import ReplicaFetch
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.net.peers import Peers
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.produce.preparing import Preparation
from penstock.broker.replicas.partition import Partition, Wakes
from penstock.broker.replicas.partitions import PartitionManager
from penstock.broker.service import Service
from penstock.config import BrokerConfig
from penstock.log import LogDirectory
from penstock.metadata import EMPTY_IMAGE, MetadataDelta, MetadataImage, PartitionState
from penstock.sim import SimRuntime, World
from penstock.sim.broker import ProtocolClient, RecordedEvents
from penstock.sim.client import FrameClient
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import metadata_records as r
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from penstock.wire.messages.api_versions import ApiVersion
from penstock.wire.records import Record

PORT = 9092
TOPIC_ID = b"0123456789abcdef"
TOPIC = "t"
LATENCY_MS = 1.0
REQUEST_TIMEOUT_MS = 40_000.0
FAST = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}


class Sound:
    """A quorum with complete metadata."""

    is_sound = True

    async def removed_topics(self) -> dict[str, str]:
        return {}


class ControlledPeers(Peers):
    def __init__(self, runtime: SimRuntime, cluster: Replicas, node_id: int) -> None:
        super().__init__(runtime, node_id)
        self._cluster = cluster
        self._id = node_id
        self._sleep = runtime.sleep
        self.broker_address = lambda node: (f"node{node}", PORT)

    async def controller_call(self, request: Message, *, timeout_ms: float, **_: Any) -> Any:
        await self._sleep(LATENCY_MS)
        if self._id in self._cluster.without_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        assert isinstance(request, AlterPartitionRequest)
        response = self._cluster.alter(self._id, request)
        await self._sleep(LATENCY_MS)
        return response


class Node:
    """One broker. It also provides what `api_versions` and others need from `penstock.broker.node.Node`."""

    def __init__(self, cluster: Replicas, node_id: int, settings: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.name = f"node{node_id}"
        self.host = cluster.world.host(self.name)
        self.config = BrokerConfig.resolve(
            {"node.id": str(node_id), "log.dirs": "d", "listeners": f"PLAINTEXT://{self.name}:{PORT}", **settings}
        )
        self.events = RecordedEvents()
        self.advertised_apis = [
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in SERVED.values()
        ]
        self.ready = False
        self.image: MetadataImage = EMPTY_IMAGE
        self.applied = 0
        self.manager: PartitionManager

    @property
    def table(self) -> Any:
        return self.manager.table

    @property
    def partition(self) -> Partition:
        found = self.manager.table.find(TOPIC.encode(), 0)
        assert found is not None
        return found

    @property
    def log(self) -> Any:
        return self.partition.log

    @property
    def epochs(self) -> list[tuple[int, int]]:
        entries: list[tuple[int, int]] = self.log.epochs.entries
        return entries

    def start(self) -> None:
        self.ready = False
        self.host.start(self._main)

    def crash(self, *, power_loss: bool = False) -> None:
        self.ready = False
        if power_loss:
            self.host.power_loss()
        else:
            self.host.kill()

    async def _main(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self._applying = False
        stopping = runtime.future()
        runtime.on_stop(partial(stopping.set_result, None))
        wakes, metrics = Wakes(runtime.call_soon), BrokerMetrics()
        self.service = Service(runtime, self.config, self.events, metrics, wakes)
        await runtime.listen(self.name, PORT, self.service.connection)
        directory = LogDirectory(runtime)
        await directory.load()
        self.peers = ControlledPeers(runtime, self.cluster, self.node_id)
        self.manager = PartitionManager(runtime, self.events, self.config, wakes, directory, self.peers, Sound())
        self.applied = len(self.cluster.history)
        self.image = self.cluster.history[-1][1]
        await self.manager.open(self.image)
        self.manager.roles.registered(self.cluster.broker_epochs[self.node_id])
        sessions = FetchSessions(runtime.rng, runtime.now_ms, 100)
        fetch = Fetch(runtime, self.manager.table, sessions, metrics)
        fetch.replicas = ReplicaFetch(
            runtime,
            self.manager.table,
            self.node_id,
            lambda: self.image,
            self.manager.roles.isr_changes.propose,
            self.manager.throttles.leader,
            self.manager.roles.contact.heard_follower,
            self.manager.roles.damage.suspect,
        )
        preparation = Preparation(runtime, self.events, metrics, self.config)
        self.service.add_raw(ApiKey.PRODUCE, Produce(runtime, self.manager.table, metrics, preparation).serve)
        self.service.add_raw(ApiKey.FETCH, fetch.serve)
        for key, serve in (
            (ApiKey.API_VERSIONS, api_versions.serve),
            (ApiKey.LIST_OFFSETS, list_offsets.serve),
            (ApiKey.DELETE_RECORDS, delete_records.serve),
            (ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.serve),
        ):
            self.service.add(key, partial(serve, self))  # type: ignore[arg-type]
        self.service.open()
        self.ready = True
        await stopping
        await self.service.drain(1000)
        await self.manager.close()
        self.peers.close()
        await directory.close()

    def hear(self) -> None:
        """Deliver everything that the controller has recorded."""
        process = self.host.process
        if process is not None and not process.is_dead and self.ready:
            process.deliver(lambda: self.runtime.spawn(self._apply(), "news"))

    async def _apply(self) -> None:
        if self._applying:
            return
        self._applying = True
        while self.applied < len(self.cluster.history):
            delta, image = self.cluster.history[self.applied]
            self.applied += 1
            self.image = image
            await self.manager.on_image(delta, image)
        self._applying = False


class Replicas:
    """A topic `t` with one partition on all of `count` nodes; node 1 leads at first."""

    def __init__(
        self,
        world: World,
        settings: Mapping[str, str] | None = None,
        *,
        count: int = 3,
        topic: Mapping[str, str] | None = None,
    ) -> None:
        self.world = world
        self.eager = True
        self.topic_id = TOPIC_ID
        self.history: list[tuple[MetadataDelta, MetadataImage]] = [(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE)]
        self.broker_epochs = {node: 100 + node for node in range(1, count + 1)}
        self.without_controller: list[int] = []
        self.refusing = False
        self.altered: list[tuple[int, ...]] = []
        self.nodes = {node: Node(self, node, {**FAST, **(settings or {})}) for node in self.broker_epochs}
        everyone = list(self.nodes)
        self.record(
            *(self._registration(node) for node in everyone),
            *(
                r.ConfigRecord(resource_type=2, resource_name=TOPIC, name=name, value=value)
                for name, value in (topic or {}).items()
            ),
            r.TopicRecord(name=TOPIC, topic_id=self.topic_id),
            r.PartitionRecord(
                partition_id=0,
                topic_id=self.topic_id,
                replicas=everyone,
                isr=everyone,
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[b"\1" * 16] * count,
            ),
        )

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.world.run_until(lambda: all(node.ready for node in self.nodes.values()), 60_000)

    # ---- the controller

    @property
    def state(self) -> PartitionState:
        state = self.history[-1][1].partition(TOPIC, 0)
        assert state is not None
        return state

    def record(self, *records: r.MetadataRecord) -> None:
        image = self.history[-1][1]
        delta = MetadataDelta(image).replay_all(records)
        self.history.append((delta, delta.apply(image.offset + 1, 1)))
        if self.eager:
            self.all_hear()

    def all_hear(self) -> None:
        for node in self.nodes.values():
            node.hear()

    def elect(self, leader: int, *isr: int) -> None:
        change = r.PartitionChangeRecord(partition_id=0, topic_id=self.topic_id, leader=leader)
        if isr:
            change.isr = list(isr)
        self.record(change)

    def set_isr(self, *isr: int) -> None:
        self.record(r.PartitionChangeRecord(partition_id=0, topic_id=self.topic_id, isr=list(isr)))

    def set_replicas(self, *replicas: int) -> None:
        """As at the end of a reassignment: new replicas must catch up before they are in sync."""
        isr = [replica for replica in self.state.isr if replica in replicas]
        directories = [b"\1" * 16] * len(replicas)
        self.record(
            r.PartitionChangeRecord(
                partition_id=0, topic_id=self.topic_id, replicas=list(replicas), isr=isr, directories=directories
            )
        )

    def delete(self) -> None:
        self.record(r.RemoveTopicRecord(topic_id=self.topic_id))

    def recreate(self) -> None:
        """Replace the topic by another with the same name; to a node that was down it is a single step."""
        everyone = list(self.nodes)
        self.record(r.RemoveTopicRecord(topic_id=self.topic_id))
        self.topic_id = bytes(reversed(self.topic_id))
        self.record(
            r.TopicRecord(name=TOPIC, topic_id=self.topic_id),
            r.PartitionRecord(
                partition_id=0,
                topic_id=self.topic_id,
                replicas=everyone,
                isr=everyone,
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[b"\1" * 16] * len(everyone),
            ),
        )

    def reregister(self, node: int, *, fenced: bool = False) -> None:
        """Register a new incarnation without proof of a clean stop."""
        self.broker_epochs[node] += 100
        records: list[r.MetadataRecord] = [self._registration(node, fenced=fenced)]
        if node in self.state.isr and len(self.state.isr) > 1:
            isr = [replica for replica in self.state.isr if replica != node]
            change = r.PartitionChangeRecord(partition_id=0, topic_id=self.topic_id, isr=isr)
            if self.state.leader == node:
                change.leader = isr[0]
            records.append(change)
        self.record(*records)

    def fence(self, node: int, *, fenced: bool = True) -> None:
        self.record(
            r.BrokerRegistrationChangeRecord(
                broker_id=node, broker_epoch=self.broker_epochs[node], fenced=1 if fenced else -1
            )
        )

    def _registration(self, node: int, *, fenced: bool = False) -> r.RegisterBrokerRecord:
        endpoint = r.BrokerEndpoint(name="PLAINTEXT", host=f"node{node}", port=PORT, security_protocol=0)
        return r.RegisterBrokerRecord(
            broker_id=node,
            broker_epoch=self.broker_epochs[node],
            incarnation_id=bytes([node]) * 16,
            end_points=[endpoint],
            fenced=fenced,
            log_dirs=[bytes([node]) * 16],
        )

    def alter(self, sender: int, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if request.broker_epoch != self.broker_epochs[sender]:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        (topic,) = request.topics
        (entry,) = topic.partitions
        state, image = self.state, self.history[-1][1]
        error = ErrorCode.NONE
        members = {member.broker_id: member.broker_epoch for member in entry.new_isr_with_epochs}
        if state.leader != sender or entry.leader_epoch != state.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif entry.partition_epoch != state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif self.refusing or any(
            not image.brokers[node].active or epoch not in (-1, image.brokers[node].epoch)
            for node, epoch in members.items()
        ):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.altered.append(tuple(members))
            self.set_isr(*members)
            state = self.state
        data = AlterPartitionResponsePartitionData(
            partition_index=0,
            error_code=error,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
        )
        return AlterPartitionResponse(
            topics=[AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=[data])]
        )


class Client:
    """A client of these nodes, on a host of its own."""

    def __init__(self, runtime: SimRuntime, cluster: Replicas) -> None:
        self.runtime = runtime
        self.cluster = cluster
        self._clients: dict[int, ProtocolClient] = {}

    def reconnect(self) -> None:
        self._clients.clear()

    async def to(self, node: int) -> ProtocolClient:
        client = self._clients.get(node)
        if client is None or client.frames.is_lost:
            client = ProtocolClient(await FrameClient.connect(self.runtime, f"node{node}", PORT))
            self._clients[node] = client
        return client

    async def call(self, node: int, request: Message, version: int, patience_ms: float = REQUEST_TIMEOUT_MS) -> Any:
        """The response; OSError if there is none within `patience_ms`."""
        client = await self.to(node)
        timer = self.runtime.call_later(patience_ms, client.close)
        try:
            return await client.call(request, version)
        finally:
            timer.cancel()

    async def produce(
        self, node: int, *values: bytes, acks: int = -1, timeout_ms: int = 30_000, **batching: Any
    ) -> Any:
        request = produce_request(TOPIC, batch(*values, **batching), acks=acks, timeout_ms=timeout_ms)
        answer = await self.call(node, request, 12)
        return answer.responses[0].partition_responses[0]

    async def fetch(self, node: int, offset: int = 0, patience_ms: float = REQUEST_TIMEOUT_MS, **options: Any) -> Any:
        answer = await self.call(node, fetch_request(TOPIC, offset, **options), 12, patience_ms)
        return answer.responses[0].partitions[0]

    async def values(self, node: int) -> list[bytes]:
        found: list[Record] = []
        while True:
            data = await self.fetch(node, found[-1].offset + 1 if found else 0)
            assert data.error_code == 0, data.error_code
            new = records_of(data)
            if not new:
                return [record.value or b"" for record in found]
            found += new

    async def until(self, condition: Callable[[], bool], *, limit_ms: float = 60_000) -> float:
        began_ms = self.runtime.now_ms()
        while not condition():
            assert self.runtime.now_ms() - began_ms < limit_ms, "it never became so"
            await self.runtime.sleep(5)
        return self.runtime.now_ms() - began_ms


def replicated(
    scenario: Callable[[Client, Replicas], Any],
    settings: Mapping[str, str] | None = None,
    *,
    seed: int | str = 0,
    count: int = 3,
    topic: Mapping[str, str] | None = None,
) -> Replicas:
    """Run a scenario; afterwards no node may have raised an unexpected exception."""
    with World(seed) as world:
        cluster = Replicas(world, settings, count=count, topic=topic)
        cluster.start()

        async def main(runtime: SimRuntime) -> None:
            await scenario(Client(runtime, cluster), cluster)

        world.execute(main)
        for node in cluster.nodes.values():
            told = [f"{e.fields['error']} at {e.fields['trace']}" for e in node.events.named("unexpected error")]
            assert not told, "\n".join(told)
        return cluster
