"""Metadata (3): brokers, topics, partitions and their leaders.

Served: v0–v13. v1 controller and racks, v4 switchable auto-creation, v7 leader epochs, v8 authorised operations of
topics and (until v10, later DescribeCluster has them) of the cluster, v9 flexible, v10 topic ids (KIP-516), v12 lookup
by id, v13 a top-level error (KIP-1102).
Brokers are listed with the address of their listener that has the same name as the listener of the request. Brokers
without such a listener are omitted, and partitions that they lead have LISTENER_NOT_FOUND from v6 on.
A topic that is asked for by name and does not exist is created if the client allows it and
`auto.create.topics.enable` is on; the answer then waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator

from penstock.broker.net.request import Request
from penstock.broker.net.slices import at_once
from penstock.broker.node import Node
from penstock.metadata import PartitionState, TopicImage, is_internal
from penstock.wire.acls import Operation, ResourceKind
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
"""Topics or partitions that are described without yielding to the loop."""
CREATED_AT_ONCE_MAX = 1_000
"""Topics that one request may create. The others are answered as unknown, and clients retry."""


def serve(node: Node, request: Request, body: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    if is_large(node, request, body):
        return serve_large(node, request, body)
    answer = at_once(decide(node, request, body))
    return create_and_describe(node, request, body, answer) if isinstance(answer, list) else answer


def is_large(node: Node, request: Request, body: MetadataRequest) -> bool:
    if wants_all(request, body):
        return node.image.partition_count > AT_ONCE_MAX
    topics = body.topics or []
    if len(topics) > AT_ONCE_MAX:
        return True
    partitions = 0
    for topic in topics:
        found = node.image.topic(topic.name) if topic.name else node.image.topic_by_id(topic.topic_id)
        partitions += 0 if found is None else len(found.partitions)
    return partitions > AT_ONCE_MAX


def wants_all(request: Request, body: MetadataRequest) -> bool:
    # v0 has no null list: an empty one means all topics.
    return body.topics is None or (request.version == 0 and not body.topics)


async def serve_large(node: Node, request: Request, body: MetadataRequest) -> MetadataResponse:
    with request.slices() as slices:
        await slices.begin()
        answer = await slices.drive(decide(node, request, body))
    return await create_and_describe(node, request, body, answer) if isinstance(answer, list) else answer


def decide(node: Node, request: Request, body: MetadataRequest) -> Generator[None, None, MetadataResponse | list[str]]:
    """The answer, or the names of topics that are to be created first. Each step takes some microseconds."""
    topics = body.topics or []
    if request.version in IDS_BUT_NO_LOOKUP and any(by_id(topic) for topic in topics):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if creates(node, request, body):
        missing = []
        for topic in topics:
            yield
            is_missing = topic.name and not by_id(topic) and node.image.topic(topic.name) is None
            if topic.name and is_missing and may_create_topic(request, topic.name):
                missing.append(topic.name)
        if missing:
            return missing
    return (yield from describe(node, request, body))


def creates(node: Node, request: Request, body: MetadataRequest) -> bool:
    """Whether missing topics are created."""
    return node.config.auto_create_topics_enable and (request.version < 4 or body.allow_auto_topic_creation)


async def create_and_describe(
    node: Node, request: Request, body: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    names = list(dict.fromkeys(missing))[:CREATED_AT_ONCE_MAX]
    try:
        topics = [node.coordination.new_topic(name) for name in names]
        refused = {name: error.code for name, error in (await node.administration.create_topics(topics)).items()}
    except KafkaError as error:
        refused = dict.fromkeys(names, error.code)
    with request.slices() as slices:
        return await slices.drive(describe(node, request, body, refused))


def may_create_topic(request: Request, name: str) -> bool:
    """The answer for a topic that the caller may not describe; nothing is created."""
    return request.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, name) and (
        request.permits(Operation.CREATE, ResourceKind.CLUSTER)
        or request.allowed(Operation.CREATE, ResourceKind.TOPIC, name)
    )


def by_id(topic: MetadataRequestTopic) -> bool:
    return topic.topic_id != ZERO_UUID or topic.name is None


def describe(
    node: Node, request: Request, body: MetadataRequest, refused: dict[str, ErrorCode] | None = None
) -> Generator[None, None, MetadataResponse]:
    image = node.image
    brokers = []
    unreachable = []
    for broker in node.live_brokers():
        address = node.address_of(broker, request.listener_info)
        if address is None:
            unreachable.append(broker.id)
        else:
            host, port = address
            brokers.append(MetadataResponseBroker(node_id=broker.id, host=host, port=port, rack=broker.rack))
    restricted, asked = request.is_restricted, body.include_topic_authorized_operations
    topics: list[MetadataResponseTopic] = []
    if wants_all(request, body):
        for topic in image.topics():
            if restricted and not request.permits(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
                continue
            operations = request.operations(ResourceKind.TOPIC, topic.name, asked=asked)
            whole = yield from described(node, topic, operations)
            topics.append(whole)
    else:
        # Each once, however often it was named: else a small request makes an answer of any size.
        for topic_id, name in dict.fromkeys((wanted.topic_id, wanted.name or "") for wanted in body.topics or []):
            yield
            if topic_id != ZERO_UUID:
                found = image.topic_by_id(topic_id)
                unknown: MetadataResponseTopic | None = MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
                )
                if restricted and found is not None:
                    found = found if request.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, found.name) else None
            elif restricted and not request.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.append(MetadataResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID))
                continue
            else:
                found = image.topic(name)
                unknown = None
                if found is None:
                    code = (refused or {}).get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    if restricted and creates(node, request, body) and not may_create_topic(request, name):
                        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    operations = request.operations(ResourceKind.TOPIC, name, asked=asked)
                    unknown = MetadataResponseTopic(
                        error_code=code, name=name, topic_id=ZERO_UUID, topic_authorized_operations=operations
                    )
            if found is not None:
                operations = request.operations(ResourceKind.TOPIC, found.name, asked=asked)
                topics.append((yield from described(node, found, operations)))
            else:
                assert unknown is not None
                topics.append(unknown)
    if unreachable:
        code = ErrorCode.LISTENER_NOT_FOUND if request.version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
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
        cluster_authorized_operations=request.operations(
            ResourceKind.CLUSTER, asked=body.include_cluster_authorized_operations
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
