"""What the tests of the broker share: a broker in a world of its own, and the requests they send again and again.

    @simulated({"num.partitions": "2"})
    async def test_something(s: Session) -> None:
        await s.create("t")
        assert (await s.produce("t", b"one")).base_offset == 0

Such a test runs on a client's host, in virtual time. When it has passed, the broker is stopped cleanly, and no handler
may have raised what it should not.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from penstock.sim import SimRuntime, World
from penstock.sim.broker import ProtocolClient, SimBroker
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.codec import Message
from penstock.wire.compression import Codec
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.records import Record, build_batch, iter_batches, iter_records

LATEST, EARLIEST = -1, -2
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
PRODUCE_TIMEOUT_MS = 30_000
RECORDS_BYTES_MAX = 1 << 26

Scenario = Callable[..., Coroutine[Any, Any, None]]


def simulated(
    settings: Mapping[str, str] | None = None, *, seed: int | str = 0, stop: bool = True
) -> Callable[[Scenario], Callable[..., None]]:
    """Make a test of an async function that takes a `Session`. Parameters beyond that are pytest's."""

    def decorate(scenario: Scenario) -> Callable[..., None]:
        def test(**parameters: Any) -> None:
            run_session(functools.partial(scenario, **parameters), settings, seed=seed, stop=stop)

        test.__name__ = scenario.__name__
        test.__doc__ = scenario.__doc__
        test.__module__ = scenario.__module__
        signature = inspect.signature(scenario)
        test.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
        if hasattr(scenario, "pytestmark"):
            test.pytestmark = scenario.pytestmark  # type: ignore[attr-defined]
        return test

    return decorate


def run_session(
    scenario: Scenario, settings: Mapping[str, str] | None = None, *, seed: int | str = 0, stop: bool = True
) -> SimBroker:
    """One broker, one client; returns what is left of the broker."""
    with World(seed) as world:
        node = SimBroker(world, settings)
        node.start()

        async def main(runtime: SimRuntime) -> None:
            await scenario(await Session.open(runtime, node))

        world.execute(main)
        expect_no_surprise(node)
        if stop and not node.process.is_dead:
            node.stop()
        return node


def expect_no_surprise(node: SimBroker) -> None:
    """No handler of this broker raised what it should not have."""
    told = [f"{entry.fields['error']} at {entry.fields['trace']}" for entry in node.events.named("unexpected error")]
    assert not told, "\n".join(dict.fromkeys(told))
    assert node.broker is None or node.broker.metrics.unexpected_errors == 0


