"""DeleteTopics (20): remove topics and, a while later, their files.

Served: v1–v6. v4 is flexible, v5 adds a message, v6 deletes by id as well (KIP-516). `delete.topic.enable=false`
refuses.
"""

from __future__ import annotations

from penstock.broker.node import ControllerNode
from penstock.broker.quorum.controlling import Caller
from penstock.metadata import TopicToDelete
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


async def decide(node: ControllerNode, caller: Caller, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if caller.version >= 6:
        wanted = [TopicToDelete(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [TopicToDelete(name) for name in request.topic_names]
    try:
        if not node.config.delete_topic_enable:
            code = ErrorCode.TOPIC_DELETION_DISABLED if caller.version >= 3 else ErrorCode.INVALID_REQUEST
            raise KafkaError(code)
        deletions = await node.quorum.submit(lambda controller: controller.decide_delete_topics(wanted))
    except KafkaError as error:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
                )
                for topic in wanted
            ]
        )
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=deletion.name,
                topic_id=deletion.topic_id,
                error_code=deletion.outcome.error,
                error_message=deletion.outcome.message,
            )
            for deletion in deletions
        ]
    )
