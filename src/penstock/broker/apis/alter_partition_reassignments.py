"""AlterPartitionReassignments (45): move partitions to other replicas, or cancel moves that are under way (KIP-455).

Served: v0–v1 (both flexible). v1 lets the client forbid other numbers of replicas than there are (KIP-860); before,
they are allowed. Decided by the active controller, each partition on its own; the answer leaves when the decision is
committed, not when the data have moved: ListPartitionReassignments tells what is still under way.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.portions import decide_in_portions
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
    slices = Slices(node.runtime)
    wanted = []
    for topic in body.topics:
        for entry in topic.partitions:
            replicas = None if entry.replicas is None else tuple(entry.replicas)
            wanted.append(PartitionReassignment(topic.name, entry.partition_index, replicas))
            await slices.breathe()
    results = await decide_in_portions(
        node,
        lambda portion, controller: controller.decide_alter_reassignments(
            portion, allow_replication_factor_change=allowed
        ),
        wanted,
        slices,
    )
    topics: dict[str, ReassignableTopicResponse] = {
        topic.name: ReassignableTopicResponse(name=topic.name, partitions=[]) for topic in body.topics
    }
    for result in results:
        await slices.breathe()
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
