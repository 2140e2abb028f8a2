"""ListPartitionReassignments (46): partitions that are on their way to other replicas (KIP-455).

Served: v0. Without a list of topics, all of the cluster. Partitions that do not move, or do not exist, are left out,
as in Kafka. Told by the active controller.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def decide(
    node: ControllerNode, request: Request, body: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if body.topics is not None:
        wanted = [(topic.name, topic.partition_indexes) for topic in body.topics]
    found = await node.quorum.submit(lambda controller: controller.decide_list_reassignments(wanted))
    topics: dict[str, OngoingTopicReassignment] = {}
    for one in found:
        topic = topics.get(one.topic)
        if topic is None:
            topic = topics[one.topic] = OngoingTopicReassignment(name=one.topic, partitions=[])
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=one.partition,
                replicas=list(one.state.replicas),
                adding_replicas=list(one.state.adding),
                removing_replicas=list(one.state.removing),
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