class Session:
    """A client's view of one broker."""

    def __init__(self, runtime: SimRuntime, node: SimBroker, client: ProtocolClient) -> None:
        self.runtime = runtime
        self.node = node
        self.client = client

    @classmethod
    async def open(cls, runtime: SimRuntime, node: SimBroker) -> Session:
        return cls(runtime, node, await ProtocolClient.connect(runtime, node))

    @property
    def world(self) -> World:
        return self.runtime.world

    async def connect(self) -> ProtocolClient:
        return await ProtocolClient.connect(self.runtime, self.node)

    async def restarted(self, *, power_loss: bool = False) -> None:
        """End the broker without warning, and wait until it serves again and has recovered."""
        if power_loss:
            self.node.host.power_loss()
        else:
            self.node.host.kill()
        await self.started()

    async def started(self) -> None:
        self.node.begin()
        await self.until(lambda: is_recovered(self.node))
        await self.reconnect()

    async def reconnect(self) -> None:
        self.client.close()
        self.client = await self.connect()

    async def call(self, request: Message, version: int | None = None) -> Any:
        return await self.client.call(request, newest(request) if version is None else version)

    # ---- topics

    async def create(self, name: str, partitions: Any = 1, **configs: str) -> bytes:
        """Create a topic and return its id. `segment_bytes="…"` sets `segment.bytes`. (`partitions` is an integer; its
        type lets callers spread dictionaries of settings.)"""
        result = await self.try_create(name, partitions, **configs)
        assert result.error_code == 0, f"{name}: {result.error_code} {result.error_message}"
        return result.topic_id

    async def try_create(self, name: str, partitions: Any = 1, **configs: str) -> Any:
        settings = [CreatableTopicConfig(name=dotted(key), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        return (await self.call(CreateTopicsRequest(topics=[topic]))).topics[0]

    async def delete(self, name: str) -> None:
        answer = await self.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        assert answer.responses[0].error_code == 0, answer.responses

    async def describe(self, name: str) -> MetadataResponseTopic:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return (await self.call(wanted)).topics[0]

    async def topics(self) -> list[str]:
        return [topic.name for topic in (await self.call(MetadataRequest(topics=None))).topics]

    async def alter(self, name: str, kind: Any = TOPIC, **configs: str | None) -> Any:
        """Set these configs, or delete those that are None; the result of the one resource."""
        changes = [
            AlterableConfig(name=dotted(key), config_operation=DELETE if value is None else SET, value=value)
            for key, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        return (await self.call(IncrementalAlterConfigsRequest(resources=[resource]))).responses[0]

    # ---- records

    async def produce(
        self,
        topic: str,
        *values: bytes,
        records: bytes | None = None,
        partition: int = 0,
        acks: int = -1,
        version: int = 12,
        client: ProtocolClient | None = None,
    ) -> PartitionProduceResponse:
        request = produce_request(topic, batch(*values) if records is None else records, partition, acks)
        answer = await (client or self.client).call(request, version)
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self,
        topic: str,
        offset: int = 0,
        *,
        partition: int = 0,
        version: int = 12,
        client: ProtocolClient | None = None,
        **options: Any,
    ) -> PartitionData:
        """One partition, without a session."""
        answer = await (client or self.client).call(fetch_request(topic, offset, partition, **options), version)
        return answer.responses[0].partitions[0]

    async def records(self, topic: str, partition: int = 0, *, offset: int | None = None) -> list[Record]:
        """Everything from the offset (or the log's start) to the high watermark."""
        found: list[Record] = []
        if offset is None:
            offset = await self.offset(topic, EARLIEST, partition)
        while True:
            data = await self.fetch(topic, offset, partition=partition)
            assert data.error_code == 0, f"{topic}-{partition}: error {data.error_code} at {offset}"
            new = [record for record in records_of(data) if record.offset >= offset]
            if not new:
                assert offset == data.high_watermark
                return found
            found += new
            offset = new[-1].offset + 1

    async def values(self, topic: str, partition: int = 0) -> list[bytes]:
        return [record.value or b"" for record in await self.records(topic, partition)]

    async def offset(self, topic: str, timestamp: int, partition: int = 0) -> int:
        entry = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[entry])])
        result = (await self.call(request)).topics[0].partitions[0]
        assert result.error_code == 0, result
        return result.offset

    async def producer_id(self) -> int:
        answer = await self.call(InitProducerIdRequest(transactional_id=None))
        assert answer.error_code == 0
        return answer.producer_id

    # ---- time

    async def until(self, condition: Callable[[], bool], *, limit_ms: float = 600_000, step_ms: float = 50) -> float:
        """Let virtual time pass until it is so; returns how long it took."""
        began_ms = self.runtime.now_ms()
        while not condition():
            assert self.runtime.now_ms() - began_ms < limit_ms, "it never became so"
            await self.runtime.sleep(step_ms)
        return self.runtime.now_ms() - began_ms


def is_recovered(node: SimBroker) -> bool:
    """The broker serves, and all that its logs have may be read."""
    if not node.ready or node.served.manager.recovering:
        return False
    partitions = list(node.served.manager.table.all())
    return all(p.leader and p.log and p.leader.high_watermark >= p.log.end_offset for p in partitions)


def dotted(name: str) -> str:
    return name.replace("_", ".")


def newest(request: Message) -> int:
    key = next(key for key, api in SERVED.items() if api.request is type(request))
    return SERVED[key].max_version


def versions(key: ApiKey) -> range:
    return SERVED[key].versions


def batch(
    *values: bytes,
    timestamp: int = 1_750_001_000_000,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """A batch as a producer sends it; its records are a millisecond apart."""
    records = [Record(timestamp=timestamp + number, value=value) for number, value in enumerate(values)]
    return build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def produce_request(
    topic: str | bytes, records: bytes, partition: int = 0, acks: int = -1, *, timeout_ms: int = PRODUCE_TIMEOUT_MS
) -> ProduceRequest:
    """By name, or by id if `topic` is bytes."""
    entry = PartitionProduceData(index=partition, records=records)
    named = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(**named, partition_data=[entry])]
    )


def fetch_request(
    topic: str | bytes,
    offset: int = 0,
    partition: int = 0,
    *,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **options: Any,
) -> FetchRequest:
    """One partition, by name, or by id if `topic` is bytes; without a wait or a session unless asked for."""
    entry = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    named = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    return FetchRequest(topics=[FetchTopic(**named, partitions=[entry])], **options)


def records_of(data: PartitionData) -> list[Record]:
    found: list[Record] = []
    for _, view in iter_batches(data.records or b""):
        found += iter_records(view, max_decompressed_bytes=RECORDS_BYTES_MAX)
    return found


def measured(node: SimBroker, name: str) -> float:
    """A metric of a running broker that has no labels."""
    return next(sample.value for sample in node.served.metrics.samples() if sample.name == name)
