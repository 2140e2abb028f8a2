"""Metadata (3): brokers, topics, partitions and their leaders.

Served: v0–v13. v1 controller and racks, v4 switchable auto-creation, v7 leader epochs, v8 authorised operations,
v9 flexible, v10 topic ids (KIP-516), v12 lookup by id, v13 a top-level error (KIP-1102).
Brokers are told with their listener of the name under which the question came; those without one are left out, and
partitions that they lead have LISTENER_NOT_FOUND from v6 on.
A topic that is asked for by name and does not exist is created if the client allows it and
`auto.create.topics.enable` is on; the answer then waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.metadata import PartitionState, TopicImage, is_internal
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.uuids import ZERO_UUID

IDS_BUT_NO_LOOKUP = (10, 11)
"""Versions that have topic ids in requests and refuse them, as Kafka does."""
NOT_ASKED = -(2**31)
ALL_TOPIC_OPERATIONS = 0b110111111000
"""Read, write, create, delete, alter, describe, describe configs, alter configs: without ACLs everyone may."""


def serve(
    node: Node, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if context.version in IDS_BUT_NO_LOOKUP and any(by_id(topic) for topic in request.topics or []):
        invalid = ErrorCode.INVALID_REQUEST
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(error_code=invalid, name=topic.name or "", topic_id=topic.topic_id)
                for topic in request.topics or []
            ]
        )
    if context.version >= 4 and not request.allow_auto_topic_creation:
        return describe(node, context, request)
    if not node.config.auto_create_topics_enable or not request.topics:
        return describe(node, context, request)
    image = node.image
    named = [topic.name for topic in request.topics if topic.name and not by_id(topic)]
    missing = [name for name in named if image.topic(name) is None]
    if not missing:
        return describe(node, context, request)
    return create_and_describe(node, context, request, missing)


async def create_and_describe(
    node: Node, context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    topics = [node.coordinators.new_topic(name) for name in dict.fromkeys(missing)]
    try:
        refused = {name: error.code for name, error in (await node.administration.create_topics(topics)).items()}
    except KafkaError as error:
        refused = dict.fromkeys(missing, error.code)
    return describe(node, context, request, refused)


def by_id(topic: MetadataRequestTopic) -> bool:
    return topic.topic_id != ZERO_UUID or topic.name is None


def describe(
    node: Node, context: RequestContext, request: MetadataRequest, refused: dict[str, ErrorCode] | None = None
) -> MetadataResponse:
    image = node.image
    brokers = []
    unreachable = []
    for broker in node.live_brokers():
        address = node.address_of(broker, context.connection.entrance)
        if address is None:
            unreachable.append(broker.id)
        else:
            host, port = address
            brokers.append(MetadataResponseBroker(node_id=broker.id, host=host, port=port, rack=broker.rack))
    operations = request.include_topic_authorized_operations
    topics: list[MetadataResponseTopic] = []
    # v0 has no null list: an empty one means all topics.
    if request.topics is None or (context.version == 0 and not request.topics):
        topics = [described(node, topic, operations) for topic in image.topics()]
    else:
        # Each once, however often it was named: else a small request makes an answer of any size.
        for topic_id, name in dict.fromkeys((wanted.topic_id, wanted.name or "") for wanted in request.topics):
            if topic_id != ZERO_UUID:
                found = image.topic_by_id(topic_id)
                unknown = MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
                )
            else:
                found = image.topic(name)
                code = (refused or {}).get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                unknown = MetadataResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID)
            topics.append(unknown if found is None else described(node, found, operations))
    if unreachable:
        code = ErrorCode.LISTENER_NOT_FOUND if context.version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        for partition in (partition for topic in topics for partition in topic.partitions):
            if partition.leader_id in unreachable:
                partition.leader_id, partition.error_code = -1, code
    return MetadataResponse(
        brokers=brokers,
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        topics=topics,
        cluster_authorized_operations=NOT_ASKED,
    )


def described(node: Node, topic: TopicImage, operations: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[described_partition(node, index, state) for index, state in enumerate(topic.partitions)],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS if operations else NOT_ASKED,
    )


def described_partition(node: Node, index: int, state: PartitionState) -> MetadataResponsePartition:
    led = node.is_leading(state.leader)
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if led else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=node.offline(state.replicas),
    )
