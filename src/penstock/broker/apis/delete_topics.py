"""DeleteTopics (20): remove topics and, a while later, their files.

Served: v1–v6. v4 is flexible, v5 adds a message, v6 deletes by id as well (KIP-516). `delete.topic.enable=false`
refuses.
"""

from __future__ import annotations

from penstock.broker.net.request import TOPIC_DENIED, Request
from penstock.broker.node import ControllerNode
from penstock.metadata import MetadataImage, TopicToDelete
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


async def decide(node: ControllerNode, request: Request, body: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if request.version >= 6:
        wanted = [TopicToDelete(topic.name, topic.topic_id) for topic in body.topics]
    else:
        wanted = [TopicToDelete(name) for name in body.topic_names]
    if not node.config.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED if request.version >= 3 else ErrorCode.INVALID_REQUEST)
    denied: list[DeletableTopicResult] = []
    if request.is_restricted:
        denied = [denial(request, node.image, topic) for topic in wanted if not may_delete(request, node.image, topic)]
        wanted = [topic for topic in wanted if may_delete(request, node.image, topic)]
    deletions = await node.quorum.submit(
        lambda controller: controller.decide_delete_topics(wanted, charge=request.mutation_charge)
    )
    return DeleteTopicsResponse(
        responses=denied
        + [
            DeletableTopicResult(
                name=deletion.name,
                topic_id=deletion.topic_id,
                error_code=deletion.outcome.error,
                error_message=deletion.outcome.message,
            )
            for deletion in deletions
        ]
    )


def name_of(image: MetadataImage, wanted: TopicToDelete) -> str | None:
    if wanted.name is not None:
        return wanted.name
    topic = image.topic_by_id(wanted.topic_id)
    return None if topic is None else topic.name


def may_delete(request: Request, image: MetadataImage, wanted: TopicToDelete) -> bool:
    name = name_of(image, wanted)
    return name is None or request.allowed(Operation.DELETE, ResourceKind.TOPIC, name)


def denial(request: Request, image: MetadataImage, wanted: TopicToDelete) -> DeletableTopicResult:
    """It tells no name to a caller who knows only an id, unless that caller may describe the topic."""
    name = name_of(image, wanted)
    assert name is not None
    if wanted.name is None and not request.permits(Operation.DESCRIBE, ResourceKind.TOPIC, name):
        name = None
    return DeletableTopicResult(name=name, topic_id=wanted.topic_id, **TOPIC_DENIED)
