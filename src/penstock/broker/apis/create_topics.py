"""CreateTopics (19): new topics, each of which succeeds or fails on its own.

Served: v2–v7. v4 accepts -1 for the broker's defaults (KIP-464), v5 is flexible and answers with the topic's
configuration (KIP-525), v7 with its id. The answer leaves when the topic is committed and its partitions are led.
"""

from __future__ import annotations

from penstock.broker.net.request import TOPIC_DENIED, Request
from penstock.broker.node import ControllerNode
from penstock.config import describe_topic
from penstock.metadata import NewTopic, TopicCreation
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def decide(node: ControllerNode, request: Request, body: CreateTopicsRequest) -> CreateTopicsResponse:
    topics, denied = body.topics, body.topics[:0]
    if not (request.permits(Operation.CREATE, ResourceKind.CLUSTER) and request.allowed_on_cluster(Operation.CREATE)):
        topics, denied = request.split(Operation.CREATE, ResourceKind.TOPIC, topics, lambda topic: topic.name)
    wanted = [new_topic(topic) for topic in topics]
    creations = await node.quorum.submit(
        lambda controller: controller.decide_create_topics(
            wanted, validate_only=body.validate_only, charge=request.mutation_charge
        )
    )
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, **TOPIC_DENIED) for topic in denied]
        + [answered(node, request, creation) for creation in creations]
    )


def new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


def answered(node: ControllerNode, request: Request, creation: TopicCreation) -> CreatableTopicResult:
    outcome = creation.outcome
    if outcome.error != ErrorCode.NONE:
        return CreatableTopicResult(
            name=creation.name, error_code=outcome.error, error_message=outcome.message, configs=None
        )
    if not request.permits(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC, creation.name):
        return CreatableTopicResult(
            name=creation.name,
            topic_id=creation.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return CreatableTopicResult(
        name=creation.name,
        topic_id=creation.topic_id,
        error_message=None,
        num_partitions=creation.num_partitions,
        replication_factor=creation.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=None if config.sensitive else config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.sensitive,
            )
            for config in describe_topic(creation.configs, node.config)
        ],
    )
