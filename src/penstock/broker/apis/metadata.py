"""Metadata (3): brokers, topics, partitions and their leaders.

Served: v0–v13. v1 controller and racks, v4 switchable auto-creation, v7 leader epochs, v8 authorised operations of
topics and (until v10, later DescribeCluster has them) of the cluster, v9 flexible, v10 topic ids (KIP-516), v12 lookup
by id, v13 a top-level error (KIP-1102).
Brokers are told with their listener of the name under which the question came; those without one are left out, and
partitions that they lead have LISTENER_NOT_FOUND from v6 on.
A topic that is asked for by name and does not exist is created if the client allows it and
`auto.create.topics.enable` is on; the answer then waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator

from penstock.broker.net.access import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, NOT_ASKED
from penstock.broker.net.slices import at_once
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
AT_ONCE_MAX = 200
"""Topics or partitions that are described without giving the loop back meanwhile."""
CREATED_AT_ONCE_MAX = 1_000
"""Topics that one request creates. The others are unknown for now, which clients take as a reason to ask again."""


def serve(
    node: Node, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if is_large(node, context, request):
        return serve_large(node, context, request)
    answer = at_once(decide(node, context, request))
    return create_and_describe(node, context, request, answer) if isinstance(answer, list) else answer


def is_large(node: Node, context: RequestContext, request: MetadataRequest) -> bool:
    if wants_all(context, request):
        return node.image.partition_count > AT_ONCE_MAX
    topics = request.topics or []
    if len(topics) > AT_ONCE_MAX:
        return True
    partitions = 0
    for topic in topics:
        found = node.image.topic(topic.name) if topic.name else node.image.topic_by_id(topic.topic_id)
        partitions += 0 if found is None else len(found.partitions)
    return partitions > AT_ONCE_MAX


def wants_all(context: RequestContext, request: MetadataRequest) -> bool:
    # v0 has no null list: an empty one means all topics.
    return request.topics is None or (context.version == 0 and not request.topics)


async def serve_large(node: Node, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    with context.slices() as slices:
        await slices.begin()
        answer = await slices.drive(decide(node, context, request))
    return await create_and_describe(node, context, request, answer) if isinstance(answer, list) else answer


def decide(
    node: Node, context: RequestContext, request: MetadataRequest
) -> Generator[None, None, MetadataResponse | list[str]]:
    """The answer, or the names of topics that are to be created first. Each step takes some microseconds."""
    topics = request.topics or []
    if context.version in IDS_BUT_NO_LOOKUP and any(by_id(topic) for topic in topics):
        invalid = ErrorCode.INVALID_REQUEST
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(error_code=invalid, name=topic.name or "", topic_id=topic.topic_id)
                for topic in topics
            ]
        )
    may_create = context.version < 4 or request.allow_auto_topic_creation
    if may_create and node.config.auto_create_topics_enable:
        missing = []
        for topic in topics:
            yield
            if topic.name and not by_id(topic) and node.image.topic(topic.name) is None:
                missing.append(topic.name)
        if missing:
            return missing
    return (yield from describe(node, context, request))


async def create_and_describe(
    node: Node, context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    names = list(dict.fromkeys(missing))[:CREATED_AT_ONCE_MAX]
    try:
        topics = [node.coordination.new_topic(name) for name in names]
        refused = {name: error.code for name, error in (await node.administration.create_topics(topics)).items()}
    except KafkaError as error:
        refused = dict.fromkeys(names, error.code)
    with context.slices() as slices:
        return await slices.drive(describe(node, context, request, refused))


def by_id(topic: MetadataRequestTopic) -> bool:
    return topic.topic_id != ZERO_UUID or topic.name is None


def describe(
    node: Node, context: RequestContext, request: MetadataRequest, refused: dict[str, ErrorCode] | None = None
) -> Generator[None, None, MetadataResponse]:
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
    # Without ACLs everyone may do everything, also to topics that are not there yet.
    operations = ALL_TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    topics: list[MetadataResponseTopic] = []
    if wants_all(context, request):
        for topic in image.topics():
            whole = yield from described(node, topic, operations)
            topics.append(whole)
    else:
        # Each once, however often it was named: else a small request makes an answer of any size.
        for topic_id, name in dict.fromkeys((wanted.topic_id, wanted.name or "") for wanted in request.topics or []):
            yield
            if topic_id != ZERO_UUID:
                found = image.topic_by_id(topic_id)
                unknown = MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
                )
            else:
                found = image.topic(name)
                code = (refused or {}).get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                unknown = MetadataResponseTopic(
                    error_code=code, name=name, topic_id=ZERO_UUID, topic_authorized_operations=operations
                )
            topics.append(unknown if found is None else (yield from described(node, found, operations)))
    if unreachable:
        code = ErrorCode.LISTENER_NOT_FOUND if context.version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        for topic_described in topics:
            yield
            for partition in topic_described.partitions:
                if partition.leader_id in unreachable:
                    partition.leader_id, partition.error_code = -1, code
    return MetadataResponse(
        brokers=brokers,
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def described(node: Node, topic: TopicImage, operations: int) -> Generator[None, None, MetadataResponseTopic]:
    partitions = []
    for index, state in enumerate(topic.partitions):
        yield
        partitions.append(described_partition(node, index, state))
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=operations,
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
