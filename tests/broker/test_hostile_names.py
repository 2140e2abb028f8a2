"""Requests of every API of both tables with hosts, names and ids that someone made up: no node ends, none is harmed.

The attacker knows the cluster's id, the nodes' directories and the topics, as anyone does who may describe the cluster.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from broker.clusters import create, state
from broker.session import batch, expect_no_surprise
from broker.test_access import ask_at, two_listeners
from penstock.broker.net.request import Request
from penstock.broker.node import advertised
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.quorum import wire as quorum_wire
from penstock.broker.replicas.partition import Wakes
from penstock.broker.service import Service
from penstock.config import BrokerConfig
from penstock.raft import LogBatch, OffsetAndEpoch, encode_batch
from penstock.raft import messages as m
from penstock.sim import SimRuntime, World
from penstock.sim.broker import KAFKA_PORT, RecordedEvents, read_answer, request_frame
from penstock.sim.client import FrameClient
from penstock.sim.cluster import CONTROLLER_PORT, SimCluster
from penstock.sim.fuzz import samples as sample
from penstock.wire.apis import OF_CONTROLLERS, SERVED, ApiKey, ServedApi
from penstock.wire.codec import Message, to_bytes
from penstock.wire.errors import ErrorCode, WireError
from penstock.wire.messages import metadata_records as r
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from penstock.wire.messages.api_versions import ApiVersionsResponse
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest
from penstock.wire.messages.broker_registration import Listener as BrokerListener
from penstock.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.schema import layout
from wire.test_valid import HOSTILE_HOSTS

HOSTS = (*(host for host in HOSTILE_HOSTS if host.isprintable() or "\0" in host or "\n" in host), "node-2", "localhost")
NAMES = ("t", "", "..", "../../x", "a/b", "a\0b", "a\nb", "x" * 250, "__cluster_metadata", "__consumer_offsets")
NO_TOPICS = NAMES[1:-1]
LEAVE_ALONE = (ApiKey.DELETE_TOPICS, ApiKey.REMOVE_RAFT_VOTER)
"""With true ids these do what they say, and what follows would prove nothing."""
ANSWER_MS = 2_000
REQUESTS_OF_EACH = 2
"""Of each version of each API."""


class Attacker:
    def __init__(self, rng: Random, cluster: SimCluster) -> None:
        self.rng = rng
        self.cluster = cluster
        quorum = cluster.node(1).served.quorum
        self.cluster_id = quorum.cluster_id
        self.directories = [key.directory_id for key in quorum.core.voter_set.keys]
        topic = cluster.node(1).image.topic("t")
        assert topic is not None
        self.ids = [*self.directories, topic.topic_id, bytes(16), b"x" * 16]

    def request(self, api: ServedApi, version: int) -> Message:
        message = sample.message(api.request, version, self.rng)
        self.twist(message, version)
        if api.key == ApiKey.ENVELOPE:
            inner = self.rng.choice([one for key, one in SERVED.items() if key not in LEAVE_ALONE])
            within = self.rng.choice(list(inner.versions))
            message.request_data = request_frame(self.request(inner, within), within, 1)  # type: ignore[attr-defined]
        return message

    def twist(self, message: Message, version: int) -> None:
        shape = layout(type(message), version)
        for field in (*shape.fields, *shape.tagged):
            value = getattr(message, field.name)
            if isinstance(value, Message):
                self.twist(value, version)
            elif isinstance(value, list) and value and isinstance(value[0], Message):
                for element in value:
                    self.twist(element, version)
            elif self.rng.random() < 0.9:
                twisted = self.value(field.name, field.type, value)
                if twisted is not None:
                    setattr(message, field.name, twisted)

    def value(self, name: str, kind: object, value: object) -> object:
        rng = self.rng
        if name == "cluster_id":
            return self.cluster_id
        if "host" in name and isinstance(value, str):
            return rng.choice(HOSTS)
        if name == "topic_name" or (name == "name" and rng.random() < 0.3):
            return rng.choice(("__cluster_metadata", "t"))
        if isinstance(value, str):
            return rng.choice(NAMES)
        if kind == "uuid" and isinstance(value, list):
            return [rng.choice(self.ids) for _ in value] or [rng.choice(self.ids)]
        if kind == "uuid":
            return rng.choice(self.ids)
        if name == "port":
            return rng.choice((0, 1, 9092, 65_535))
        if name.endswith("_id") and isinstance(value, int):
            return rng.choice((1, 2, 3, 9, -1))
        if name.endswith("epoch") and isinstance(value, int):
            return rng.choice((-1, 0, self.cluster.node(1).served.quorum.core.epoch, 2**31 - 1))
        if name in ("partition", "partition_index", "index") and isinstance(value, int):
            return rng.choice((0, 0, 1, -1, 2**31 - 1))
        if name in ("max_wait_ms", "timeout_ms"):
            return 0
        return None


async def sent(runtime: SimRuntime, node_id: int, port: int, request: Message, version: int) -> None:
    """Send it, and wait for an answer that can be read, for the end of the connection, or for long enough."""
    client = await FrameClient.connect(runtime, f"node-{node_id}", port)
    client.send(request_frame(request, version, 7))
    timer = runtime.call_later(ANSWER_MS, client.close)
    try:
        read_answer(await client.receive(), request, version, 7)
    except ConnectionError:
        pass
    finally:
        timer.cancel()
        client.close()


@contextmanager
def a_victim(seed: str) -> Iterator[SimCluster]:
    with World(seed) as world:
        cluster = SimCluster(world, 3)
        two_listeners(cluster)
        cluster.start()
        assert create(cluster, "t").error_code == ErrorCode.NONE
        yield cluster
        world.run(15_000)
        assert all(node.is_alive for node in cluster.nodes)
        for node in cluster.nodes:
            expect_no_surprise(node)
        cluster.await_controller()
        assert create(cluster, f"after-{seed}").error_code == ErrorCode.NONE
        cluster.await_(lambda: len(state(cluster, "t").isr) == 3)


TABLES = {KAFKA_PORT: SERVED, CONTROLLER_PORT: OF_CONTROLLERS}


@pytest.mark.parametrize("port", TABLES)
def test_no_request_of_any_api_with_hostile_names_ends_a_node(port: int) -> None:
    rng = Random(f"names-{port}")
    with a_victim(f"names-{port}") as cluster:
        attacker = Attacker(rng, cluster)

        async def attack(runtime: SimRuntime) -> None:
            for key, api in TABLES[port].items():
                for version in api.versions if key not in LEAVE_ALONE else ():
                    for _ in range(REQUESTS_OF_EACH):
                        request = attacker.request(api, version)
                        try:
                            request_frame(request, version, 7)
                        except (WireError, UnicodeError, ValueError, struct.error):
                            continue  # it cannot even be written down
                        await sent(runtime, rng.choice((1, 2, 3)), port, request, version)

        cluster.world.execute(attack, limit_ms=10_000_000)


# -- single attacks --------------------------------------------------------------------------------------------------


def test_a_voter_whose_host_no_resolver_takes_is_refused_by_whichever_node() -> None:
    with a_victim("voter") as cluster:
        for number, host in enumerate(HOSTS[:-2]):
            at = Listener(name="CONTROLLER", host=host, port=9092)
            request = AddRaftVoterRequest(cluster_id=None, voter_id=9, voter_directory_id=b"d" * 16, listeners=[at])
            answer = ask_at(cluster, 1 + number % 3, KAFKA_PORT, request, 0)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert "is not a host name or address" in answer.error_message


def test_a_broker_that_lives_cannot_be_replaced_by_whoever_knows_its_directory() -> None:
    with a_victim("replaced") as cluster:
        controller = cluster.await_controller()
        before = {node.node_id: node.served.lifecycle.epoch for node in cluster.nodes}
        for node in cluster.nodes:
            known = controller.image.broker(node.node_id)
            assert known is not None
            request = BrokerRegistrationRequest(
                broker_id=node.node_id,
                cluster_id=controller.served.quorum.cluster_id,
                incarnation_id=b"i" * 16,
                listeners=[BrokerListener(name="PLAINTEXT", host="node-1", port=1)],
                features=sample_features(controller),
                log_dirs=list(known.directories),
            )
            answer = ask_at(cluster, controller.node_id, CONTROLLER_PORT, request, 4)
            assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        cluster.world.run(5_000)
        assert {node.node_id: node.served.lifecycle.epoch for node in cluster.nodes} == before


def sample_features(node: Any) -> list[Any]:
    return list(node.served.lifecycle._request().features)


def test_a_setting_that_one_nodes_own_settings_forbid_ends_nobody() -> None:
    forbidding = {"log.cleaner.max.compaction.lag.ms": "1000"}
    with World("settings") as world:
        cluster = SimCluster(world, 3)
        odd = cluster.node(3)
        odd.settings.update(forbidding)
        cluster.start()
        controller = cluster.await_controller()
        assert controller is not odd
        name = "log.cleaner.min.compaction.lag.ms"
        setting = AlterableConfig(name=name, config_operation=0, value="5000")
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[setting])
        answer = ask_at(cluster, 1, KAFKA_PORT, IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == ErrorCode.NONE
        cluster.await_images()
        assert all(node.is_alive for node in cluster.nodes)
        assert name in odd.events.said("config not applied", "problems")[0]
        odd.restart()
        cluster.await_ready()
        assert create(cluster, "after").error_code == ErrorCode.NONE


# -- a leader that never was ------------------------------------------------------------------------------------------


class FalseLeader:
    """A host that has nodes believe that it leads, and answers their fetches with what someone made up."""

    ID, HOST = 77, "false"

    def __init__(self, cluster: SimCluster, rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.epoch = cluster.await_controller().served.quorum.core.epoch + 1
        self.fetches = 0

    async def serve(self, runtime: SimRuntime) -> None:
        config = BrokerConfig.resolve({"listeners": f"PLAINTEXT://{self.HOST}:{CONTROLLER_PORT}", "log.dirs": "d"})
        wakes = Wakes(runtime.call_soon)
        service = Service(runtime, config, RecordedEvents(), BrokerMetrics(), wakes, OF_CONTROLLERS)
        versions = ApiVersionsResponse(api_keys=advertised(OF_CONTROLLERS))
        service.add(ApiKey.API_VERSIONS, lambda context, request: versions)
        service.add(ApiKey.FETCH, self.fetched)
        service.add(ApiKey.FETCH_SNAPSHOT, self.fetched_snapshot)
        await runtime.listen(self.HOST, CONTROLLER_PORT, service.connection)
        service.open()
        await runtime.future()

    def announce(self, node_id: int) -> Any:
        key = self.cluster.node(node_id).served.quorum.key
        message = m.BeginQuorumEpochRequest(self.ID, node_id, 0, self.epoch, key)
        own = ("CONTROLLER", self.HOST, CONTROLLER_PORT)
        request = quorum_wire.to_request(message, self.cluster.node(node_id).served.quorum.cluster_id, own)
        return ask_at(self.cluster, node_id, CONTROLLER_PORT, request, 1)

    def fetched(self, context: Request, request: Message) -> Message:
        assert isinstance(request, FetchRequest)
        rng = self.rng
        self.fetches += 1
        offset = request.topics[0].partitions[0].fetch_offset
        answer = m.FetchResponse(self.ID, 1, 0, ErrorCode.NONE, self.ID, self.epoch, rng.choice((-1, offset, 2**62)))
        match rng.randrange(8):
            case 0:
                place = OffsetAndEpoch(rng.choice((0, offset, 2**63 - 1)), self.epoch)
                return quorum_wire.to_response(replace(answer, snapshot=place), {})
            case 1:
                place = OffsetAndEpoch(rng.choice((0, offset, 2**63 - 1)), rng.choice((0, self.epoch)))
                return quorum_wire.to_response(replace(answer, diverging=place), {})
            case _:
                told = {self.ID: (rng.choice(HOSTS), rng.choice((0, 9092)))}
                try:
                    wire = quorum_wire.to_response(answer, told, self.batches(offset))
                    to_bytes(wire, context.version)
                    return wire
                except (WireError, UnicodeError):
                    return quorum_wire.to_response(answer, {})

    def fetched_snapshot(self, context: Request, request: Message) -> Message:
        assert isinstance(request, FetchSnapshotRequest)
        asked = request.topics[0].partitions[0]
        place = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        piece = m.FetchSnapshotResponse(self.ID, 1, 0, ErrorCode.NONE, self.ID, self.epoch, place, asked.position)
        return quorum_wire.to_response(piece, {}, self.batches(0), self.rng.choice((1, 50, 2**40)))

    def batches(self, offset: int) -> bytes:
        rng = self.rng
        at = rng.choice((offset, offset, offset, 0, offset + 1))
        named = r.TopicRecord(name=rng.choice(NO_TOPICS), topic_id=rng.randbytes(16))
        listed = r.BrokerEndpoint(name="X", host=rng.choice(HOSTS), port=rng.choice((0, 9092)))
        unheard_of = b"\x01\x63\x00"
        value = rng.choice((rng.randbytes(20), unheard_of))
        with suppress(WireError, UnicodeError):
            refused = (named, r.RegisterBrokerRecord(broker_id=-1), r.PartitionRecord(partition_id=-1))
            unfit = r.RegisterBrokerRecord(broker_id=-1, end_points=[listed])
            value = rng.choice((value, r.encode_metadata_record(rng.choice((*refused, unfit)))))
        batch = bytearray(encode_batch(LogBatch(at, 1, self.epoch, values=(value,)), 1))
        if rng.random() < 0.3:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        return bytes(batch)


@pytest.mark.parametrize("seed", range(3))
def test_a_false_leader_ends_no_node_and_leaves_nothing_behind(seed: int) -> None:
    with a_victim(f"false-{seed}") as cluster:
        false = FalseLeader(cluster, Random(f"false-{seed}"))
        host = cluster.world.host(false.HOST)
        host.start(false.serve)
        for node_id in (1, 2, 3):
            assert false.announce(node_id).error_code == ErrorCode.NONE
        cluster.world.run(1_500)
        assert false.fetches > 10
        assert all(node.is_alive for node in cluster.nodes)
        host.kill()
        cluster.await_controller()
        cluster.world.run(1_000)  # a node may not have heard of the topic before
        for node in cluster.nodes:
            assert node.image.topic_names() == ["t"]
            assert sorted(node.image.brokers) == [1, 2, 3]


# -- a broker that is none --------------------------------------------------------------------------------------------


class FalseBroker:
    """Registers as a broker, is made the leader of a topic, and answers its followers with what someone made up."""

    ID, HOST, PORT = 9, "false", 9392

    def __init__(self, cluster: SimCluster, rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.fetches = 0

    async def serve(self, runtime: SimRuntime) -> None:
        config = BrokerConfig.resolve({"listeners": f"PLAINTEXT://{self.HOST}:{self.PORT}", "log.dirs": "d"})
        service = Service(runtime, config, RecordedEvents(), BrokerMetrics(), Wakes(runtime.call_soon), SERVED)
        versions = ApiVersionsResponse(api_keys=advertised(SERVED))
        service.add(ApiKey.API_VERSIONS, lambda context, request: versions)
        service.add(ApiKey.FETCH, self.fetched)
        await runtime.listen(self.HOST, self.PORT, service.connection)
        service.open()
        await runtime.future()

    def join(self) -> None:
        controller = self.cluster.await_controller()
        registered = ask_at(
            self.cluster,
            controller.node_id,
            CONTROLLER_PORT,
            BrokerRegistrationRequest(
                broker_id=self.ID,
                cluster_id=controller.served.quorum.cluster_id,
                incarnation_id=b"i" * 16,
                listeners=[BrokerListener(name="INTERNAL", host=self.HOST, port=self.PORT)],
                features=sample_features(controller),
                log_dirs=[b"\x77" * 16],
            ),
            4,
        )
        beat = BrokerHeartbeatRequest(
            broker_id=self.ID, broker_epoch=registered.broker_epoch, current_metadata_offset=2**40
        )
        assert not ask_at(self.cluster, controller.node_id, CONTROLLER_PORT, beat, 1).is_fenced
        assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=[self.ID, 1, 2])
        topic = CreatableTopic(name="lured", num_partitions=-1, replication_factor=-1, assignments=[assigned])
        created = ask_at(self.cluster, 1, KAFKA_PORT, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert created.topics[0].error_code == ErrorCode.NONE

    def fetched(self, context: Request, request: Message) -> Message:
        assert isinstance(request, FetchRequest)
        self.fetches += 1
        rng = self.rng
        topics = [
            FetchableTopicResponse(topic_id=topic.topic_id, partitions=[self.answer(one) for one in topic.partitions])
            for topic in request.topics
        ]
        session = rng.choice((0, 1, 5, -1))
        return FetchResponse(error_code=rng.choice((0, 0, 0, 9999, 70)), session_id=session, responses=topics)

    def answer(self, asked: Any) -> PartitionData:
        rng = self.rng
        numbers = (-(2**63), -1, 0, 1, asked.fetch_offset, asked.fetch_offset + 1, 2**62, 2**63 - 1)
        records = bytearray(batch(b"x", b"y"))
        records[:8] = (asked.fetch_offset + rng.choice((0, 0, 0, 1))).to_bytes(8, "big")
        for _ in range(rng.choice((0, 0, 1, 3))):
            records[rng.randrange(len(records))] ^= 1 << rng.randrange(8)
        data = PartitionData(
            partition_index=asked.partition,
            error_code=rng.choice((0, 0, 0, 0, 1, 74, 75, 9999)),
            high_watermark=rng.choice(numbers),
            last_stable_offset=rng.choice(numbers),
            log_start_offset=rng.choice(numbers),
            records=rng.choice((bytes(records), bytes(records), bytes(records[:-5]), rng.randbytes(80), b"")),
        )
        if rng.random() < 0.3:
            data.diverging_epoch = EpochEndOffset(epoch=rng.choice((-1, 0, 2**31 - 1)), end_offset=rng.choice(numbers))
        return data


@pytest.mark.parametrize("seed", range(2))
def test_a_false_broker_that_leads_ends_none_of_its_followers(seed: int) -> None:
    with a_victim(f"broker-{seed}") as cluster:
        false = FalseBroker(cluster, Random(f"broker-{seed}"))
        host = cluster.world.host(false.HOST)
        host.start(false.serve)
        false.join()
        cluster.world.run(6_000)
        assert false.fetches > 20
        assert all(node.is_alive for node in cluster.nodes)
        host.kill()
