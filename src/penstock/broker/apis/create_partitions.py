"""CreatePartitions (37): more partitions for a topic, never fewer.

Served: v0–v3 (v2 is flexible). Existing records stay where they are, so keys that hash to a new partition begin
there: `penstock topics alter` reports which do before it asks for this.
"""

from __future__ import annotations

from penstock.broker.net.request import TOPIC_DENIED, Request
from penstock.broker.node import ControllerNode
from penstock.metadata import NewPartitions
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def decide(node: ControllerNode, request: Request, body: CreatePartitionsRequest) -> CreatePartitionsResponse:
    topics, denied = request.split(Operation.ALTER, ResourceKind.TOPIC, body.topics, lambda topic: topic.name)
    wanted = [new_partitions(topic) for topic in topics]
    creations = await node.quorum.submit(
        lambda controller: controller.decide_create_partitions(
            wanted, validate_only=body.validate_only, charge=request.mutation_charge
        )
    )
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=topic.name, **TOPIC_DENIED) for topic in denied]
        + [
            CreatePartitionsTopicResult(
                name=creation.name, error_code=creation.outcome.error, error_message=creation.outcome.message
            )
            for creation in creations
        ]
    )


def new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(assignment.broker_ids) for assignment in topic.assignments)
    return NewPartitions(topic.name, topic.count, assignments)
