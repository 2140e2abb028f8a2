"""Every version of every API that is served does its work: real bytes to a real broker, and the answer says it.

`EXCHANGES` has one conversation per API, held once in each of its versions. What an API does beyond that, and what it
refuses, is in the files named after what it is about.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from broker.absent_exchanges import ABSENT_EXCHANGES
from broker.control_exchanges import CONTROL_EXCHANGES
from broker.group_exchanges import GROUP_EXCHANGES
from broker.group_session import QUICK
from broker.quota_exchanges import QUOTA_EXCHANGES
from broker.session import BROKER, TOPIC, Session, batch, fetch_request, produce_request, records_of, simulated
from broker.telemetry_exchanges import TELEMETRY_EXCHANGES
from broker.transaction_exchanges import TRANSACTION_EXCHANGES, started
from penstock.broker.node import TELEMETRY_APIS
from penstock.sim.broker import KAFKA_PORT
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.messages.alter_configs import AlterableConfig as ReplacedConfig
from penstock.wire.messages.alter_configs import AlterConfigsRequest
from penstock.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.uuids import ZERO_UUID

STORED = [b"zero", b"one", b"two"]
TOPIC_OPERATIONS, CLUSTER_OPERATIONS, NOT_ASKED = 3576, 8096, -(2**31)
"""What Kafka answers without an authorizer."""
FIRST_TIMESTAMP = 1_750_001_000_000


async def produce(s: Session, version: int, topic_id: bytes) -> None:
    name: str | bytes = topic_id if version >= 13 else "t"
    for acks, base_offset in ((-1, 3), (1, 4)):
        answer = await s.call(produce_request(name, batch(b"more"), 0, acks), version)
        (topic,) = answer.responses
        assert (topic.topic_id, topic.name) == ((topic_id, "") if version >= 13 else (ZERO_UUID, "t"))
        (part,) = topic.partition_responses
        assert (part.index, part.error_code, part.base_offset, part.log_append_time_ms) == (0, 0, base_offset, -1)
        assert part.log_start_offset == (0 if version >= 5 else -1)
    s.client.post(produce_request(name, batch(b"last"), 0, 0), version)
    assert await s.values("t") == [*STORED, b"more", b"more", b"last"]


async def fetch(s: Session, version: int, topic_id: bytes) -> None:
    name: str | bytes = topic_id if version >= 13 else "t"
    answer = await s.call(fetch_request(name, session_epoch=0), version)
    assert answer.error_code == 0
    assert bool(answer.session_id) == (version >= 7)
    (topic,) = answer.responses
    assert (topic.topic_id, topic.topic) == ((topic_id, "") if version >= 13 else (ZERO_UUID, "t"))
    (part,) = topic.partitions
    assert (part.partition_index, part.error_code, part.high_watermark, part.last_stable_offset) == (0, 0, 3, 3)
    assert part.log_start_offset == (0 if version >= 5 else -1)
    assert part.preferred_read_replica == -1
    assert not part.aborted_transactions
    assert [(record.offset, record.value) for record in records_of(part)] == list(enumerate(STORED))


async def list_offsets(s: Session, version: int, topic_id: bytes) -> None:
    wanted = {-1: (-1, 3), -2: (-1, 0), FIRST_TIMESTAMP + 1: (FIRST_TIMESTAMP + 1, 1), FIRST_TIMESTAMP + 9: (-1, -1)}
    if version >= 7:
        wanted[-3] = (FIRST_TIMESTAMP + 2, 2)
    if version >= 8:
        wanted[-4] = (-1, 0)
    if version >= 9:
        wanted[-5] = (-1, -1)
    if version >= 11:
        wanted[-6] = (-1, -1)
    for timestamp, (found_timestamp, offset) in wanted.items():
        entry = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topics = [ListOffsetsTopic(name="t", partitions=[entry])]
        answer = await s.call(ListOffsetsRequest(replica_id=-1, topics=topics), version)
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.timestamp, part.offset) == (0, found_timestamp, offset), timestamp
        assert part.leader_epoch == (0 if version >= 4 and offset >= 0 else -1)


async def metadata(s: Session, version: int, topic_id: bytes) -> None:
    everything = MetadataRequest(topics=[] if version == 0 else None)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=version >= 8)
    for request in (everything, asked):
        answer = await s.call(request, version)
        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "broker", KAFKA_PORT)
        assert answer.controller_id == (1 if version >= 1 else -1)
        assert bool(answer.cluster_id) == (version >= 2)
        (topic,) = answer.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
        assert topic.topic_id == (topic_id if version >= 10 else ZERO_UUID)
        assert [part.partition_index for part in topic.partitions] == [0, 1]
        for part in topic.partitions:
            assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (0, 1, [1], [1])
            assert part.leader_epoch == (0 if version >= 7 else -1)
            assert part.offline_replicas == []
    assert topic.topic_authorized_operations == (TOPIC_OPERATIONS if version >= 8 else NOT_ASKED)
    for wanted in (True, False):
        told = MetadataRequest(
            topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="nowhere")],
            allow_auto_topic_creation=version < 4,
            include_cluster_authorized_operations=wanted and 8 <= version <= 10,
            include_topic_authorized_operations=wanted and version >= 8,
        )
        answer = await s.call(told, version)
        cluster = CLUSTER_OPERATIONS if wanted and 8 <= version <= 10 else NOT_ASKED
        assert answer.cluster_authorized_operations == cluster
        found = {one.topic_authorized_operations for one in answer.topics}
        assert found == {TOPIC_OPERATIONS if wanted and version >= 8 else NOT_ASKED}, "as in Kafka, of unknown ones too"
    if version >= 12:
        answer = await s.call(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)]), version)
        assert answer.topics[0].name == "t"


async def find_coordinator(s: Session, version: int, topic_id: bytes) -> None:
    if version < 4:
        answer = await s.call(FindCoordinatorRequest(key="g"), version)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "broker", KAFKA_PORT)
        return
    answer = await s.call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
    found = [(one.key, one.error_code, one.node_id, one.host, one.port) for one in answer.coordinators]
    assert found == [("g", 0, 1, "broker", KAFKA_PORT), ("h", 0, 1, "broker", KAFKA_PORT)]


async def api_versions(s: Session, version: int, topic_id: bytes) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
    answer = await s.call(request, version)
    assert answer.error_code == 0
    told = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    wanted = {key: (api.advertised_min, api.max_version) for key, api in SERVED.items() if key not in TELEMETRY_APIS}
    assert told == wanted
    assert told[ApiKey.PRODUCE][0] == 0
    assert bool(answer.finalized_features) == (version >= 3)
    assert all(feature.min_version > 0 for feature in answer.supported_features) or version >= 4


async def create_topics(s: Session, version: int, topic_id: bytes) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="1234")]
    count, factor = (-1, -1) if version >= 4 else (4, 1)
    topic = CreatableTopic(name="new", num_partitions=count, replication_factor=factor, configs=configs)
    taken = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    for validate_only in (True, False):
        answer = await s.call(CreateTopicsRequest(topics=[topic, taken], validate_only=validate_only), version)
        created, refused = answer.topics
        assert (created.name, created.error_code) == ("new", 0)
        assert (refused.name, refused.error_code) == ("t", 36)
        assert "exists" in refused.error_message
        if version >= 5:
            assert (created.num_partitions, created.replication_factor) == (count if count > 0 else 1, 1)
            assert {c.name: c.value for c in created.configs}["retention.ms"] == "1234"
        described = await s.describe("new")
        assert described.error_code == (3 if validate_only else 0)
    assert len(described.partitions) == (1 if version >= 4 else 4)
    if version >= 7:
        assert created.topic_id == described.topic_id != ZERO_UUID


async def delete_topics(s: Session, version: int, topic_id: bytes) -> None:
    other_id = await s.create("other")
    if version >= 6:
        topics = [DeleteTopicState(name="t"), DeleteTopicState(topic_id=other_id), DeleteTopicState(name="nowhere")]
        answer = await s.call(DeleteTopicsRequest(topics=topics), version)
        found = {one.name: (one.error_code, one.topic_id) for one in answer.responses}
        assert found == {"t": (0, topic_id), "other": (0, other_id), "nowhere": (3, ZERO_UUID)}
    else:
        answer = await s.call(DeleteTopicsRequest(topic_names=["t", "other", "nowhere"]), version)
        assert {one.name: one.error_code for one in answer.responses} == {"t": 0, "other": 0, "nowhere": 3}
    refused = next(one for one in answer.responses if one.error_code)
    assert (refused.error_message is not None) == (version >= 5)
    assert await s.topics() == []


async def delete_records(s: Session, version: int, topic_id: bytes) -> None:
    for offset, low in ((1, 1), (-1, 3)):
        entries = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        topics = [DeleteRecordsTopic(name="t", partitions=entries)]
        answer = await s.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.low_watermark) == (0, low)
        assert (await s.fetch("t", 0)).error_code == 1
        assert [record.offset for record in await s.records("t")] == list(range(low, 3))


async def init_producer_id(s: Session, version: int, topic_id: bytes) -> None:
    first = await s.call(InitProducerIdRequest(transactional_id=None), version)
    second = await s.call(InitProducerIdRequest(transactional_id=None), version)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (0, 0, 0)
    assert second.producer_id == first.producer_id + 1
    first = await started(s, "x", version)
    assert await started(s, "x", version) == (first[0], 1)


async def offset_for_leader_epoch(s: Session, version: int, topic_id: bytes) -> None:
    entries = [OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)]
    topics = [OffsetForLeaderTopic(topic="t", partitions=entries)]
    answer = await s.call(OffsetForLeaderEpochRequest(topics=topics), version)
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.leader_epoch, part.end_offset) == (0, 0, 3)


async def describe_configs(s: Session, version: int, topic_id: bytes) -> None:
    assert (await s.alter("t", retention_ms="777")).error_code == 0
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"]),
            DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None),
        ],
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    topic, broker = (await s.call(request, version)).results
    (retention,) = topic.configs
    assert (retention.name, retention.value, retention.config_source) == ("retention.ms", "777", 1)
    assert retention.synonyms[0].name == "retention.ms"
    assert (retention.config_type, bool(retention.documentation)) == ((5, True) if version >= 3 else (0, False))
    found = {config.name: config for config in broker.configs}
    assert found["node.id"].value == "1"
    assert found["node.id"].read_only
    assert len(found) > 50


async def alter_configs(s: Session, version: int, topic_id: bytes) -> None:
    assert (await s.alter("t", retention_ms="777")).error_code == 0
    configs = [ReplacedConfig(name="max.message.bytes", value="100")]
    resource = ReplacedResource(resource_type=TOPIC, resource_name="t", configs=configs)
    for validate_only in (True, False):
        request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (result,) = (await s.call(request, version)).responses
        assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
        too_large = (await s.produce("t", bytes(200))).error_code
        assert too_large == (0 if validate_only else 10)


async def describe_log_dirs(s: Session, version: int, topic_id: bytes) -> None:
    size = len(batch(*STORED))
    chosen = [DescribableLogDirTopic(topic="t", partitions=[0])]
    for topics, sizes in ((None, {0: size, 1: 0}), (chosen, {0: size})):
        answer = await s.call(DescribeLogDirsRequest(topics=topics), version)
        (found,) = answer.results
        assert (answer.error_code, found.error_code, found.log_dir) == (0, 0, "simulated")
        (topic,) = found.topics
        assert topic.name == "t"
        assert {part.partition_index: part.partition_size for part in topic.partitions} == sizes
        assert (found.total_bytes > found.usable_bytes > 0) == (version >= 4)


async def create_partitions(s: Session, version: int, topic_id: bytes) -> None:
    for validate_only, count in ((True, 2), (False, 5)):
        topics = [CreatePartitionsTopic(name="t", count=5, assignments=None)]
        answer = await s.call(CreatePartitionsRequest(topics=topics, validate_only=validate_only), version)
        (result,) = answer.results
        assert (result.name, result.error_code) == ("t", 0)
        assert len((await s.describe("t")).partitions) == count
    assert (await s.produce("t", b"there", partition=4)).base_offset == 0
    (fewer,) = (await s.call(CreatePartitionsRequest(topics=topics), version)).results
    assert fewer.error_code == 37
    assert "already" in fewer.error_message


async def incremental_alter_configs(s: Session, version: int, topic_id: bytes) -> None:
    configs = [AlterableConfig(name="max.message.bytes", config_operation=0, value="100")]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
    for validate_only in (True, False):
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (result,) = (await s.call(request, version)).responses
        assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
        assert (await s.produce("t", bytes(200))).error_code == (0 if validate_only else 10)


async def describe_cluster(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    known = await s.call(MetadataRequest(topics=None))
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, known.cluster_id, 1)
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    unasked = await s.call(DescribeClusterRequest(), version)
    assert unasked.cluster_authorized_operations == NOT_ASKED
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.is_fenced) == (1, "broker", KAFKA_PORT, False)
    if version >= 1:
        assert (await s.call(DescribeClusterRequest(endpoint_type=2), version)).error_code == 114


async def list_config_resources(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(ListConfigResourcesRequest(resource_types=[TOPIC] if version else []), version)
    assert answer.error_code == 0
    listed = [(one.resource_type, one.resource_name) for one in answer.config_resources]
    assert listed == ([(TOPIC, "t")] if version else [])


async def describe_topic_partitions(s: Session, version: int, topic_id: bytes) -> None:
    answer = await s.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), version)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "t", topic_id)
    assert answer.next_cursor is None
    assert [part.partition_index for part in topic.partitions] == [0, 1]
    for part in topic.partitions:
        assert (part.leader_id, part.replica_nodes, part.isr_nodes, part.leader_epoch) == (1, [1], [1], 0)
        assert part.eligible_leader_replicas == part.last_known_elr == part.offline_replicas == []


Exchange = Callable[[Session, int, bytes], Awaitable[None]]

EXCHANGES: dict[ApiKey, Exchange] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.API_VERSIONS: api_versions,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    **ABSENT_EXCHANGES,
    **QUOTA_EXCHANGES,
    **TELEMETRY_EXCHANGES,
    **GROUP_EXCHANGES,
    **CONTROL_EXCHANGES,
    **TRANSACTION_EXCHANGES,
}

EVERY_VERSION = [
    pytest.param(key, version, id=f"{api.name} v{version}") for key, api in SERVED.items() for version in api.versions
]


def test_no_served_api_is_left_out() -> None:
    assert set(EXCHANGES) == set(SERVED)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
@simulated(QUICK)
async def test_it_answers_what_was_asked(s: Session, key: ApiKey, version: int) -> None:
    topic_id = await s.create("t", partitions=2)
    assert (await s.produce("t", *STORED)).error_code == 0
    await EXCHANGES[key](s, version, topic_id)
