"""AlterPartitionReassignments (45): move partitions to other replicas, or cancel moves that are under way (KIP-455).

Served: v0–v1 (both flexible). v1 lets the client forbid other numbers of replicas than there are (KIP-860); before,
they are allowed. Decided by the active controller, each partition on its own; the answer leaves when the decision is
committed, not when the data have moved: ListPartitionReassignments tells what is still under way.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import PartitionReassignment
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def decide(
    node: ControllerNode, request: Request, body: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    allowed = body.allow_replication_factor_change
    wanted = [
        PartitionReassignment(
            topic.name, entry.partition_index, None if entry.replicas is None else tuple(entry.replicas)
        )
        for topic in body.topics
        for entry in topic.partitions
    ]
    results = await node.quorum.submit(
        lambda controller: controller.decide_alter_reassignments(wanted, allow_replication_factor_change=allowed)
    )
    topics: dict[str, ReassignableTopicResponse] = {
        topic.name: ReassignableTopicResponse(name=topic.name, partitions=[]) for topic in body.topics
    }
    for result in results:
        topics[result.topic].partitions.append(
            ReassignablePartitionResponse(
                partition_index=result.partition,
                error_code=result.outcome.error,
                error_message=result.outcome.message,
            )
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed, error_message=None, responses=list(topics.values())
    )
